"""The operators of attune_kernels.torch: how they are called, and the shapes of what they make, for tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

from . import _core

_LIBRARY = Path(__file__).with_name("_torch.so")
if not _LIBRARY.exists():
    raise ImportError(
        "attune_kernels.torch: this installation was built without torch's headers and has no _torch.so. "
        "Install it anew from its sources, by a Python that has torch: pip install --no-build-isolation ."
    )
torch.ops.load_library(str(_LIBRARY))
_core.prepare()  # the operators use the same context, and so the same policy
forward_operator = torch.ops.attune.forward.default
backward_operator = torch.ops.attune.backward.default
pool_operator = torch.ops.attune.forward_on_pool.default
decode_operator = torch.ops.attune.decode.default

# Where the arguments of attune::forward stand: tensors first, in this order, then the options.
TENSORS = 11
Q, K, V, G, G_GAMMA, GK, GV, SLOPES, INITIAL_STATE, CU_SEQLENS, CU_SEQLENS_HOST = range(TENSORS)


def _in_schema(operator, tensors):
    """The names of an operator's tensors, which come first, and what its options are where they are not given."""
    arguments = operator._schema.arguments
    return (tuple(argument.name for argument in arguments[:tensors]),
            tuple(argument.default_value for argument in arguments[tensors:]))


NAMES, OPTIONS = _in_schema(forward_operator, TENSORS)
POOL_NAMES, POOL_OPTIONS = _in_schema(pool_operator, 14)
DECODE_NAMES, DECODE_OPTIONS = _in_schema(decode_operator, 18)


def refuse_what_is_no_tensor(function, names, tensors):
    for name, x in zip(names, tensors):
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(f"{function}: {name}: a tensor of PyTorch's is expected, not {type(x).__name__}") from None


def call_operator(function, operator, names, tensors, options, in_schema):
    """Calls an operator without the arguments at the end that are as in its schema: each that torch's dispatcher
    reads costs the host 0.1 us, with autograd four times."""
    if options != in_schema:
        given = tensors + options
    else:
        count = len(tensors)
        while tensors[count - 1] is None:
            count -= 1
        given = tensors[:count]
    try:
        return operator(*given)
    except RuntimeError:  # torch's own says "Optional[Tensor]", and all of the schema
        refuse_what_is_no_tensor(function, names, tensors)
        raise


def _check_devices(q: Tensor, **others: Optional[Tensor]):
    """An argument that is on no device ("meta") brings a real call here, too."""
    for name, x in others.items():
        torch._check(x is None or x.device == q.device,
                     lambda: f"attune: {name} is on {x.device} and q on {q.device}, expected one device")


def _sequences(q: Tensor, cu_seqlens: Optional[Tensor]):
    return q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1


@torch.library.register_fake("attune::forward")
def _(q, k, v, g=None, g_gamma=None, gk=None, gv=None, slopes=None, initial_state=None, cu_seqlens=None,
      cu_seqlens_host=None, scale=None, layer_idx=0, num_layers=0, reverse=False, want_final_state=False,
      state_v_first=False, *_, **__):
    _check_devices(q, k=k, v=v, g=g, g_gamma=g_gamma, gk=gk, gv=gv, slopes=slopes, initial_state=initial_state)
    o = q.new_empty((*q.shape[:-1], v.shape[-1]))
    state_type = torch.float32 if initial_state is None else initial_state.dtype
    if not want_final_state:
        return o, None
    sizes = (v.shape[-1], q.shape[-1]) if state_v_first else (q.shape[-1], v.shape[-1])
    return o, q.new_empty((_sequences(q, cu_seqlens), q.shape[-2], *sizes), dtype=state_type)


@torch.library.register_fake("attune::backward")
def _(d_o, dfinal_state, q, k, v, g=None, g_gamma=None, gk=None, gv=None, slopes=None, initial_state=None, *_,
      **__):
    _check_devices(q, k=k, v=v, g=g, g_gamma=g_gamma, gk=gk, gv=gv, slopes=slopes, initial_state=initial_state)
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)] + [
        q.new_empty(x.shape, dtype=torch.float32)
        for x in (g, g_gamma, gk, gv, slopes, initial_state) if x is not None]


@torch.library.register_fake("attune::forward_on_pool")
@torch.library.register_fake("attune::decode")
def _(q, k, v, state, g=None, g_gamma=None, gk=None, gv=None, slopes=None, *_, **__):
    _check_devices(q, k=k, v=v, state=state, g=g, g_gamma=g_gamma, gk=gk, gv=gv, slopes=slopes)
    return q.new_empty((*q.shape[:-1], v.shape[-1]))
