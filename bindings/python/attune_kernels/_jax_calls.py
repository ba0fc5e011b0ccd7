"""attune's calls as JAX makes them: primitives over XLA's foreign functions, with gradients and vmap.

A call is what of it is no array, `Call`, and its arrays in the order of bindings/python/src/jax/calls.hpp.
attune_kernels/jax.py makes them from what users give.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from pathlib import Path
from typing import NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy

from . import _core

_LIBRARY = Path(__file__).with_name("_jax.so")
if not _LIBRARY.exists():
    raise ImportError(
        "attune_kernels.jax: this installation was built without jaxlib's headers and has no _jax.so. "
        "Install it anew from its sources, by a Python that has jaxlib: pip install --no-build-isolation ."
    )
_library = ctypes.CDLL(str(_LIBRARY))
_library.attune_jax_workspace_bound.restype = ctypes.c_int64
_library.attune_last_error.restype = ctypes.c_char_p
_core.prepare()  # the handlers use the same context, and so the same policy


def _register():
    for call in ("forward", "backward", "decode", "pool"):
        handler = f"attune_jax_{call}"
        jax.ffi.register_ffi_target(
            f"attune_{call}", jax.ffi.pycapsule(getattr(_library, f"{handler}_cpu")), platform="cpu")
        jax.ffi.register_ffi_target(
            f"attune_{call}",
            {"initialize": jax.ffi.pycapsule(getattr(_library, f"{handler}_cuda_initialize")),
             "execute": jax.ffi.pycapsule(getattr(_library, f"{handler}_cuda"))},
            platform="CUDA")


_register()

# As calls.hpp has them.
_FORWARD, _BACKWARD, DECODE, POOL = range(4)
_CALLS = ("attune_forward", "attune_backward", "attune_decode", "attune_pool")
_GIVEN = {name: 1 << i for i, name in enumerate((
    "g", "g_gamma", "gk", "gv", "slopes", "initial_state", "cu_seqlens", "d_o", "dfinal_state", "slot_indices",
    "initial_slots", "final_slots", "snapshot_slots", "kept_slots", "accepted", "committed_k", "committed_v",
    "committed_g", "committed_gk", "committed_gv", "committed_accepted"))}
REVERSE, WANT_FINAL_STATE, STATE_V_FIRST, ALLOW_TF32 = 1, 2, 4, 8
DLPACK_TYPES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32), "int64": (0, 64)}
_DEVICE_TYPES = {"cpu": 1, "cuda": 2}
_ERRORS = {1: ValueError, 2: _core.Unsupported, 3: _core.Unavailable}  # by attune_status


@dataclasses.dataclass(frozen=True)
class Call:
    """What of a call is no array. `names`: of its arrays, in the order of calls.hpp."""

    names: Tuple[str, ...]
    options: int
    scale: float
    layer_idx: int = 0
    num_layers: int = 0
    snapshot_every: int = 0
    platform: str = ""
    config: str = ""

    def wants(self, option):
        return bool(self.options & option)

    def given(self):
        return sum(_GIVEN.get(name, 0) for name in self.names)

    def attributes(self):
        return {"given": numpy.int64(self.given()), "options": numpy.int64(self.options),
                "scale": numpy.float64(self.scale), "layer_idx": numpy.int64(self.layer_idx),
                "num_layers": numpy.int64(self.num_layers),
                "snapshot_every": numpy.int64(self.snapshot_every), "platform": self.platform, "config": self.config}


def _varying(array):
    """The mesh axes of a shard_map that an array is another one on."""
    kind = jax.typeof(array)
    return kind.mat.varying if hasattr(kind, "mat") else kind.vma  # the latter before JAX 0.10


def _results(results, like):
    """Shapes and types as those of results of `like`, which vary over the same axes."""
    if not _varying(like):
        return list(results)
    return [jax.eval_shape(lambda x, to=result: jnp.broadcast_to(x.sum().astype(to.dtype), to.shape), like)
            for result in results]


def vary_alike(arrays):
    """In a shard_map, arrays that are the same on some axes beside others that are not: as the latter.

    The gradient of the former is then their sum over those axes.
    """
    axes = [_varying(array) for array in arrays]
    union = frozenset().union(*axes)
    return [array if of == union else jax.lax.pcast(array, tuple(union - of), to="varying")
            for array, of in zip(arrays, axes)]


def _as(gradient, array):
    """A gradient of `array`'s type, and of its sharding where a mesh's axes are explicit."""
    gradient = gradient.astype(array.dtype)
    sharding = jax.typeof(array).sharding
    return gradient if jax.typeof(gradient).sharding == sharding else jax.sharding.reshard(gradient, sharding)


def _bytes(arrays):
    return sum(math.prod(array.shape) * numpy.dtype(array.dtype).itemsize for array in arrays)


@functools.lru_cache(maxsize=4096)
def _workspace_bytes(kind, call, arrays, platform):
    """Of the array that a call on `platform` gets as scratch memory. `arrays`: in and out, but for states that are
    updated."""
    ranks = [len(shape) for shape, _ in arrays]
    types = [number for _, dtype in arrays for number in DLPACK_TYPES.get(dtype, (0, 0))]
    extents = [extent for shape, _ in arrays for extent in shape]
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arrays]
    limit = max(64 << 20, _bytes(structs))
    bound = _library.attune_jax_workspace_bound(
        ctypes.c_int32(kind), ctypes.c_int64(call.given()), ctypes.c_int64(call.options),
        ctypes.c_double(call.scale), ctypes.c_int64(call.layer_idx), ctypes.c_int64(call.num_layers),
        ctypes.c_int64(call.snapshot_every), call.platform.encode(), call.config.encode(),
        ctypes.c_int32(_DEVICE_TYPES[platform]),
        ctypes.c_int32(len(arrays)), (ctypes.c_int32 * len(ranks))(*ranks), (ctypes.c_int32 * len(types))(*types),
        (ctypes.c_int64 * max(len(extents), 1))(*extents), ctypes.c_int64(limit))
    if bound < 0:
        raise _ERRORS.get(-bound, RuntimeError)(_library.attune_last_error().decode())
    return bound + 64  # XLA's arrays may begin anywhere


@functools.lru_cache(maxsize=None)
def _platforms():
    """Those that a program may be lowered for here."""
    import json

    kinds = {str(device["device"]).partition(":")[0] for device in json.loads(_core.devices())}
    return ("cpu", "cuda") if "gpu" in kinds else ("cpu",)


def _ffi(kind, call, results, arrays, aliases=None):
    """The call's results, given as shapes and types, without its workspace."""
    if not all(isinstance(extent, int) for array in arrays for extent in array.shape):
        raise ValueError("attune: a call of symbolic shapes (jax.export) is not defined: the size of its scratch memory "
                         "depends on them")
    arrays = vary_alike(arrays)
    seen = [*arrays, *(result for i, result in enumerate(results) if not (kind in (DECODE, POOL) and i == 1))]
    key = tuple((tuple(array.shape), str(array.dtype)) for array in seen)

    def on(platform):
        def run(*operands):
            workspace = jax.ShapeDtypeStruct((_workspace_bytes(kind, call, key, platform),), jnp.uint8)
            function = jax.ffi.ffi_call(_CALLS[kind], _results((*results, workspace), operands[0]),
                                        input_output_aliases=aliases)
            return tuple(function(*operands, **call.attributes())[:-1])

        return run

    platforms, failure = [], None
    for platform in _platforms():
        try:
            _workspace_bytes(kind, call, key, platform)
            platforms.append(platform)
        except (ValueError, RuntimeError, LookupError) as error:  # a `platform` or config of another kind of device
            failure = error
    if not platforms:
        raise failure
    if len(platforms) == 1:
        return on(platforms[0])(*arrays)
    return jax.lax.platform_dependent(*arrays, **{platform: on(platform) for platform in platforms})


