"""attune for PyTorch: operators that autograd, torch.compile, vmap and CUDA graphs know.

    import attune_kernels.torch as at
    o, state = at.gated_linear_attention(q, k, v, gk, want_final_state=True)
    o.sum().backward()

Shapes, types and meaning are those of `attune_kernels` (see there); tensors are torch's. Outputs and
workspace come from torch's allocator, the work is queued on the current stream of q's device.

Gradients reach q, k, v, every gate, g_gamma, slopes and initial_state, each in its input's type.
Nothing of the forward pass is saved but its inputs. A scope (`attune_kernels.scope`) that is in force
in the forward pass is in force in its backward pass too, on whichever thread autograd runs that. The
gradient of a gradient is refused, and so are derivatives in forward mode (torch.func.jvp, jacfwd). A
`config` is of the forward pass alone; a scope may name the backward pass's.

For serving, the attention functions take a pool of states, `states`, with slots in place of
`initial_state` and `final_state`, and decoding takes several tokens a step: see
`help(attune_kernels.recurrent_attention)` and `help(attune_kernels.recurrent_decode)`. Those calls have
no gradient, and refuse tensors that ask for one.

Under torch.compile the operators are opaque calls with known shapes: `fullgraph=True` and dynamic
sizes work. Pools are written to, which is declared; torch.compile may copy one that it cannot update in
place, so serve with these calls outside of the compiled parts. A `state_seed` is part of what is compiled.

Importing this module imports torch. The operators themselves are `torch.ops.attune.forward`, `.backward`,
`.forward_on_pool` and `.decode`; they have no autograd of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Tuple

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead as _unwrap_if_dead
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from . import _core
from ._core import minimax_slopes as _minimax_slopes
from ._layers import integer, lightning_layer

__all__ = [
    "gated_linear_attention",
    "lightning_attention",
    "lightning_decode",
    "minimax_slopes",
    "recurrent_attention",
    "recurrent_decode",
]

_LIBRARY = Path(__file__).with_name("_torch.so")
if not _LIBRARY.exists():
    raise ImportError(
        "attune_kernels.torch: this installation was built without torch's headers and has no _torch.so. "
        "Install it anew from its sources, by a Python that has torch: pip install --no-build-isolation ."
    )
torch.ops.load_library(str(_LIBRARY))
_core.prepare()  # the operators use the same context, and so the same policy
_forward = torch.ops.attune.forward.default
_backward = torch.ops.attune.backward.default
_forward_on_pool = torch.ops.attune.forward_on_pool.default
_decode = torch.ops.attune.decode.default

# Where the arguments of attune::forward stand: tensors first, in this order, then the options.
_Q, _K, _V, _G, _G_GAMMA, _GK, _GV, _SLOPES, _INITIAL_STATE, _CU_SEQLENS, _CU_SEQLENS_HOST = range(11)
_TENSORS = 11


def _in_schema(operator, tensors):
    """The names of an operator's tensors, which come first, and what its options are where they are not given."""
    arguments = operator._schema.arguments
    return (tuple(argument.name for argument in arguments[:tensors]),
            tuple(argument.default_value for argument in arguments[tensors:]))


_NAMES, _OPTIONS = _in_schema(_forward, _TENSORS)
_POOL_NAMES, _POOL_OPTIONS = _in_schema(_forward_on_pool, 14)
_DECODE_NAMES, _DECODE_OPTIONS = _in_schema(_decode, 18)


def _refuse_what_is_no_tensor(function, names, tensors):
    for name, x in zip(names, tensors):
        if x is not None and not isinstance(x, Tensor):
            raise TypeError(f"{function}: {name}: a tensor of PyTorch's is expected, not {type(x).__name__}") from None


def _call(function, operator, names, tensors, options, in_schema):
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
        _refuse_what_is_no_tensor(function, names, tensors)
        raise


# --- shapes, for tracing -----------------------------------------------------------------------


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


# --- vmap: the mapped dimension becomes part of the batch ----------------------------------------


def _each(call, size, in_dims, args):
    """One call for each sample, for what cannot be folded: its results and their dimensions."""
    outputs = [call(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims)))
               for i in range(size)]
    kind = type(outputs[0])
    results = kind(None if column[0] is None else torch.stack(column) for column in zip(*outputs))
    return results, kind(None if result is None else 0 for result in results)


