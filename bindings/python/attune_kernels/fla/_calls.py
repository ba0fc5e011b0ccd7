"""What the functions of attune_kernels.fla share: fla's checks, and the call of attune."""

from __future__ import annotations

import warnings
from typing import Optional, Tuple

import torch
from torch import Tensor

from .. import torch as _attune

Result = Tuple[Tensor, Optional[Tensor]]


def check_packed(q: Tensor, cu_seqlens: Optional[Tensor], initial_state: Optional[Tensor]) -> None:
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


def check_head_first(kwargs: dict) -> None:
    if "head_first" in kwargs:
        raise DeprecationWarning("head_first has been removed. Inputs must be in `[B, T, H, ...]` format.")


def check_chunk_size(kwargs: dict) -> None:
    chunk_size = kwargs.get("chunk_size")
    if chunk_size is not None and (chunk_size < 1 or chunk_size & (chunk_size - 1)):
        raise ValueError(f"`chunk_size` must be a power of 2, got {chunk_size}.")


def renamed_state_v_first(state_v_first: bool, kwargs: dict) -> bool:
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


def attend(q: Tensor, k: Tensor, v: Tensor, *, g: Optional[Tensor] = None, g_gamma: Optional[Tensor] = None,
           gk: Optional[Tensor] = None, gv: Optional[Tensor] = None, scale: Optional[float] = None,
           initial_state: Optional[Tensor] = None, output_final_state: bool = False, reverse: bool = False,
           state_v_first: bool = False, cu_seqlens: Optional[Tensor] = None,
           cu_seqlens_cpu: Optional[Tensor] = None) -> Result:
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
