"""attune_kernels.jax: golden cases, gradients, and what JAX's transformations ask of a call."""

import os
import subprocess
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import pytest  # noqa: E402

jax = pytest.importorskip("jax", "0.9.1", reason="JAX 0.9.1 or newer is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

import attune_kernels as attune  # noqa: E402
import attune_kernels.jax as aj  # noqa: E402
import golden  # noqa: E402
from conftest import skip_without_gpu  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")  # of the recurrences here, on a GPU

FORWARD = {
    "recurrent_attention": aj.recurrent_attention,
    "gated_linear_attention": aj.gated_linear_attention,
    "lightning_attention": aj.lightning_attention,
}


def has_gpu():
    return any(device.platform == "gpu" for device in jax.devices())


@pytest.fixture(autouse=True, params=["cpu", "cuda"])
def device(request):
    """Where a test's arrays are made and its programs run."""
    if request.param == "cuda":
        skip_without_gpu("JAX", has_gpu)
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param


def naive(q, k, v, g=None, g_gamma=None, gk=None, gv=None, slopes=None, initial_state=None, scale=None):
    """The recurrence by JAX's own operations: (o, final_state)."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
    batch, tokens, heads, keys = q.shape
    values = v.shape[-1]
    decay = jnp.zeros((batch, tokens, heads, keys, values))
    for gate, where in ((g, (..., None, None)), (gk, (..., None)), (gv, (..., None, slice(None)))):
        if gate is not None:
            decay = decay + gate[where]
    for constant in (g_gamma, None if slopes is None else -slopes):
        if constant is not None:
            decay = decay + jnp.broadcast_to(constant, (batch, heads))[:, None, :, None, None]

    def step(state, row):
        q, k, v, decay = row
        state = state * jnp.exp(decay) + k[..., None] * v[..., None, :]
        return state, scale * jnp.einsum("bhk,bhkv->bhv", q, state)

    state = jnp.zeros((batch, heads, keys, values)) if initial_state is None else initial_state
    state, o = jax.lax.scan(step, state, tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v, decay)))
    return jnp.moveaxis(o, 0, 1), state


def inputs(batch=2, tokens=21, heads=4, kv_heads=2, keys=16, values=24, seed=0, names=()):
    random = numpy.random.default_rng(seed)
    shapes = {"q": (batch, tokens, heads, keys), "k": (batch, tokens, kv_heads, keys),
              "v": (batch, tokens, kv_heads, values), "g": (batch, tokens, heads),
              "gk": (batch, tokens, heads, keys), "gv": (batch, tokens, heads, values), "g_gamma": (heads,),
              "slopes": (heads,), "initial_state": (batch, heads, keys, values)}
    made = {}
    for name in ("q", "k", "v", *names):
        array = random.standard_normal(shapes[name])
        if name in ("g", "gk", "gv", "g_gamma"):
            array = -0.1 * abs(array)
        made[name] = jnp.asarray(abs(array) if name == "slopes" else array, jnp.float32)
    return made


def ours(arrays):
    function = aj.lightning_attention if "slopes" in arrays else aj.recurrent_attention
    return function(**arrays, want_final_state=True)


def loss_of(function):
    """A scalar of all results, which weighs each element differently."""

    def loss(arrays):
        return sum((result * jnp.cos(jnp.arange(result.size, dtype=jnp.float32)).reshape(result.shape)).sum()
                   for result in function(arrays))

    return loss


def close(actual, expected, tolerance=2e-5):
    actual, expected = (numpy.asarray(x, numpy.float64) for x in (actual, expected))
    assert actual.shape == expected.shape
    assert numpy.linalg.norm(actual - expected) <= tolerance * max(numpy.linalg.norm(expected), 1e-6)


def all_close(actual, expected, tolerance=2e-5):
    assert actual.keys() == expected.keys()
    for name in expected:
        close(actual[name], expected[name], tolerance)


GATES = [(), ("g",), ("gk",), ("gv",), ("g_gamma",), ("slopes",), ("g", "g_gamma", "gk", "gv", "initial_state")]


@pytest.mark.parametrize("name", golden.names())
def test_golden_cases_are_reproduced(name):
    case = golden.Case(name)
    arrays = {key: jnp.asarray(array) for key, array in case.tensors.items()}
    if case.is_16_bit:
        arrays.update({key: arrays[key].astype(jnp.bfloat16) for key in ("q", "k", "v", "do") if key in arrays})
    if case.op == "lightning_decode":
        o, state = aj.lightning_decode(arrays["q"], arrays["k"], arrays["v"], arrays["kv_cache"],
                                       slopes=arrays["slopes"], slot_indices=arrays["slot_indices"],
                                       scale=case.options()["scale"])
        case.check("o", numpy.asarray(o, numpy.float32))
        case.check("kv_cache", numpy.asarray(state))
        return
    options = case.options()
    given = {key: arrays[key] for key in golden.ARGUMENTS if key in arrays}
    if "num_layers" in options:
        given.pop("g_gamma", None)
    floats = {key: array for key, array in given.items() if key != "cu_seqlens"}
    fixed = {key: array for key, array in given.items() if key == "cu_seqlens"}

    def run(floats):
        return FORWARD[case.op](**floats, **fixed, **options, want_final_state=True)

    (o, state), pull_back = jax.vjp(run, floats)
    case.check("o", numpy.asarray(o, numpy.float32))
    case.check("final_state", numpy.asarray(state))
    if "do" not in arrays:
        return
    (gradients,) = pull_back((arrays["do"], arrays.get("dfinal_state", jnp.zeros_like(state))))
    checked = 0
    for key in case.expected_gradients():
        if key in gradients:
            case.check("d" + key, numpy.asarray(gradients[key], numpy.float32))
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize("names", GATES)
def test_results_and_gradients_are_the_recurrences(names):
    arrays = inputs(names=names)
    o, state = ours(arrays)
    expected_o, expected_state = naive(**arrays)
    close(o, expected_o)
    close(state, expected_state)
    expected = jax.grad(loss_of(lambda x: naive(**x)))(arrays)
    all_close(jax.grad(loss_of(ours))(arrays), expected, 1e-4)
    all_close(jax.jit(jax.grad(loss_of(ours)))(arrays), expected, 1e-4)


@pytest.mark.parametrize("names", GATES)
def test_vmap_folds_into_the_batch(names):
    rows = [inputs(names=names, seed=seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *rows)
    o, state = jax.vmap(ours)(stacked)
    for i, row in enumerate(rows):
        close(o[i], naive(**row)[0])
        close(state[i], naive(**row)[1])
    mapped_gradient = jax.jit(jax.vmap(jax.grad(loss_of(ours))))(stacked)
    expected = jax.vmap(jax.grad(loss_of(lambda x: naive(**x))))(stacked)
    all_close(mapped_gradient, expected, 1e-4)
    all_close(jax.grad(lambda x: jax.vmap(loss_of(ours))(x).sum())(stacked), expected, 1e-4)
    assert "while" not in jax.jit(jax.vmap(ours)).lower(stacked).as_text()


@pytest.mark.parametrize("mapped", ["q", "g_gamma", "slopes", "initial_state"])
def test_vmap_of_one_array_repeats_the_others(mapped):
    names = ("slopes", "initial_state") if mapped == "slopes" else ("gk", "g_gamma", "initial_state")
    arrays = inputs(names=names)
    stacked = {**arrays, mapped: jnp.stack([arrays[mapped], 0.5 * arrays[mapped]])}
    axes = ({name: 0 if name == mapped else None for name in arrays},)
    gradient = jax.vmap(jax.grad(loss_of(ours)), axes)(stacked)
    all_close(gradient, jax.vmap(jax.grad(loss_of(lambda x: naive(**x))), axes)(stacked), 1e-4)


def test_vmap_in_vmap_and_a_g_gamma_of_each_sequence():
    arrays = inputs(names=("g",))
    arrays["g_gamma"] = -0.1 * jnp.arange(8.0).reshape(2, 4)
    nested = jax.tree.map(lambda x: jnp.stack([jnp.stack([x, 0.5 * x]), jnp.stack([2 * x, x]), jnp.stack([x, x])]),
                          arrays)
    all_close(jax.vmap(jax.vmap(jax.grad(loss_of(ours))))(nested),
              jax.vmap(jax.vmap(jax.grad(loss_of(lambda x: naive(**x)))))(nested), 1e-4)


def packed_inputs():
    arrays = inputs(batch=1, tokens=30, names=("gk",))
    return arrays, jnp.asarray([0, 7, 7, 30], jnp.int32)


def test_packed_sequences_are_those_one_by_one():
    arrays, cu_seqlens = packed_inputs()
    o, state = aj.recurrent_attention(**arrays, cu_seqlens=cu_seqlens, want_final_state=True)
    for n, (begin, end) in enumerate(((0, 7), (7, 30))):
        part, part_state = naive(**{name: array[:, begin:end] for name, array in arrays.items()})
        close(o[:, begin:end], part)
        close(state[2 * n], part_state[0])
    close(state[1], numpy.zeros(state.shape[1:]))

    def packed(arrays):
        return aj.recurrent_attention(**arrays, cu_seqlens=cu_seqlens, want_final_state=True)

    stacked = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), arrays)
    mapped = jax.vmap(jax.grad(loss_of(packed)))(stacked)
    for i in range(2):
        all_close({name: array[i] for name, array in mapped.items()},
                  jax.grad(loss_of(packed))(jax.tree.map(lambda x: x[i], stacked)))


def test_rows_behind_packed_sequences_are_zero():
    arrays, _ = packed_inputs()
    cu_seqlens = jnp.asarray([0, 7, 22], jnp.int32)

    def padded(arrays):
        return aj.recurrent_attention(**arrays, cu_seqlens=cu_seqlens, want_final_state=True)

    inside = {name: array[:, :22] for name, array in arrays.items()}
    o, _ = padded(arrays)
    assert not numpy.any(o[:, 22:])
    gradients = jax.grad(lambda x: padded(x)[0].sum())(arrays)
    expected = jax.grad(lambda x: aj.recurrent_attention(**x, cu_seqlens=cu_seqlens)[0].sum())(inside)
    for name, gradient in gradients.items():
        close(gradient[:, :22], expected[name])
        assert not numpy.any(gradient[:, 22:])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_16_bit_inputs_have_gradients_of_their_types(dtype):
    arrays = {name: array.astype(dtype) for name, array in inputs(names=("gk",)).items()}
    o, state = ours(arrays)
    assert o.dtype == dtype and state.dtype == jnp.float32
    wide = {name: array.astype(jnp.float32) for name, array in arrays.items()}
    close(o, naive(**wide)[0], 1e-2)
    gradients = jax.grad(loss_of(ours))(arrays)
    assert all(gradient.dtype == dtype for gradient in gradients.values())
    all_close(gradients, jax.grad(loss_of(lambda x: naive(**x)))(wide), 3e-2)


def test_states_may_have_their_values_first():
    arrays = inputs(names=("gk", "initial_state"))
    o, state = ours(arrays)
    gradient = jax.grad(loss_of(lambda x: (ours(x)[0],)))(arrays)
    turned = {**arrays, "initial_state": arrays["initial_state"].swapaxes(2, 3)}
    o_turned, state_turned = aj.recurrent_attention(**turned, want_final_state=True, state_v_first=True)
    close(o_turned, o)
    close(state_turned.swapaxes(2, 3), state)
    turned_gradient = jax.grad(loss_of(lambda x: (aj.recurrent_attention(**x, state_v_first=True)[0],)))(turned)
    close(turned_gradient["initial_state"].swapaxes(2, 3), gradient["initial_state"])


def test_reverse_is_the_recurrence_from_the_end():
    arrays = inputs(names=("g",))
    o, state = aj.recurrent_attention(**arrays, reverse=True, want_final_state=True)
    expected, expected_state = naive(**{name: array[:, ::-1] for name, array in arrays.items()})
    close(o, expected[:, ::-1])
    close(state, expected_state)


def test_checkpoints_and_scans_over_layers():
    arrays = inputs(names=("gk",))
    plain = jax.grad(loss_of(ours))(arrays)
    all_close(jax.grad(jax.checkpoint(loss_of(ours)))(arrays), plain)

    def layers(function, x):
        def layer(q, scale):
            return function({**x, "q": q * scale})[0][..., :16], None

        return jax.lax.scan(layer, x["q"], jnp.asarray([1.0, 0.5, 2.0]))[0],

    all_close(jax.grad(loss_of(lambda x: layers(ours, x)))(arrays),
              jax.grad(loss_of(lambda x: layers(lambda y: naive(**y), x)))(arrays), 1e-4)


def decode_inputs(batch=3, slots=5):
    random = numpy.random.default_rng(1)
    q, k, v = (jnp.asarray(random.standard_normal((batch, 2, 16)), jnp.float32) for _ in range(3))
    state = jnp.asarray(random.standard_normal((slots, 2, 16, 16)), jnp.float32)
    return q, k, v, state, -0.1 * abs(k)


def test_prefill_and_decode_are_one_long_recurrence():
    arrays = inputs(kv_heads=4, names=("gk",))
    o, state = naive(**arrays)
    prompt = {name: array[:, :13] for name, array in arrays.items()}
    _, pool = aj.recurrent_attention(**prompt, want_final_state=True)
    step = jax.jit(lambda pool, q, k, v, gk: aj.recurrent_decode(q, k, v, pool, gk=gk), donate_argnums=0)
    for t in range(13, 21):
        row, pool = step(pool, *(arrays[name][:, t] for name in ("q", "k", "v", "gk")))
        close(row, o[:, t])
    close(pool, state)


def test_a_donated_state_is_updated_where_it_lies():
    q, k, v, state, gk = decode_inputs()
    slots = jnp.asarray([4, -1, 0], jnp.int32)
    before = numpy.asarray(state)

    def step(state):
        return aj.recurrent_decode(q, k, v, state, gk=gk, slot_indices=slots)

    o, copied = jax.jit(step)(state)
    close(state, before, 0)
    close(copied[1:4], before[1:4], 0)
    assert not numpy.any(o[1])
    state = state + 0  # memory of JAX's own
    address = state.unsafe_buffer_pointer()
    o_donated, updated = jax.jit(step, donate_argnums=0)(state)
    assert state.is_deleted()
    assert updated.unsafe_buffer_pointer() == address
    close(o_donated, o, 0)
    close(updated, copied, 0)


@pytest.mark.parametrize("state_is_mapped", [True, False])
@pytest.mark.parametrize("pool", [False, True])
def test_vmap_of_calls_that_update_states(state_is_mapped, pool):
    q, k, v, state, gk = decode_inputs()
    slots = jnp.asarray([4, 1, 0], jnp.int32)

    def step(q, state):
        if not pool:
            return aj.recurrent_decode(q, k, v, state, gk=gk, slot_indices=slots)
        prompts = (x[:, None] for x in (q, k, v, gk))
        return aj.gated_linear_attention(*prompts, states=state, final_slots=slots)

    queries = jnp.stack((q, 2 * q))
    states = jnp.stack((state, -state)) if state_is_mapped else state
    actual = jax.jit(jax.vmap(step, in_axes=(0, 0 if state_is_mapped else None)))(queries, states)
    for i in range(2):
        for a, e in zip(actual, step(queries[i], states[i] if state_is_mapped else state)):
            close(a[i], e)


def test_a_scan_over_layers_decodes_into_their_states():
    q, k, v, state, gk = decode_inputs()
    states = jnp.stack((state, -state, state / 2))

    def layer(x, state):
        o, state = aj.recurrent_decode(q + x, k, v, state, gk=gk)
        return o.mean(-1, keepdims=True), state

    x = jnp.zeros((*q.shape[:-1], 1))
    actual = jax.jit(lambda states: jax.lax.scan(layer, x, states))(states)
    expected = []
    for state in states:
        x, state = layer(x, state)
        expected.append(state)
    close(actual[0], x)
    close(actual[1], jnp.stack(expected))


def test_layers_and_slopes_are_lightnings():
    arrays = inputs()
    o, _ = aj.lightning_attention(**arrays, layer_idx=3, num_layers=12)
    close(o, naive(**arrays, g_gamma=-(8 / 4) * (1 - 3 / 12) * jnp.arange(4.0))[0])
    numpy.testing.assert_allclose(aj.minimax_slopes(6, 2, 8), attune.minimax_slopes(6, 2, 8))


def test_empty_arrays_are_legal():
    o, state = ours(inputs(tokens=0))
    assert o.shape == (2, 0, 4, 24) and not numpy.any(state)
    o, state = ours(inputs(batch=0))
    assert o.shape == (0, 21, 4, 24) and state.shape == (0, 4, 16, 24)


def test_exported_programs_are_the_calls(device):
    named = inputs(1)
    arrays = [named[name] for name in "qkv"]
    both = jax.jit(jax.value_and_grad(lambda q, k, v: jnp.sin(aj.recurrent_attention(q, k, v)[0]).sum()))
    calls = [jax.export.DisabledSafetyCheck.custom_call(f"attune_{name}") for name in ("forward", "backward")]
    exported = jax.export.export(both, platforms=[device], disabled_checks=calls)(*arrays)
    for found, expected in zip(exported.call(*arrays), both(*arrays)):
        numpy.testing.assert_array_equal(found, expected)


def test_symbolic_shapes_are_refused():
    batch, = jax.export.symbolic_shape("b")
    shapes = [jax.ShapeDtypeStruct((batch, 20, 3, size), jnp.float32) for size in (16, 16, 24)]
    with pytest.raises(ValueError, match="symbolic shapes"):
        jax.export.export(jax.jit(lambda q, k, v: aj.recurrent_attention(q, k, v)[0]))(*shapes)


def test_programs_do_not_depend_on_what_is_tuned(device):
    arrays = inputs(tokens=64, names=("gk",))
    program = jax.jit(jax.grad(loss_of(ours)))
    before = program.lower(arrays).as_text()
    attune.tune("recurrent_attention", "B=2 T=64 H=4 Hkv=2 K=16 V=24 gate=gk ht=yes", device=device,
                budget_ms=200)
    jax.clear_caches()
    assert program.lower(arrays).as_text() == before


def test_shards_of_batch_and_heads_are_computed_where_they_are(device):
    devices = jax.devices(device)
    if device == "cuda" and len(devices) < 8:
        pytest.skip(f"{len(devices)} GPUs, 8 are needed")
    assert len(devices) >= 8
    mesh = Mesh(numpy.asarray(devices[:8]).reshape(4, 2), ("data", "heads"))
    arrays = inputs(batch=8, names=("gk", "g_gamma"))
    rows = P("data", None, "heads")
    specs = {"q": rows, "k": rows, "v": rows, "gk": rows, "g_gamma": P("heads")}
    sharded = jax.jit(jax.shard_map(ours, mesh=mesh, in_specs=(specs,), out_specs=(rows, P("data", "heads"))))
    o, state = sharded(arrays)
    close(o, naive(**arrays)[0])
    close(state, naive(**arrays)[1])
    assert "all-gather" not in sharded.lower(arrays).compile().as_text()
    all_close(jax.grad(loss_of(sharded))(arrays), jax.grad(loss_of(lambda x: naive(**x)))(arrays), 1e-4)


def test_gradients_have_the_shardings_of_explicit_meshes(device):
    devices = jax.devices(device)
    mesh = jax.make_mesh((min(len(devices), 2),), ("heads",), devices=devices[:2],
                         axis_types=(jax.sharding.AxisType.Explicit,))
    arrays = inputs(names=("gk", "g_gamma"))
    sharded = {name: jax.device_put(array, jax.NamedSharding(mesh, P(*[None] * (array.ndim // 2), "heads")))
               for name, array in arrays.items()}
    with jax.set_mesh(mesh):
        actual = jax.jit(jax.grad(loss_of(ours)))(sharded)
    expected = jax.grad(loss_of(ours))(arrays)
    for name, gradient in actual.items():
        assert gradient.sharding.is_equivalent_to(sharded[name].sharding, gradient.ndim)
        close(gradient, expected[name])


@pytest.mark.parametrize("change, text", [
    ({"k": jnp.zeros((2, 21, 3, 16))}, "k"),
    ({"k": jnp.zeros((2, 20, 2, 16))}, "recurrent_attention: k: shape"),
    ({"v": jnp.zeros((2, 21, 2, 24), jnp.bfloat16)}, "recurrent_attention: v"),
    ({"q": jnp.zeros((2, 21, 4, 16), jnp.int32)}, "recurrent_attention: q"),
    ({"q": jnp.zeros((2, 21, 4, 16), jnp.bool_)}, "q: dtype bool, expected"),
    ({"q": jnp.zeros((21, 4, 16))}, "k has shape"),
    ({"g": jnp.zeros((2, 21))}, "recurrent_attention: g: shape"),
    ({"initial_state": jnp.zeros((2, 4, 24, 16))}, "initial_state"),
    ({"config": "tile_v=-1"}, "tile_v"),
    ({"platform": "a_name_much_too_long"}, "platform"),
])
def test_mistakes_are_told_while_tracing(change, text):
    arguments = {**inputs(), **change}
    arrays = {name: x for name, x in arguments.items() if not isinstance(x, str)}
    others = {name: x for name, x in arguments.items() if isinstance(x, str)}
    with pytest.raises(ValueError, match=text):
        jax.jit(lambda arrays: aj.recurrent_attention(**arrays, **others)[0]).lower(arrays)


@pytest.mark.parametrize("change, text", [
    ({"q": None}, "recurrent_attention: q: .*not NoneType"),
    ({"gk": "x"}, "recurrent_attention: gk: .*not str"),
    ({"scale": "x"}, "recurrent_attention: scale: .*not str"),
    ({"config": None}, "recurrent_attention: config: .*not NoneType"),
    ({"snapshot_every": 1.5, "states": jnp.zeros((2, 4, 16, 24))}, "recurrent_attention: snapshot_every: .*not float"),
])
def test_what_is_no_array_or_number_is_told(change, text):
    with pytest.raises(TypeError, match=text):
        aj.recurrent_attention(**{**inputs(), **change})


def test_a_scale_is_known_while_tracing():
    with pytest.raises(TypeError, match="scale: .*traced"):
        jax.jit(lambda scale: aj.recurrent_attention(**inputs(), scale=scale)[0])(0.5)


def test_exactly_one_decay_makes_lightning_attention():
    arrays = inputs()
    with pytest.raises(ValueError, match="exactly one"):
        aj.lightning_attention(**arrays)
    with pytest.raises(ValueError, match="go together"):
        aj.lightning_attention(**arrays, layer_idx=1)
    with pytest.raises(TypeError, match="layer_idx: .*not float"):
        aj.lightning_attention(**arrays, layer_idx=1.5, num_layers=4)
    with pytest.raises(LookupError, match="nosuch"):
        aj.recurrent_attention(**arrays, platform="nosuch")


def test_a_config_of_one_kind_of_device_is_traced_for_that_alone(device):
    arrays = inputs()
    kernel = attune.explain("recurrent_attention", "B=2 T=21 H=4 Hkv=2 K=16 V=24", device=device)["kernel"]
    o, _ = aj.recurrent_attention(**arrays, platform=kernel.partition(".")[0], config=f"kernel={kernel}")
    close(o, naive(**arrays)[0])


REPLAYED = """
import jax, jax.numpy as jnp, numpy, attune_kernels.jax as aj

def step(pool, q, k, v, gk):
    loss = lambda q, k, v, gk: aj.gated_linear_attention(q, k, v, gk)[0].sum()
    gradients = jax.grad(loss, (0, 1, 2, 3))(q, k, v, gk)
    o, pool = aj.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], pool, gk=gk[:, 0])
    return pool, o, gradients

jitted = jax.jit(step, donate_argnums=0)
random = numpy.random.default_rng(0)
pool = jnp.zeros((2, 4, 64, 64))
for _ in range(6):
    q, k, v = (jnp.asarray(random.standard_normal((2, 100, 4, 64)), jnp.bfloat16) for _ in range(3))
    gk = jnp.asarray(-abs(random.standard_normal((2, 100, 4, 64))), jnp.float32)
    pool, o, gradients = jitted(pool, q, k, v, gk)
    print(*(float(jnp.abs(x.astype(jnp.float32)).sum()).hex() for x in (pool, o, *gradients)))
"""


def test_command_buffers_compute_what_single_launches_do(device):
    if device == "cpu":
        pytest.skip("command buffers are of GPUs")

    def run(flags):
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run([sys.executable, "-c", REPLAYED], capture_output=True, text=True, timeout=300,
                              env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alone = run("--xla_gpu_enable_command_buffer=")
    assert len(alone.splitlines()) == 6 and len(set(alone.splitlines())) == 6
    assert run("--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1") == alone
