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

from typing import Optional, Tuple

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead
from torch.autograd.graph import increment_version

from ._core import minimax_slopes as _minimax_slopes
from ._layers import integer, lightning_layer
from ._torch_autograd import Attention, AttentionOutsideOfTransforms, needs_gradient, record_attention
from ._torch_operators import (DECODE_NAMES, DECODE_OPTIONS, NAMES, OPTIONS, POOL_NAMES, POOL_OPTIONS, call_operator,
                               decode_operator, forward_operator, pool_operator)

__all__ = [
    "gated_linear_attention",
    "lightning_attention",
    "lightning_decode",
    "minimax_slopes",
    "recurrent_attention",
    "recurrent_decode",
]


def _decoded(function, tensors, state_seed, options):
    if needs_gradient(function, DECODE_NAMES, tensors):
        raise ValueError(f"{function}: decoding has no gradient; call it under torch.no_grad()")
    options = (_seed(function, state_seed), *options)
    return _update(function, decode_operator, DECODE_NAMES, tensors, options, DECODE_OPTIONS)


def _update(function, operator, names, tensors, options, in_schema):
    """call_operator() of one that writes to its fourth tensor: autograd is told, as torch tells it of its own operators
    alone, so that a backward pass that would need what was there fails."""
    o = call_operator(function, operator, names, tensors, options, in_schema)
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
        if needs_gradient(function, POOL_NAMES, tensors):
            raise ValueError(f"{function}: states: calls on a pool have no gradient; make them under torch.no_grad()")
        if initial_state is not None or want_final_state:
            raise ValueError(f"{function}: states: a pool has the initial and the final states; no initial_state or "
                             "want_final_state goes with it")
        options = (snapshot_every or 0, _seed(function, state_seed), *decay, *how)
        return _update(function, pool_operator, POOL_NAMES, tensors, options, POOL_OPTIONS), None
    if not (initial_slots is final_slots is snapshot_every is snapshot_slots is state_seed is None):
        _refuse_without_states(function, initial_slots=initial_slots, final_slots=final_slots,
                               snapshot_every=snapshot_every, snapshot_slots=snapshot_slots, state_seed=state_seed)
    tensors = (q, k, v, g, g_gamma, gk, gv, slopes, initial_state, cu_seqlens, cu_seqlens_host)
    if not needs_gradient(function, NAMES, tensors):
        operator = forward_operator
    elif torch._C._are_functorch_transforms_active():
        operator = Attention.apply
    elif torch.compiler.is_compiling():
        operator = AttentionOutsideOfTransforms.apply
    else:  # what a transform has left behind is unwrapped, as by apply(): it would lose its gradient
        tensors = tuple([x if x is None else unwrap_if_dead(x) for x in tensors])
        operator = record_attention
    o, state = call_operator(function, operator, NAMES, tensors, (*decay, want_final_state, *how), OPTIONS)
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
