"""Gated linear attention: a decay for each key channel."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ._calls import Result, attend, check_packed, renamed_state_v_first


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
) -> Result:
    """Gated linear attention; `g` [B, T, H, K]. o has v's type."""
    check_packed(q, cu_seqlens, initial_state)
    if initial_state is not None:
        assert initial_state.dtype == torch.float32, "initial_state must be in float32."
    assert q.shape == k.shape == g.shape, "q, k, g must have the same shape."
    assert v.shape == (*q.shape[:3], v.shape[-1]), "v must be of shape (batch size, seq len, num of head, head dim)."
    o, state = attend(q, k, v, gk=g, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
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
) -> Result:
    """Gated linear attention; `gk` [B, T, H, K] and `gv` [B, T, H, V]."""
    state_v_first = renamed_state_v_first(state_v_first, kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, gk=gk, gv=gv, scale=scale, initial_state=initial_state,
                  output_final_state=output_final_state, reverse=reverse, state_v_first=state_v_first,
                  cu_seqlens=cu_seqlens)