class _Sizes(NamedTuple):
    """Of a call's batch, sequences and states."""

    o: Tuple[int, ...]
    states: Tuple[int, ...]


def _sizes(call, arrays):
    q, v = arrays["q"], arrays["v"]
    packed = "cu_seqlens" in arrays
    sequences = arrays["cu_seqlens"].shape[0] - 1 if packed else q.shape[0]
    channels = (q.shape[-1], v.shape[-1])
    if call.wants(STATE_V_FIRST):
        channels = channels[::-1]
    return _Sizes((*q.shape[:-1], v.shape[-1]), (sequences, q.shape[-2], *channels))


def _forward(call, *arrays):
    """(o,) or (o, final_state)."""
    named = dict(zip(call.names, arrays))
    sizes = _sizes(call, named)
    results = [jax.ShapeDtypeStruct(sizes.o, named["q"].dtype)]
    if call.wants(WANT_FINAL_STATE):
        state_type = named["initial_state"].dtype if "initial_state" in named else jnp.float32
        results.append(jax.ShapeDtypeStruct(sizes.states, state_type))
    return _ffi(_FORWARD, call, results, arrays)


_GRADIENTS = ("q", "k", "v", "g", "g_gamma", "gk", "gv", "slopes", "initial_state")


def _backward(call, *arrays):
    """The gradients of those of _GRADIENTS that are given: q's type for q, k and v, f32 for others."""
    named = dict(zip(call.names, arrays))
    results = [jax.ShapeDtypeStruct(named[name].shape, named["q"].dtype if name in "qkv" else jnp.float32)
               for name in _GRADIENTS if name in named]
    return _ffi(_BACKWARD, call, results, arrays)


def _update(kind, call, *arrays):
    """(o, states) of a call that updates its states, the fourth array."""
    q, v, states = arrays[0], arrays[2], arrays[3]
    results = [jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype), states]
    return _ffi(kind, call, results, arrays, aliases={3: 1})