def _samples(size, x, dim):
    """x with its samples in front, [size, ...]."""
    return x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _fold(size, in_dims, args, shared_decay):
    """Arguments of the operators with `size` samples side by side in the batch, [size * B, ...].

    A decay for each head becomes one for each sequence and head, unless it is the same for all
    samples and `shared_decay` says that nobody asks for its gradient.
    """
    folded = list(args)
    samples_q = args[_Q] if in_dims[_Q] is None else args[_Q].select(in_dims[_Q], 0)
    batch = samples_q.shape[0]

    if args[_SLOPES] is not None and not (shared_decay and in_dims[_SLOPES] is None):
        folded[_G_GAMMA], folded[_SLOPES] = -args[_SLOPES], None
        in_dims = list(in_dims)
        in_dims[_G_GAMMA] = in_dims[_SLOPES]
    decay = folded[_G_GAMMA]
    if decay is not None:
        dim = in_dims[_G_GAMMA]
        if not (shared_decay and dim is None and decay.dim() == 1):
            decay = _samples(size, decay, dim)
            if decay.dim() == 2:
                decay = decay.unsqueeze(1).expand(size, batch, decay.shape[-1])
            folded[_G_GAMMA] = decay.reshape(size * batch, decay.shape[-1])
    for i in (_Q, _K, _V, _G, _GK, _GV, _INITIAL_STATE):
        if args[i] is not None:
            folded[i] = _samples(size, args[i], in_dims[i]).flatten(0, 1)
    return folded, batch


def _filled_in(in_dims, args):
    """Both with what torch leaves out: the arguments at the end that are as in the schema."""
    in_schema = (None,) * _TENSORS + _OPTIONS
    return (*in_dims, *(None,) * (len(in_schema) - len(in_dims))), (*args, *in_schema[len(args):])


def _vmap_of_forward(call):
    def rule(info, in_dims, *args):
        size = info.batch_size
        in_dims, args = _filled_in(in_dims, args)
        if args[_CU_SEQLENS] is not None:
            return _each(call, size, in_dims, args)
        folded, batch = _fold(size, in_dims, args, shared_decay=True)
        o, state = call(*folded)
        o = o.unflatten(0, (size, batch))
        if state is None:  # not wanted
            return (o, None), (0, None)
        return (o, state.unflatten(0, (size, batch))), (0, 0)

    return rule


def _vmap_of_backward(call):
    def rule(info, in_dims, d_o, dfinal_state, *args):
        size = info.batch_size
        of_results, results = in_dims[:2], (d_o, dfinal_state)
        in_dims, args = _filled_in(in_dims[2:], args)
        if args[_CU_SEQLENS] is not None:
            return _each(call, size, of_results + in_dims, results + args)
        folded, batch = _fold(size, in_dims, args, shared_decay=False)
        found = call(*(None if x is None else _samples(size, x, dim).flatten(0, 1)
                       for x, dim in zip(results, of_results)), *folded)
        gradients = {i: gradient.unflatten(0, (size, batch))
                     for i, gradient in zip((i for i in range(_CU_SEQLENS) if folded[i] is not None), found)}
        if args[_SLOPES] is not None:
            gradients[_SLOPES] = -gradients.pop(_G_GAMMA).sum(1)
        elif args[_G_GAMMA] is not None and args[_G_GAMMA].dim() - (in_dims[_G_GAMMA] is not None) == 1:
            gradients[_G_GAMMA] = gradients[_G_GAMMA].sum(1)
        return [gradients[i] for i in sorted(gradients)], [0] * len(gradients)

    return rule


def _vmap_in_place(call, pool):
    """The rule of an operator that updates its fourth argument: one call a sample, each on a pool of its own."""

    def rule(info, in_dims, *args):
        if in_dims[3] is None:
            raise RuntimeError(f"attune: vmap needs a `{pool}` for each sample, as it is updated in place")
        o = [call(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims)))
             for i in range(info.batch_size)]
        return torch.stack(o), 0

    return rule


torch.library.register_vmap("attune::forward", _vmap_of_forward(_forward))
torch.library.register_vmap("attune::backward", _vmap_of_backward(_backward))
torch.library.register_vmap("attune::forward_on_pool", _vmap_in_place(_forward_on_pool, "states"))
torch.library.register_vmap("attune::decode", _vmap_in_place(_decode, "state"))


# --- autograd ------------------------------------------------------------------------------------


