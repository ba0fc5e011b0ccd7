"""Lightning attention and retention: decays that follow from the head's number."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from ._calls import Result, attend, check_chunk_size, check_head_first, check_packed, renamed_state_v_first
from ._simple_gla import parallel_simple_gla


def _retention_decay(q: Tensor) -> Tensor:
    """log(1 - 2^(-5 - h)) for each head h."""
    heads = torch.arange(q.shape[2], dtype=torch.float32, device=q.device)
    return torch.log1p(-torch.exp2(-5.0 - heads))


def _lightning_decay(q: Tensor, layer_idx: int, num_layers: int) -> Tensor:
    """-(8 / H) (1 - layer_idx / num_layers) h for each head h."""
    heads = torch.arange(q.shape[2], dtype=torch.float32, device=q.device)
    return -(8 / q.shape[2] * (1 - layer_idx / num_layers)) * heads


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
) -> Result:
    """The decay of head h is -(8 / H) (1 - layer_idx / num_layers) h."""
    check_head_first(kwargs)
    check_chunk_size(kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g_gamma=_lightning_decay(q, layer_idx, num_layers), scale=scale,
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
) -> Result:
    """As chunk_lightning_attn, also from the last token to the first."""
    check_head_first(kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g_gamma=_lightning_decay(q, layer_idx, num_layers), scale=scale,
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
) -> Result:
    """The decay of head h is log(1 - 2^(-5 - h))."""
    check_head_first(kwargs)
    check_chunk_size(kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g_gamma=_retention_decay(q), scale=scale, initial_state=initial_state,
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
) -> Result:
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
) -> Result:
    """As chunk_retention, also from the last token to the first."""
    state_v_first = renamed_state_v_first(state_v_first, kwargs)
    check_packed(q, cu_seqlens, initial_state)
    return attend(q, k, v, g_gamma=_retention_decay(q), scale=scale, initial_state=initial_state,
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
) -> Result:
    """(o, scores), as parallel_simple_gla, with the decays of chunk_retention."""
    decay = _retention_decay(q).expand(q.shape[:3])
    return parallel_simple_gla(q, k, v, decay, scale, output_attentions, cu_seqlens, **kwargs)
