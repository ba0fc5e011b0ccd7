"""attune for JAX: functions that jit, grad, vmap and shard_map know.

    import attune_kernels.jax as aj
    o, state = aj.gated_linear_attention(q, k, v, gk, want_final_state=True)
    gradients = jax.grad(lambda q: aj.gated_linear_attention(q, k, v, gk)[0].sum())(q)

Shapes, types and meaning are those of `attune_kernels` (see there); arrays are JAX's. Gradients reach
q, k, v, every gate, g_gamma, slopes and initial_state, each in its input's type; nothing of the forward
pass is saved but its inputs. The gradient of a gradient is not defined. vmap folds its axis into B;
with cu_seqlens, where B is 1, and with states in a pool it makes one call after the other.

The decoding functions, and the others with a pool of `states`, return the new states beside o. Under
`jax.jit(..., donate_argnums=...)` states that are donated are updated where they lie; others are copied
first. States of 16 bits are rounded to nearest.

Options (scale, flags, layers, platform, config) are Python values: a function that is jitted has them in a closure
or among its `static_argnames`.

Sharding: B and H (with Hkv) may be split, nothing else. Under plain jit with sharded arrays XLA gathers
them first; `jax.shard_map` runs the call on each device's part:

    call = jax.shard_map(lambda q, k, v, g: aj.recurrent_attention(q, k, v, g=g)[0], mesh=mesh,
                         in_specs=(P("data", None, "heads"),) * 4, out_specs=P("data", None, "heads"))

Scratch memory comes from XLA: an array beside the results, whose size depends on shapes, types, kind of
device and options alone, never on what is tuned, so that all hosts of a program compile the same one.
It is at most the larger of 64 MiB, the call's own arrays, and what the untuned choice needs; what is
tuned to need more is passed over.

`jax.export` takes calls whose sizes are numbers, with `disabled_checks` of their names, as in
`[jax.export.DisabledSafetyCheck.custom_call("attune_forward")]` (`attune_backward`, `attune_decode`, `attune_pool`); a
program that loads one imports this module first.

Choices are looked up when a program runs: `attune_kernels.policy()` says what happens to unknown
problems, for all threads. `attune_kernels.scope()` does not reach into XLA's threads.

Importing this module imports jax.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp

from . import _core
from . import _jax_calls as calls
from ._layers import integer, lightning_layer

__all__ = [
    "gated_linear_attention",
    "lightning_attention",
    "lightning_decode",
    "minimax_slopes",
    "recurrent_attention",
    "recurrent_decode",
]


def _array(function, name, x):
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:  # JAX's own does not say of what
        raise TypeError(f"{function}: {name}: an array is expected, not {type(x).__name__}") from error


def _arrays(function, required, optional):
    """The arrays that are given, by name. TypeError for what is none, ValueError for types that no call takes."""
    given = required | {name: x for name, x in optional.items() if x is not None}
    named = {name: _array(function, name, x) for name, x in given.items()}
    for name, array in named.items():
        if str(array.dtype) not in calls.DLPACK_TYPES:
            raise ValueError(f"{function}: {name}: dtype {array.dtype}, expected float32, float16 or bfloat16, or of "
                             "indices int32 or int64")
        if array.ndim > 4:
            raise ValueError(f"{function}: {name} has {array.ndim} dimensions, at most 4 are expected")
    q, k, v = named["q"], named["k"], named["v"]
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != q.ndim or array.ndim < 3:
            raise ValueError(f"{function}: {name} has shape {array.shape}, [B, T, heads, channels] is expected, or "
                             "[rows, heads, channels]")
    return named


class _Options(NamedTuple):
    """Flags of a call."""

    reverse: bool = False
    want_final_state: bool = False
    state_v_first: bool = False
    allow_tf32: bool = False

    def bits(self):
        flags = (calls.REVERSE, calls.WANT_FINAL_STATE, calls.STATE_V_FIRST, calls.ALLOW_TF32)
        return sum(flag for flag, is_set in zip(flags, self) if is_set)


def _scale(function, scale, q):
    if scale is None:
        return q.shape[-1] ** -0.5
    try:
        return float(scale)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{function}: scale: a number is expected that is known when the call is traced, not "
                        f"{type(scale).__name__}") from error


def _call(function, order, named, options, scale, layer, snapshot_every, platform, config):
    """What of a call is no array, and its arrays in order."""
    for name, text in (("platform", platform), ("config", config)):
        if not isinstance(text, str):
            raise TypeError(f"{function}: {name}: a text is expected, not {type(text).__name__}")
    names = tuple(name for name in order if name in named)
    call = calls.Call(names, options.bits(), _scale(function, scale, named["q"]), *layer,
                      integer(function, "snapshot_every", snapshot_every), platform, config)
    return call, [named[name] for name in names]


_POOL_ORDER = ("q", "k", "v", "states", "g", "g_gamma", "gk", "gv", "slopes", "cu_seqlens", "initial_slots",
               "final_slots", "snapshot_slots")


def _attention(function, required, optional, pool, layer, scale, options, platform, config):
    """`pool`: states and the like by name, snapshot_every included."""
    pool = {name: x for name, x in pool.items() if x is not None}
    snapshot_every = pool.pop("snapshot_every", 0)
    named = _arrays(function, required, {**optional, **pool})
    if "cu_seqlens" not in named and named["q"].ndim != 4:
        raise ValueError(f"{function}: q has shape {named['q'].shape}, [B, T, H, K] is expected without cu_seqlens")
    if "states" in pool:
        if "initial_state" in named or options.want_final_state:
            raise ValueError(f"{function}: states: a pool has the initial and the final states; no initial_state or "
                             "want_final_state goes with it")
        call, arrays = _call(function, _POOL_ORDER, named, options, scale, layer, snapshot_every, platform, config)
        return calls.update(calls.POOL, call, *calls.vary_alike(arrays))
    if pool or snapshot_every:
        raise ValueError(f"{function}: {next(iter(pool), 'snapshot_every')} is given, but no states")
    call, arrays = _call(function, calls.ORDER, named, options, scale, layer, 0, platform, config)
    results = calls.differentiable(call)(*calls.vary_alike(arrays))
    return results[0], results[1] if call.wants(calls.WANT_FINAL_STATE) else None


def recurrent_attention(
    q,
    k,
    v,
    *,
    g=None,
    g_gamma=None,
    gk=None,
    gv=None,
    initial_state=None,
    states=None,
    initial_slots=None,
    final_slots=None,
    snapshot_every: Optional[int] = None,
    snapshot_slots=None,
    cu_seqlens=None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[jax.Array, Optional[jax.Array]]:
    """Gated recurrent (linear) attention: (o, final_state), the latter None unless wanted.

    As `attune_kernels.recurrent_attention`, where shapes and types are described. With
    `state_v_first` the states in and out are [N, H, V, K]. With a pool, `states`, it is (o, the pool as it
    is after the call), as for decoding; that has no gradient.
    """
    return _attention("recurrent_attention", {"q": q, "k": k, "v": v},
                      {"g": g, "g_gamma": g_gamma, "gk": gk, "gv": gv, "initial_state": initial_state,
                       "cu_seqlens": cu_seqlens},
                      {"states": states, "initial_slots": initial_slots, "final_slots": final_slots,
                       "snapshot_every": snapshot_every, "snapshot_slots": snapshot_slots}, (0, 0), scale,
                      _Options(reverse, want_final_state, state_v_first, allow_tf32), platform, config)


def gated_linear_attention(
    q,
    k,
    v,
    gk,
    *,
    g_gamma=None,
    initial_state=None,
    states=None,
    initial_slots=None,
    final_slots=None,
    snapshot_every: Optional[int] = None,
    snapshot_slots=None,
    cu_seqlens=None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[jax.Array, Optional[jax.Array]]:
    """Gated linear attention (GLA, arXiv:2312.06635): a decay `gk` [B, T, H, K] for each key channel."""
    return _attention("gated_linear_attention", {"q": q, "k": k, "v": v, "gk": gk},
                      {"g_gamma": g_gamma, "initial_state": initial_state, "cu_seqlens": cu_seqlens},
                      {"states": states, "initial_slots": initial_slots, "final_slots": final_slots,
                       "snapshot_every": snapshot_every, "snapshot_slots": snapshot_slots}, (0, 0), scale,
                      _Options(reverse, want_final_state, state_v_first, allow_tf32), platform, config)


def lightning_attention(
    q,
    k,
    v,
    *,
    layer_idx: Optional[int] = None,
    num_layers: Optional[int] = None,
    slopes=None,
    g_gamma=None,
    initial_state=None,
    states=None,
    initial_slots=None,
    final_slots=None,
    snapshot_every: Optional[int] = None,
    snapshot_slots=None,
    cu_seqlens=None,
    scale: Optional[float] = None,
    reverse: bool = False,
    want_final_state: bool = False,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[jax.Array, Optional[jax.Array]]:
    """Lightning attention (arXiv:2401.04658): a decay for each head, constant in time.

    It comes from exactly one of `layer_idx` with `num_layers`, `slopes` [H] (the decay is -slopes) and
    `g_gamma` [H] or [N, H].
    """
    layer = lightning_layer("lightning_attention", layer_idx, num_layers, slopes, g_gamma)
    return _attention("lightning_attention", {"q": q, "k": k, "v": v},
                      {"g_gamma": g_gamma, "slopes": slopes, "initial_state": initial_state, "cu_seqlens": cu_seqlens},
                      {"states": states, "initial_slots": initial_slots, "final_slots": final_slots,
                       "snapshot_every": snapshot_every, "snapshot_slots": snapshot_slots}, layer, scale,
                      _Options(reverse, want_final_state, state_v_first, allow_tf32), platform, config)


_DECODE_ORDER = ("q", "k", "v", "state", "g", "g_gamma", "gk", "gv", "slopes", "slot_indices", "kept_slots",
                 "accepted", "committed_k", "committed_v", "committed_g", "committed_gk", "committed_gv",
                 "committed_accepted")


def _decode(function, required, optional, layer, scale, options, platform, config):
    named = _arrays(function, required, optional)
    call, arrays = _call(function, _DECODE_ORDER, named, options, scale, layer, 0, platform, config)
    return calls.update(calls.DECODE, call, *arrays)


def recurrent_decode(
    q,
    k,
    v,
    state,
    *,
    g=None,
    g_gamma=None,
    gk=None,
    gv=None,
    slot_indices=None,
    kept_slots=None,
    accepted=None,
    committed_k=None,
    committed_v=None,
    committed_g=None,
    committed_gk=None,
    committed_gv=None,
    committed_accepted=None,
    scale: Optional[float] = None,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[jax.Array, jax.Array]:
    """One token for each row, or a few: (o, the pool `state` [S, H, K, V] as it is after them).

    As `attune_kernels.recurrent_decode`, where shapes and types are described. No gradient.
    """
    return _decode("recurrent_decode", {"q": q, "k": k, "v": v, "state": state},
                   {"g": g, "g_gamma": g_gamma, "gk": gk, "gv": gv, "slot_indices": slot_indices,
                    "kept_slots": kept_slots, "accepted": accepted, "committed_k": committed_k,
                    "committed_v": committed_v, "committed_g": committed_g, "committed_gk": committed_gk,
                    "committed_gv": committed_gv, "committed_accepted": committed_accepted}, (0, 0), scale,
                   _Options(state_v_first=state_v_first, allow_tf32=allow_tf32), platform, config)


def lightning_decode(
    q,
    k,
    v,
    state,
    *,
    layer_idx: Optional[int] = None,
    num_layers: Optional[int] = None,
    slopes=None,
    g_gamma=None,
    slot_indices=None,
    kept_slots=None,
    accepted=None,
    committed_k=None,
    committed_v=None,
    committed_accepted=None,
    scale: Optional[float] = None,
    state_v_first: bool = False,
    allow_tf32: bool = False,
    platform: str = "",
    config: str = "",
) -> Tuple[jax.Array, jax.Array]:
    """`recurrent_decode` with the decays of `lightning_attention`."""
    layer = lightning_layer("lightning_decode", layer_idx, num_layers, slopes, g_gamma)
    return _decode("lightning_decode", {"q": q, "k": k, "v": v, "state": state},
                   {"g_gamma": g_gamma, "slopes": slopes, "slot_indices": slot_indices, "kept_slots": kept_slots,
                    "accepted": accepted, "committed_k": committed_k, "committed_v": committed_v,
                    "committed_accepted": committed_accepted}, layer, scale,
                   _Options(state_v_first=state_v_first, allow_tf32=allow_tf32), platform, config)


def minimax_slopes(heads: int, layer: int, layers: int) -> jax.Array:
    """The slopes [heads] of MiniMax's models in a layer, f32: see `attune_kernels.minimax_slopes`."""
    return jnp.asarray(_core.minimax_slopes(heads, layer, layers), jnp.float32)