def update(kind, call, *arrays):
    """The same as a function that vmap knows."""
    return _mappable(kind, call)(*arrays)


# vmap. The mapped axis becomes part of B; constant decays, which have no B, get one state's each. Packed sequences and
# pools, whose B or slots are a row's own, are one call after the other.


def _one_after_another(run, axis_size, in_batched, arrays):
    mapped = [array for array, batched in zip(arrays, in_batched) if batched]

    def one(row):
        rest = iter(row)
        return run(*(next(rest) if batched else array for array, batched in zip(arrays, in_batched)))

    results = jax.lax.map(one, mapped)
    return tuple(results), (True,) * len(results)


def _folded(call, axis_size, in_batched, arrays):
    """The call and arrays of one call with axis_size * B in place of B; B."""
    named = dict(zip(call.names, arrays))
    batched = dict(zip(call.names, in_batched))
    batch = named["q"].shape[1 if batched["q"] else 0]
    heads = named["q"].shape[-2]
    folded = {}
    for name, array in named.items():
        if not batched[name]:
            array = jnp.broadcast_to(array, (axis_size, *array.shape))
        if name in ("g_gamma", "slopes") and array.ndim == 2:
            array = jnp.broadcast_to(array[:, None], (axis_size, batch, heads))
        if name == "slopes":
            name, array = "g_gamma", -array
        folded[name] = array.reshape(axis_size * array.shape[1], *array.shape[2:])
    # slopes have become a g_gamma, which stands before gk.
    names = tuple(sorted(folded, key=list(ORDER).index))
    return dataclasses.replace(call, names=names), tuple(folded[name] for name in names), batch


ORDER = ("q", "k", "v", "g", "g_gamma", "gk", "gv", "slopes", "initial_state", "cu_seqlens", "d_o", "dfinal_state")


def _unfolded_gradients(call, axis_size, in_batched, arrays, results, batch):
    """The gradients of a folded call as those of each row."""
    shapes = {name: array.shape[1:] if batched else array.shape
              for name, array, batched in zip(call.names, arrays, in_batched)}
    wanted = [name for name in _GRADIENTS if name in shapes]
    order = sorted(wanted, key=lambda name: ORDER.index("g_gamma" if name == "slopes" else name))
    gradients = {}
    for name, gradient in zip(order, results):
        gradient = gradient.reshape(axis_size, -1, *gradient.shape[1:])
        if name in ("g_gamma", "slopes") and len(shapes[name]) == 1:  # one for all of a row's batch
            gradient = gradient.sum(1)
        gradients[name] = -gradient if name == "slopes" else gradient.reshape(axis_size, *shapes[name])
    return tuple(gradients[name] for name in wanted)


@functools.lru_cache(maxsize=1024)
def _mappable(kind, call):
    """A call as a function of its arrays that vmap knows."""
    implementation = {_FORWARD: _forward, _BACKWARD: _backward}.get(kind, functools.partial(_update, kind))

    @jax.custom_batching.custom_vmap
    def run(*arrays):
        return implementation(call, *arrays)

    @run.def_vmap
    def rule(axis_size, in_batched, *arrays):
        if kind in (DECODE, POOL) or "cu_seqlens" in call.names:
            return _one_after_another(run, axis_size, in_batched, arrays)
        folded, operands, batch = _folded(call, axis_size, in_batched, arrays)
        results = _mappable(kind, folded)(*operands)
        if kind == _FORWARD:
            unfolded = tuple(result.reshape(axis_size, -1, *result.shape[1:]) for result in results)
        else:
            unfolded = _unfolded_gradients(call, axis_size, in_batched, arrays, results, batch)
        return unfolded, (True,) * len(unfolded)

    return run


@functools.lru_cache(maxsize=1024)
def differentiable(call):
    """A forward call as a function of its arrays, whose gradient is known."""

    @jax.custom_vjp
    def run(*arrays):
        return _mappable(_FORWARD, call)(*arrays)

    def forward(*arrays):
        return run(*arrays), arrays

    def backward(arrays, cotangents):
        names = (*call.names, "d_o", "dfinal_state")[:len(call.names) + len(cotangents)]
        # Gradients are of states in f32, which has all values of 16 bits.
        of_results = [cotangents[0].astype(arrays[0].dtype), *(x.astype(jnp.float32) for x in cotangents[1:])]
        inputs = [array.astype(jnp.float32) if name == "initial_state" else array
                  for name, array in zip(call.names, arrays)]
        options = call.options & ~WANT_FINAL_STATE
        results = _mappable(_BACKWARD, dataclasses.replace(call, names=names, options=options, config=""))(
            *inputs, *of_results)
        gradients = dict(zip((name for name in _GRADIENTS if name in call.names), results))
        return tuple(_as(gradients[name], array) if name in gradients
                     else numpy.zeros(array.shape, jax.dtypes.float0)
                     for name, array in zip(call.names, arrays))

    run.defvjp(forward, backward)
    return run