def _gradients(ctx, d_o, dfinal_state, call):
    needed = ctx.needs_input_grad
    if d_o is None and dfinal_state is None:
        return (None,) * len(needed)
    saved = inputs = ctx.saved_tensors
    if len(saved) > _INITIAL_STATE and saved[_INITIAL_STATE] is not None:
        inputs = list(saved)  # gradients are of states in f32, which has all values of 16 bits
        inputs[_INITIAL_STATE] = saved[_INITIAL_STATE].float()
    if dfinal_state is not None:
        dfinal_state = dfinal_state.float()
    scope = None if ctx.scopes is None else _core.attach_scopes(ctx.scopes)
    try:
        dq, dk, dv, *others = call(d_o, dfinal_state, *inputs, *ctx.options)
    finally:
        if scope is not None:
            _core.end_scope(scope)
    if len(needed) == _G:
        return dq, dk, dv
    found = [None] * len(needed)  # bounds and options have none
    found[:_G] = dq, dk, dv
    given = (i for i in range(_G, min(len(saved), _CU_SEQLENS)) if saved[i] is not None)
    for i, gradient in zip(given, others):
        if needed[i]:
            found[i] = gradient.to(saved[i].dtype)
    return tuple(found)


class _Gradients(torch.autograd.Function):
    """attune::backward where its results may be differentiated (create_graph=True, torch.func), which is refused: without
    a Function the second derivative would be zero, without a word."""

    @staticmethod
    def forward(*args):
        return tuple(_backward(*args))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attune: the gradient of a gradient is not defined")

    @staticmethod
    def vmap(info, in_dims, *args):
        gradients, out_dims = _vmap_of_backward(_Gradients.apply)(info, in_dims, *args)
        return tuple(gradients), tuple(out_dims)


class _Attention(torch.autograd.Function):
    """attune::forward, with attune::backward as its gradient."""

    @staticmethod
    def forward(*args):
        return _forward(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:_TENSORS])
        ctx.options = (*inputs[_TENSORS:-1], "") if len(inputs) > _TENSORS else ()  # a config is the forward pass's
        ctx.scopes = None if torch.compiler.is_compiling() else _core.capture_scopes()
        if output[1] is not None:  # one of o and final_state may have no gradient
            ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, d_o, dfinal_state):
        return _gradients(ctx, d_o, dfinal_state, _Gradients.apply if torch.is_grad_enabled() else _backward)

    @staticmethod
    def vmap(info, in_dims, *args):
        return _vmap_of_forward(_Attention.apply)(info, in_dims, *args)


class _AttentionOutsideOfTransforms(torch.autograd.Function):
    """The same where no transform of torch.func is active, for which alone torch binds a call's arguments to the
    signature of forward(): a third of the host's time of a forward and backward pass."""

    @staticmethod
    def forward(ctx, *args):
        output = _forward(*args)
        _Attention.setup_context(ctx, args, output)
        return output

    backward = staticmethod(_Attention.backward)


# Where Function.apply() ends up outside of transforms, after as much time in Python as forward() takes.
_record_attention = super(torch.autograd.Function, _AttentionOutsideOfTransforms).apply


def _refuse_tangents(function, tensors):
    """The operators have no rule for tangents, which torch would leave out: derivatives would be zero, without a word."""
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(f"{function}: derivatives in forward mode (jvp, jacfwd) are not defined; those in "
                                  "reverse mode are (vjp, jacrev)")


def _needs_gradient(function, names, tensors):
    """Whether autograd asks for a gradient of one of them."""
    try:
        if forward_ad._current_level >= 0:
            _refuse_tangents(function, tensors)
        if not torch.is_grad_enabled():
            return False
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    except AttributeError:
        _refuse_what_is_no_tensor(function, names, tensors)
        raise
    return False


def _decoded(function, tensors, state_seed, options):
    if _needs_gradient(function, _DECODE_NAMES, tensors):
        raise ValueError(f"{function}: decoding has no gradient; call it under torch.no_grad()")
    options = (_seed(function, state_seed), *options)
    return _update(function, _decode, _DECODE_NAMES, tensors, options, _DECODE_OPTIONS)


def _update(function, operator, names, tensors, options, in_schema):
    """_call() of an operator that writes to its fourth tensor: autograd is told, as torch tells it of its own operators
    alone, so that a backward pass that would need what was there fails."""
    o = _call(function, operator, names, tensors, options, in_schema)
    increment_version(tensors[3])
    return o


