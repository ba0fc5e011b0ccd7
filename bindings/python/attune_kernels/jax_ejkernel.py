"""ejkernel's recurrent attention, by attune: the same names, arguments and results.

    from attune_kernels.jax_ejkernel import recurrent, recurrent_gla, lightning_attn     # its kernels
    from attune_kernels.jax_ejkernel import recurrent_attention, gla_attention, lightning_attention

The kernels return (o, final_state). The functions of its modules take arrays by position and return o,
or both with `return_state`; their `platform` and `cfg` choose among ejkernel's implementations, of which
there is one here: they are taken and not looked at.

As there, a gate `g` with as many dimensions as the queries is one of each key channel, and one with a
dimension less is one of each head. Packed sequences (cu_seqlens) come as [T, H, D] or [1, T, H, D], and
results as the queries. `initial_state` is [N, H, K, V] or [1, N, H, K, V], of any type; final states are
[N, H, K, V] in float32. `g_gamma` is [H], [1, H] or [N, H].

Otherwise than there: everything works inside of jit, gradients reach every gate, g_gamma and the initial
state, o of packed sequences has the queries' type, and the scale without one is K^-1/2 in gradients too.
"""

from __future__ import annotations

import jax.numpy as jnp

from . import jax as _attune

__all__ = [
    "gla_attention",
    "lightning_attention",
    "lightning_attn",
    "recurrent",
    "recurrent_attention",
    "recurrent_gla",
]


def _state(function, query, initial_state, cu_seqlens):
    """The initial state as attune has it. ValueError as ejkernel's."""
    if cu_seqlens is not None and query.ndim == 4 and query.shape[0] != 1:
        raise ValueError(f"{function}: the batch size is expected to be 1 with cu_seqlens, not {query.shape[0]}: "
                         "flatten variable-length inputs before")
    if initial_state is None:
        return None
    if initial_state.ndim == 5 and initial_state.shape[0] == 1:
        initial_state = initial_state[0]
    sequences = query.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if initial_state.shape[0] != sequences:
        raise ValueError(f"{function}: the number of initial states is expected to be that of sequences, {sequences}, "
                         f"not {initial_state.shape[0]}")
    return initial_state.astype(jnp.float32)


def _gates(function, query, g, gk, g_gamma):
    """(g, gk, g_gamma) as attune has them."""
    if g is not None and g.ndim == query.ndim:
        if gk is not None:
            raise ValueError(f"{function}: g has shape {g.shape}, a gate of each key channel, and gk is given too")
        g, gk = None, g
    if g_gamma is not None:
        g_gamma = jnp.asarray(g_gamma, jnp.float32)
        if g_gamma.ndim == 2 and g_gamma.shape[0] == 1:
            g_gamma = g_gamma[0]
    return g, gk, g_gamma


def recurrent(query, key, value, g=None, g_gamma=None, gk=None, gv=None, softmax_scale=None, initial_state=None,
              reverse=False, cu_seqlens=None):
    g, gk, g_gamma = _gates("recurrent", query, g, gk, g_gamma)
    return _attune.recurrent_attention(
        query, key, value, g=g, g_gamma=g_gamma, gk=gk, gv=gv,
        initial_state=_state("recurrent", query, initial_state, cu_seqlens), cu_seqlens=cu_seqlens,
        scale=softmax_scale, reverse=reverse, want_final_state=True)


def recurrent_gla(query, key, value, g=None, g_gamma=None, softmax_scale=None, initial_state=None, reverse=False,
                  cu_seqlens=None):
    g, gk, g_gamma = _gates("recurrent_gla", query, g, None, g_gamma)
    return _attune.recurrent_attention(
        query, key, value, g=g, g_gamma=g_gamma, gk=gk,
        initial_state=_state("recurrent_gla", query, initial_state, cu_seqlens), cu_seqlens=cu_seqlens,
        scale=softmax_scale, reverse=reverse, want_final_state=True)


def lightning_attn(query, key, value, layer_idx, num_layers, softmax_scale=None, initial_state=None, reverse=False,
                   cu_seqlens=None):
    return _attune.lightning_attention(
        query, key, value, layer_idx=layer_idx, num_layers=num_layers,
        initial_state=_state("lightning_attn", query, initial_state, cu_seqlens), cu_seqlens=cu_seqlens,
        scale=softmax_scale, reverse=reverse, want_final_state=True)


def recurrent_attention(query, key, value, g=None, g_gamma=None, gk=None, gv=None, initial_state=None, cu_seqlens=None,
                        /, *, softmax_scale=None, reverse=False, return_state=False, platform=None, cfg=None):
    results = recurrent(query, key, value, g, g_gamma, gk, gv, softmax_scale, initial_state, reverse, cu_seqlens)
    return results if return_state else results[0]


def gla_attention(query, key, value, g=None, g_gamma=None, initial_state=None, cu_seqlens=None, /, *,
                  softmax_scale=None, reverse=False, return_state=False, platform=None, cfg=None):
    results = recurrent_gla(query, key, value, g, g_gamma, softmax_scale, initial_state, reverse, cu_seqlens)
    return results if return_state else results[0]


def lightning_attention(query, key, value, initial_state=None, cu_seqlens=None, /, *, layer_idx, num_layers,
                        softmax_scale=None, reverse=False, return_state=False, platform=None, cfg=None):
    results = lightning_attn(query, key, value, layer_idx, num_layers, softmax_scale, initial_state, reverse,
                             cu_seqlens)
    return results if return_state else results[0]
