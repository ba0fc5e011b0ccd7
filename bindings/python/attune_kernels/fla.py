"""flash-linear-attention's functions, computed by attune.

    from attune_kernels.fla import chunk_gla, fused_recurrent_simple_gla
or, for a program that imports them from fla:
    import attune_kernels.fla
    attune_kernels.fla.install()

Parameter lists, defaults, errors and results are those of fla 0.5.2: q, k [B, T, H, K], v [B, T, H, V],
gates as natural logarithms that are not yet summed, `(o, final_state or None)` with states
[N, H, K, V] in f32, or [N, H, V, K] with `state_v_first`. Gradients have their inputs' types. What
differs, on purpose:

* `g_gamma` gets its gradient where it requires one.
* `chunk_size` is checked and has no other effect: chunks are part of a tuned config.
* "chunk", "fused_chunk", "fused_recurrent" and "parallel" name algorithms of fla's. Here each of them
  is the same function, and attune picks what is fastest for the problem.
* The functions are no graph breaks under torch.compile.

Importing this module imports torch, and not fla; install() imports fla.
"""

from __future__ import annotations

import sys
import warnings
from typing import List, Optional, Tuple, Union

import torch
from torch import Tensor

from . import torch as _attune

__all__ = [
    "chunk_gla",
    "chunk_lightning_attn",
    "chunk_linear_attn",
    "chunk_retention",
    "chunk_simple_gla",
    "fused_chunk_gla",
    "fused_chunk_linear_attn",
    "fused_chunk_retention",
    "fused_chunk_simple_gla",
    "fused_recurrent_gla",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_linear_attn",
    "fused_recurrent_retention",
    "fused_recurrent_simple_gla",
    "install",
    "parallel_retention",
    "parallel_simple_gla",
]

_Result = Tuple[Tensor, Optional[Tensor]]


# --- what the functions share --------------------------------------------------------------------


def _check_packed(q: Tensor, cu_seqlens: Optional[Tensor], initial_state: Optional[Tensor]) -> None:
    if cu_seqlens is None:
        return
    if q.shape[0] != 1:
        raise ValueError(
            f"The batch size is expected to be 1 rather than {q.shape[0]} when using `cu_seqlens`. "
            f"Please flatten variable-length inputs before processing.")
    if initial_state is not None and initial_state.shape[0] != len(cu_seqlens) - 1:
        raise ValueError(
            f"The number of initial states is expected to be equal to the number of input sequences, "
            f"i.e., {len(cu_seqlens) - 1} rather than {initial_state.shape[0]}.")


def _check_head_first(kwargs: dict) -> None:
    if "head_first" in kwargs:
        raise DeprecationWarning("head_first has been removed. Inputs must be in `[B, T, H, ...]` format.")


def _check_chunk_size(kwargs: dict) -> None:
    chunk_size = kwargs.get("chunk_size")
    if chunk_size is not None and (chunk_size < 1 or chunk_size & (chunk_size - 1)):
        raise ValueError(f"`chunk_size` must be a power of 2, got {chunk_size}.")


def _renamed_state_v_first(state_v_first: bool, kwargs: dict) -> bool:
    """The keyword's old name still counts."""
    if "transpose_state_layout" not in kwargs:
        return state_v_first
    if state_v_first:
        raise ValueError("Cannot pass both `state_v_first` and the deprecated `transpose_state_layout`.")
    warnings.warn("`transpose_state_layout` is deprecated and renamed to `state_v_first`.", DeprecationWarning,
                  stacklevel=3)
    return bool(kwargs["transpose_state_layout"])


def _gate(gate: Optional[Tensor], q: Tensor) -> Optional[Tensor]:
    """Gates are f32 or of q's type; another type is made f32."""
    return gate if gate is None or gate.dtype in (q.dtype, torch.float32) else gate.float()


def _float(x: Optional[Tensor]) -> Optional[Tensor]:
    return None if x is None else x.float()