def _refuse_without_states(function, **given):
    for name, x in given.items():
        if x is not None:
            raise ValueError(f"{function}: {name} is given, but no states")


def _seed(function, state_seed):
    """As the operators take it: the same 64 bits, signed."""
    if state_seed is None:
        return None
    seed = integer(function, "state_seed", state_seed)
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"{function}: state_seed: 0 to 2^64 - 1 is expected, not {seed}")
    return seed if seed < 1 << 63 else seed - (1 << 64)


def _attention(function, q, k, v, g, g_gamma, gk, gv, slopes, initial_state, cu_seqlens, cu_seqlens_host, scale,
               layer, reverse, want_final_state, state_v_first, allow_tf32, platform, config, states, initial_slots,
               final_slots, snapshot_every, snapshot_slots, state_seed):
    """(o, final_state or None) of a public function, which has its parameters."""
    if isinstance(scale, Tensor) and scale.requires_grad:
        raise TypeError(f"{function}: scale is a number and has no gradient; scale q in its place")
    decay = (scale, *layer, reverse)
    how = (state_v_first, allow_tf32, platform, config)
    if states is not None:
        tensors = (q, k, v, states, g, g_gamma, gk, gv, slopes, cu_seqlens, cu_seqlens_host, initial_slots, final_slots,
                   snapshot_slots)
        if _needs_gradient(function, _POOL_NAMES, tensors):
            raise ValueError(f"{function}: states: calls on a pool have no gradient; make them under torch.no_grad()")
        if initial_state is not None or want_final_state:
            raise ValueError(f"{function}: states: a pool has the initial and the final states; no initial_state or "
                             "want_final_state goes with it")
        options = (snapshot_every or 0, _seed(function, state_seed), *decay, *how)
        return _update(function, _forward_on_pool, _POOL_NAMES, tensors, options, _POOL_OPTIONS), None
    if not (initial_slots is final_slots is snapshot_every is snapshot_slots is state_seed is None):
        _refuse_without_states(function, initial_slots=initial_slots, final_slots=final_slots,
                               snapshot_every=snapshot_every, snapshot_slots=snapshot_slots, state_seed=state_seed)
    tensors = (q, k, v, g, g_gamma, gk, gv, slopes, initial_state, cu_seqlens, cu_seqlens_host)
    if not _needs_gradient(function, _NAMES, tensors):
        operator = _forward
    elif torch._C._are_functorch_transforms_active():
        operator = _Attention.apply
    elif torch.compiler.is_compiling():
        operator = _AttentionOutsideOfTransforms.apply
    else:  # what a transform has left behind is unwrapped, as by apply(): it would lose its gradient
        tensors = tuple([x if x is None else _unwrap_if_dead(x) for x in tensors])
        operator = _record_attention
    o, state = _call(function, operator, _NAMES, tensors, (*decay, want_final_state, *how), _OPTIONS)
    return o, state if want_final_state else None


