"""vLLM's linear attention of lightning layers (MiniMax, Bailing), computed by attune.

    ATTUNE_VLLM=1 vllm serve ...          # where attune-kernels is installed: a plugin of vLLM
or, in a program, before a model is loaded:
    import attune_kernels.vllm
    attune_kernels.vllm.install()

What replaces vLLM's functions of the same names and parameters:

* `linear_attention_prefill_and_mix`: prompts and decoding rows are one packed call on the pool of states,
  where vLLM makes one a prompt, with three copies each. It waits for nothing on the device.
* `linear_attention_decode`: one call.
* `clear_linear_attention_cache_for_new_sequences`: nothing. New sequences start from zero in the call above.

For programs that call them, `lightning_attention` and `linear_decode_forward_triton` are those of vLLM's
`lightning_attn`. None of these scales q, as vLLM's do not. What differs, on purpose:

* The recurrence is kept across the edges of blocks, where vLLM's prefill is a step of decay off: prompts
  agree with decoding.
* A row of decoding whose slot is negative is zero, where vLLM leaves it unwritten.
* `block_size` and `BLOCK_SIZE` have no effect but on the shape of what lightning_attention returns: tiles are
  part of a tuned config.

Pools have the type of the model or f32; those of 16 bits are rounded to nearest. A device that has no kernels
for pools raises RuntimeError, with their reasons. Nothing is tuned while serving, unless ATTUNE_POLICY says so.

Importing this module imports torch, and not vLLM; install() imports vLLM.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor

from . import torch as _attune

__all__ = [
    "clear_linear_attention_cache_for_new_sequences",
    "install",
    "lightning_attention",
    "linear_attention_decode",
    "linear_attention_prefill_and_mix",
    "linear_decode_forward_triton",
    "register",
]


def _slopes(slope_rate: Tensor) -> Tensor:
    """[H] in f32, from any shape of H elements."""
    return slope_rate.reshape(-1).float()


# --- the functions of layers: tokens of all sequences one behind the other, [tokens, H, D] -----------------


def _starts_from_zero(attn_metadata, first: int, bounds: Tensor) -> Tensor:
    """Which sequences have no token before those of this call; `first` is the number of the first one."""
    lengths = bounds[1:] - bounds[:-1]
    return attn_metadata.seq_lens[first:first + lengths.shape[0]].to(bounds.device) == lengths


def linear_attention_prefill_and_mix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_cache: Tensor,
    state_indices_tensor: Tensor,
    attn_metadata,
    slope_rate: Tensor,
    block_size: int,
    decode_fn: Callable[..., Tensor],
    prefix_fn: Callable[..., Tensor],
    layer_idx: Optional[int] = None,
) -> Tensor:
    """The outputs [tokens, H * D] of a batch with prompts; kv_cache [slots, H, D, D] is updated.

    Decoding rows come first, as in vLLM's batches. Those of one token each are part of the packed call;
    where rows have drafted tokens, with slots of their own, `decode_fn` computes them. `prefix_fn` is not
    called.
    """
    decodes, decode_tokens = attn_metadata.num_decodes, attn_metadata.num_decode_tokens
    prefills = attn_metadata.num_prefills
    if decodes + prefills == 0:
        return q.new_empty((0, q.shape[1] * q.shape[2]))
    prefill_slots = getattr(attn_metadata, "state_indices_tensor_p", None)
    apart = prefill_slots is not None or state_indices_tensor.dim() != 1 or decode_tokens != decodes
    first, first_token = (decodes, decode_tokens) if apart else (0, 0)
    if prefill_slots is None:
        if state_indices_tensor.dim() != 1:
            raise ValueError("linear_attention_prefill_and_mix: state_indices_tensor has "
                             f"{state_indices_tensor.dim()} dimensions, and the metadata no state_indices_tensor_p")
        prefill_slots = state_indices_tensor[first:]
    bounds = attn_metadata.query_start_loc[first:decodes + prefills + 1].to(q.device)
    slots = prefill_slots[:bounds.shape[0] - 1].to(q.device)
    is_new = _starts_from_zero(attn_metadata, first, bounds)
    end = decode_tokens + attn_metadata.num_prefill_tokens
    o, _ = _attune.lightning_attention(
        *(x[first_token:end].unsqueeze(0) for x in (q, k, v)), slopes=_slopes(slope_rate), scale=1.0,
        cu_seqlens=bounds - first_token, states=kv_cache, initial_slots=slots.masked_fill(is_new, -1),
        final_slots=slots)
    hidden = o.flatten(2).squeeze(0)
    if not apart or decode_tokens == 0:
        return hidden
    return torch.cat((decode_fn(q, k, v, kv_cache, state_indices_tensor, attn_metadata), hidden))


def linear_attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_cache: Tensor,
    slope_rate: Tensor,
    state_indices_tensor: Tensor,
    q_start: int = 0,
    q_end: Optional[int] = None,
    slot_start: int = 0,
    slot_end: Optional[int] = None,
    block_size: int = 32,
) -> Tensor:
    """The outputs [rows, H * D] of the tokens q_start to q_end, one a row; kv_cache is updated."""
    o = _attune.lightning_decode(*(x[q_start:q_end] for x in (q, k, v)), kv_cache, slopes=_slopes(slope_rate),
                                 slot_indices=state_indices_tensor[slot_start:slot_end], scale=1.0)
    return o.flatten(1)


def clear_linear_attention_cache_for_new_sequences(
    kv_cache: Tensor,
    state_indices_tensor: Tensor,
    attn_metadata,
) -> None:
    """Does nothing: linear_attention_prefill_and_mix starts new sequences from zero."""


# --- the functions below them: [B, H, T, D] -----------------------------------------------------------------


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ed: Tensor,
    block_size: int = 256,
    kv_history: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """(o [B, H, T, E], kv [B, H, blocks + 1, D, E]): states in f32 before each block of `block_size` tokens, and
    the final one.

    q, k [B, H, T, D], v [B, H, T, E]; `ed` has H slopes; kv_history [B, H, D, E] is the state at the start,
    zero where it is not given, and is not written to. One call a block, for the sake of the states.
    """
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    slopes = _slopes(ed)
    if kv_history is None:
        kv_history = q.new_zeros((*q.shape[:2], q.shape[3], v.shape[3]), dtype=torch.float32)
    states, outputs = [kv_history.float()], []
    for begin in range(0, q.shape[2], block_size):
        o, state = _attune.lightning_attention(*(x[:, begin:begin + block_size] for x in heads_first), slopes=slopes,
                                               scale=1.0, initial_state=states[-1], want_final_state=True)
        outputs.append(o)
        states.append(state)
    o = torch.cat(outputs, 1) if outputs else heads_first[2].new_empty((q.shape[0], 0, q.shape[1], v.shape[3]))
    return o.transpose(1, 2), torch.stack(states, 2)


def linear_decode_forward_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_caches: Tensor,
    slope_rate: Tensor,
    slot_idx: Tensor,
    BLOCK_SIZE: int = 32,
) -> Tensor:
    """The outputs [B, H * D] of one token a row; q, k, v [B, H, 1, D]. kv_caches [slots, H, D, D] is updated."""
    o = _attune.lightning_decode(*(x.squeeze(2) for x in (q, k, v)), kv_caches, slopes=_slopes(slope_rate),
                                 slot_indices=slot_idx, scale=1.0)
    return o.flatten(1)


# --- in vLLM's place ------------------------------------------------------------------------------------------

_REPLACED = ("clear_linear_attention_cache_for_new_sequences", "linear_attention_decode",
             "linear_attention_prefill_and_mix")
# Where versions of vLLM have them; the second imports them by name.
_MODULES = ("vllm.model_executor.layers.mamba.linear.minimax_linear_attn",
            "vllm.model_executor.layers.mamba.linear.bailing_linear_attn",
            "vllm.model_executor.layers.mamba.linear_attn")


def install() -> List[str]:
    """Puts the functions of layers where vLLM's own are, in every module that has them. Returns the names
    that were replaced, sorted; calling it again replaces what has been imported since.

    Raises ModuleNotFoundError where vLLM is not installed, RuntimeError where it has none of them.
    """
    import importlib

    importlib.import_module("vllm")
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(error.name or ""):
                raise
    replaced, found = [], False
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] != "vllm":
            continue
        for name in _REPLACED:
            theirs = getattr(module, name, None)
            if not callable(theirs):
                continue
            found = True
            if theirs is not globals()[name]:
                setattr(module, name, globals()[name])
                replaced.append(f"{module_name}.{name}")
    if not found:
        raise RuntimeError("attune_kernels.vllm: this version of vLLM has no functions of these names: "
                           + ", ".join(_REPLACED))
    return sorted(replaced)


def register() -> None:
    """The plugin (entry point vllm.general_plugins), which vLLM calls in each of its processes: install(), where
    the environment variable ATTUNE_VLLM is 1. Installing a package should not change what another one computes."""
    if os.environ.get("ATTUNE_VLLM") == "1":
        install()