def _attend(q: Tensor, k: Tensor, v: Tensor, *, g: Optional[Tensor] = None, g_gamma: Optional[Tensor] = None,
            gk: Optional[Tensor] = None, gv: Optional[Tensor] = None, scale: Optional[float] = None,
            initial_state: Optional[Tensor] = None, output_final_state: bool = False, reverse: bool = False,
            state_v_first: bool = False, cu_seqlens: Optional[Tensor] = None,
            cu_seqlens_cpu: Optional[Tensor] = None) -> _Result:
    """The recurrence on tensors of any floating types; o has q's. Casts carry their gradients back."""
    tokens = q.shape[1]
    if cu_seqlens is not None:
        bounds = cu_seqlens_cpu if cu_seqlens_cpu is not None else cu_seqlens
        on_host = isinstance(bounds, Tensor) and bounds.is_cpu
        if on_host and not torch.compiler.is_compiling() and len(bounds) > 0:
            end = int(bounds[-1])
            if 0 <= end < tokens:  # padding behind the last sequence: its rows of o are zero
                q, k, v, g, gk, gv = (x if x is None else x[:, :end] for x in (q, k, v, g, gk, gv))
    o, state = _attune.recurrent_attention(
        q, k.to(q.dtype), v.to(q.dtype), g=_gate(g, q), g_gamma=_float(g_gamma), gk=_gate(gk, q), gv=_gate(gv, q),
        initial_state=_float(initial_state), cu_seqlens=cu_seqlens, cu_seqlens_host=cu_seqlens_cpu,
        scale=None if scale is None else float(scale), reverse=reverse, want_final_state=bool(output_final_state),
        state_v_first=bool(state_v_first))
    if o.shape[1] != tokens:
        o = torch.nn.functional.pad(o, (0, 0, 0, 0, 0, tokens - o.shape[1]))
    return o, state


def _retention_decay(q: Tensor) -> Tensor:
    """log(1 - 2^(-5 - h)) for each head h."""
    heads = torch.arange(q.shape[2], dtype=torch.float32, device=q.device)
    return torch.log1p(-torch.exp2(-5.0 - heads))


def _lightning_decay(q: Tensor, layer_idx: int, num_layers: int) -> Tensor:
    """-(8 / H) (1 - layer_idx / num_layers) h for each head h."""
    heads = torch.arange(q.shape[2], dtype=torch.float32, device=q.device)
    return -(8 / q.shape[2] * (1 - layer_idx / num_layers)) * heads


# --- GLA: one decay a key channel ----------------------------------------------------------------


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: Optional[int] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_cpu: Optional[Tensor] = None,
) -> _Result:
    """Gated linear attention; `g` [B, T, H, K]. o has v's type."""
    _check_packed(q, cu_seqlens, initial_state)
    if initial_state is not None:
        assert initial_state.dtype == torch.float32, "initial_state must be in float32."
    assert q.shape == k.shape == g.shape, "q, k, g must have the same shape."
    assert v.shape == (*q.shape[:3], v.shape[-1]), "v must be of shape (batch size, seq len, num of head, head dim)."
    o, state = _attend(q, k, v, gk=g, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                       state_v_first=state_v_first, cu_seqlens=cu_seqlens, cu_seqlens_cpu=cu_seqlens_cpu)
    return o.to(v.dtype), state


def fused_chunk_gla(**kwargs):
    """Removed in fla."""
    raise NotImplementedError("`fused_chunk_gla` is deprecated. Please use `chunk_gla` instead.")


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Optional[Tensor] = None,
    gv: Optional[Tensor] = None,
    scale: Optional[int] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """Gated linear attention; `gk` [B, T, H, K] and `gv` [B, T, H, V]."""
    state_v_first = _renamed_state_v_first(state_v_first, kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, gk=gk, gv=gv, scale=scale, initial_state=initial_state,
                   output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first,
                   cu_seqlens=cu_seqlens)