def recurrent_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    g: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    gk: Optional[Tensor] = None,
    gv: Optional[Tensor] = None,
    initial_state: Optional[Tensor] = None,
    states: Optional[Tensor] = None,
    initial_slots: Optional[Tensor] = None,
    final_slots: Optional[Tensor] = None,
    snapshot_every: Optional[int] = None,
    snapshot_slots: Optional[Tensor] = None,
    state_seed: Optional[int] = None,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_host: Optional[Tensor] = None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[Tensor, Optional[Tensor]]:
    """Gated recurrent (linear) attention: (o, final_state), the latter None unless wanted.

    As `attune_kernels.recurrent_attention`, where shapes and types are described. With
    `state_v_first` the states in and out are [N, H, V, K].
    """
    return _attention("recurrent_attention", q, k, v, g, g_gamma, gk, gv, None, initial_state, cu_seqlens,
                      cu_seqlens_host, scale, (0, 0), reverse, want_final_state, state_v_first, allow_tf32, platform,
                      config, states, initial_slots, final_slots, snapshot_every, snapshot_slots, state_seed)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor,
    *,
    g_gamma: Optional[Tensor] = None,
    initial_state: Optional[Tensor] = None,
    states: Optional[Tensor] = None,
    initial_slots: Optional[Tensor] = None,
    final_slots: Optional[Tensor] = None,
    snapshot_every: Optional[int] = None,
    snapshot_slots: Optional[Tensor] = None,
    state_seed: Optional[int] = None,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_host: Optional[Tensor] = None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[Tensor, Optional[Tensor]]:
    """Gated linear attention (GLA, arXiv:2312.06635): a decay `gk` [B, T, H, K] for each key channel."""
    if gk is None:
        raise TypeError("gated_linear_attention: gk: a tensor of PyTorch's is expected, not NoneType")
    return _attention("gated_linear_attention", q, k, v, None, g_gamma, gk, None, None, initial_state, cu_seqlens,
                      cu_seqlens_host, scale, (0, 0), reverse, want_final_state, state_v_first, allow_tf32, platform,
                      config, states, initial_slots, final_slots, snapshot_every, snapshot_slots, state_seed)


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layer_idx: Optional[int] = None,
    num_layers: Optional[int] = None,
    slopes: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    initial_state: Optional[Tensor] = None,
    states: Optional[Tensor] = None,
    initial_slots: Optional[Tensor] = None,
    final_slots: Optional[Tensor] = None,
    snapshot_every: Optional[int] = None,
    snapshot_slots: Optional[Tensor] = None,
    state_seed: Optional[int] = None,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_host: Optional[Tensor] = None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[Tensor, Optional[Tensor]]:
    """Lightning attention (arXiv:2401.04658): a decay for each head, constant in time.

    It comes from exactly one of `layer_idx` with `num_layers`, `slopes` [H] (the decay is -slopes) and
    `g_gamma` [H] or [N, H].
    """
    layer = lightning_layer("lightning_attention", layer_idx, num_layers, slopes, g_gamma)
    return _attention("lightning_attention", q, k, v, None, g_gamma, None, None, slopes, initial_state, cu_seqlens,
                      cu_seqlens_host, scale, layer, reverse, want_final_state, state_v_first, allow_tf32, platform,
                      config, states, initial_slots, final_slots, snapshot_every, snapshot_slots, state_seed)


def recurrent_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor,
    *,
    g: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    gk: Optional[Tensor] = None,
    gv: Optional[Tensor] = None,
    slot_indices: Optional[Tensor] = None,
    kept_slots: Optional[Tensor] = None,
    accepted: Optional[Tensor] = None,
    committed_k: Optional[Tensor] = None,
    committed_v: Optional[Tensor] = None,
    committed_g: Optional[Tensor] = None,
    committed_gk: Optional[Tensor] = None,
    committed_gv: Optional[Tensor] = None,
    committed_accepted: Optional[Tensor] = None,
    state_seed: Optional[int] = None,
    scale: Optional[float] = None,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tensor:
    """One token for each row, or a few: o [B, H, V] or [B, T, H, V]; `state` [S, H, K, V] is updated in place.

    As `attune_kernels.recurrent_decode`, where shapes and types are described. No gradient.
    """
    tensors = (q, k, v, state, g, g_gamma, gk, gv, None, slot_indices, kept_slots, accepted, committed_k, committed_v,
               committed_g, committed_gk, committed_gv, committed_accepted)
    options = (scale, 0, 0, state_v_first, allow_tf32, platform, config)
    return _decoded("recurrent_decode", tensors, state_seed, options)


def lightning_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor,
    *,
    layer_idx: Optional[int] = None,
    num_layers: Optional[int] = None,
    slopes: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    slot_indices: Optional[Tensor] = None,
    kept_slots: Optional[Tensor] = None,
    accepted: Optional[Tensor] = None,
    committed_k: Optional[Tensor] = None,
    committed_v: Optional[Tensor] = None,
    committed_accepted: Optional[Tensor] = None,
    state_seed: Optional[int] = None,
    scale: Optional[float] = None,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tensor:
    """`recurrent_decode` with the decays of `lightning_attention`."""
    layer = lightning_layer("lightning_decode", layer_idx, num_layers, slopes, g_gamma)
    tensors = (q, k, v, state, None, g_gamma, None, None, slopes, slot_indices, kept_slots, accepted, committed_k,
               committed_v, None, None, None, committed_accepted)
    options = (scale, *layer, state_v_first, allow_tf32, platform, config)
    return _decoded("lightning_decode", tensors, state_seed, options)


def minimax_slopes(heads: int, layer: int, layers: int, device: Optional[torch.device] = None) -> Tensor:
    """The slopes [heads] of MiniMax's models in a layer, f32: see `attune_kernels.minimax_slopes`."""
    return torch.tensor(_minimax_slopes(heads, layer, layers), dtype=torch.float32, device=device)
