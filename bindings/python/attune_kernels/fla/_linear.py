"""Linear attention without decay."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import torch
from torch import Tensor

from ._calls import attend, check_packed

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
    check_packed(q, cu_seqlens, initial_state)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, state = attend(q, k, v, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
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