# --- simple GLA: one decay a head ------------------------------------------------------------------


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_cpu: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """Linear attention with a decay for each head: `g` [B, T, H], `g_gamma` [H]."""
    _check_head_first(kwargs)
    _check_chunk_size(kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g=g, g_gamma=g_gamma, scale=scale, initial_state=initial_state,
                   output_final_state=output_final_state, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
                   cu_seqlens_cpu=cu_seqlens_cpu)


def fused_chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Optional[Tensor] = None,
) -> _Result:
    """As chunk_simple_gla."""
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Optional[Tensor] = None,
    g_gamma: Optional[Tensor] = None,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """As chunk_simple_gla, also from the last token to the first."""
    state_v_first = _renamed_state_v_first(state_v_first, kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g=g, g_gamma=g_gamma, scale=scale, initial_state=initial_state,
                   output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first,
                   cu_seqlens=cu_seqlens)


def _scores(q: Tensor, k: Tensor, g: Optional[Tensor], scale: Optional[float]) -> Tensor:
    """scale * (q_t . k_s) * exp(sum of g over s+1..t), for s <= t: [B, H, T, T]."""
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bthk,bshk->bhts", q.float(), k.float()) * scale
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    if g is not None:
        sums = g.float().cumsum(1).transpose(1, 2)
        scores = scores * (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(later, 0).exp()
    return scores.masked_fill(later, 0)


def parallel_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Optional[Tensor] = None,
    scale: Optional[float] = None,
    output_attentions: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    cu_seqlens_cpu: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """(o, scores): scores [B, H, T, T] with `output_attentions`, computed by torch without a gradient."""
    _check_head_first(kwargs)
    _check_packed(q, cu_seqlens, None)
    if output_attentions:
        assert cu_seqlens is None, "output_attentions=True is not supported with variable-length sequences"
    o, _ = _attend(q, k, v, g=g, scale=scale, cu_seqlens=cu_seqlens, cu_seqlens_cpu=cu_seqlens_cpu)
    if not output_attentions:
        return o, None
    with torch.no_grad():
        return o, _scores(q, k, g, scale)


# --- lightning attention and retention: decays that follow from the head's number -------------------


def chunk_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """The decay of head h is -(8 / H) (1 - layer_idx / num_layers) h."""
    _check_head_first(kwargs)
    _check_chunk_size(kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g_gamma=_lightning_decay(q, layer_idx, num_layers), scale=scale,
                   initial_state=initial_state, output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def fused_recurrent_lightning_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    layer_idx: int,
    num_layers: int,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """As chunk_lightning_attn, also from the last token to the first."""
    _check_head_first(kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g_gamma=_lightning_decay(q, layer_idx, num_layers), scale=scale,
                   initial_state=initial_state, output_final_state=output_final_state, reverse=reverse,
                   cu_seqlens=cu_seqlens)


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """The decay of head h is log(1 - 2^(-5 - h))."""
    _check_head_first(kwargs)
    _check_chunk_size(kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g_gamma=_retention_decay(q), scale=scale, initial_state=initial_state,
                   output_final_state=output_final_state, cu_seqlens=cu_seqlens)


def fused_chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """As chunk_retention."""
    return chunk_retention(q, k, v, scale, initial_state, output_final_state, cu_seqlens, **kwargs)


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """As chunk_retention, also from the last token to the first."""
    state_v_first = _renamed_state_v_first(state_v_first, kwargs)
    _check_packed(q, cu_seqlens, initial_state)
    return _attend(q, k, v, g_gamma=_retention_decay(q), scale=scale, initial_state=initial_state,
                   output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first,
                   cu_seqlens=cu_seqlens)


def parallel_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    output_attentions: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs,
) -> _Result:
    """(o, scores), as parallel_simple_gla, with the decays of chunk_retention."""
    decay = _retention_decay(q).expand(q.shape[:3])
    return parallel_simple_gla(q, k, v, decay, scale, output_attentions, cu_seqlens, **kwargs)


# --- linear attention: no decay --------------------------------------------------------------------

_LinearState = Union[Tensor, Tuple[Optional[Tensor], Tensor], None]


def _running_keys(k: Tensor, z: Optional[Tensor], reverse: bool, cu_seqlens: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """(the sum of a sequence's keys up to each token, that over all of them), z included.

    z is [N, 1, H, K]. Packed sequences are summed in f64, since the sums before a sequence are
    subtracted from it. Tokens behind the last one go by it: their o is zero.
    """
    if cu_seqlens is None:
        keys = k.float()
        sums = keys.flip(1).cumsum(1).flip(1) if reverse else keys.cumsum(1)
        total = keys.sum(1, keepdim=True)
        return (sums, total) if z is None else (sums + z.float(), total + z.float())
    bounds = cu_seqlens.long()
    sequences = torch.searchsorted(bounds[1:], torch.arange(k.shape[1], device=k.device), right=True)
    sequences = sequences.clamp(max=bounds.shape[0] - 2)
    sums = torch.nn.functional.pad(k[0].double().cumsum(0), (0, 0, 0, 0, 1, 0))  # before each token, [T + 1, H, K]
    first, last = sums[bounds[:-1]], sums[bounds[1:]]
    each = (last if reverse else first).index_select(0, sequences)
    within = (each - sums[:-1] if reverse else sums[1:] - each).float()
    total = (last - first).float().unsqueeze(1)
    if z is not None:
        within = within + z.float().squeeze(1).index_select(0, sequences)
        total = total + z.float()
    return within.unsqueeze(0), total


def _linear_attention(q, k, v, scale, initial_state, output_final_state, reverse, normalize, cu_seqlens):
    z = None
    if normalize and isinstance(initial_state, tuple):
        initial_state, z = initial_state
    _check_packed(q, cu_seqlens, initial_state)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, state = _attend(q, k, v, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                       reverse=reverse, cu_seqlens=cu_seqlens)
    if not normalize:
        return o, state
    sums, total = _running_keys(k, z, reverse, cu_seqlens)
    weight = (q.float() * scale * sums).sum(-1, keepdim=True) + 1e-10
    return (o.float() / weight).to(o.dtype), (state, total.to(k.dtype))


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: _LinearState = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Optional[Tensor] = None,
):
    """Linear attention. With `normalize`, o is divided by scale * q_t . (k_1 + .. + k_t) + 1e-10, and
    states are pairs: the second is that sum of keys, [N, 1, H, K]."""
    return _linear_attention(q, k, v, scale, initial_state, output_final_state, False, normalize, cu_seqlens)


def fused_chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: _LinearState = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Optional[Tensor] = None,
):
    """As chunk_linear_attn."""
    return _linear_attention(q, k, v, scale, initial_state, output_final_state, False, normalize, cu_seqlens)


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: _LinearState = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Optional[Tensor] = None,
):
    """As chunk_linear_attn, also from the last token to the first; not normalized unless asked for."""
    return _linear_attention(q, k, v, scale, initial_state, output_final_state, reverse, normalize, cu_seqlens)


# --- in fla's place --------------------------------------------------------------------------------


def install() -> List[str]:
    """Puts these functions where fla's own are, in every module of fla that is imported, and in
    `fla.ops` and `fla.layers`, which it imports. Returns the names that were replaced, sorted.

    Call it before building models; a module of fla that is imported later takes its functions from
    `fla.ops` and so gets these. Calling it again replaces what has been imported since. Raises
    ModuleNotFoundError where fla is not installed.
    """
    import importlib

    for name in ("fla.ops", "fla.layers"):
        importlib.import_module(name)
    replaced = []
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] != "fla":
            continue
        for name in __all__:
            theirs = getattr(module, name, None)
            if name != "install" and callable(theirs) and theirs is not globals()[name]:
                setattr(module, name, globals()[name])
                replaced.append(f"{module_name}.{name}")
    return sorted(replaced)
