"""Simple GLA: a decay for each head."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ._calls import Result, attend, check_chunk_size, check_head_first, check_packed, renamed_state_v_first


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
) -> Result:
    """Linear attention with a decay for each head: `g` [B, T, H], `g_gamma` [H]."""
    check_head_first(kwargs)
    check_chunk_size(kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g=g, g_gamma=g_gamma, scale=scale, initial_state=initial_state,
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
) -> Result:
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
) -> Result:
    """As chunk_simple_gla, also from the last token to the first."""
    state_v_first = renamed_state_v_first(state_v_first, kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g=g, g_gamma=g_gamma, scale=scale, initial_state=initial_state,
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
) -> Result:
    """(o, scores): scores [B, H, T, T] with `output_attentions`, computed by torch without a gradient."""
    check_head_first(kwargs)
    check_packed(q, cu_seqlens, None)
    if output_attentions:
        assert cu_seqlens is None, "output_attentions=True is not supported with variable-length sequences"
    o, _ = attend(q, k, v, g=g, scale=scale, cu_seqlens=cu_seqlens, cu_seqlens_cpu=cu_seqlens_cpu)
    if not output_attentions:
        return o, None
    with torch.no_grad():
        return o, _scores(q, k, g, scale)
