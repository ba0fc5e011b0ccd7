"""Pools of states, snapshots, padded batches, 16-bit states and several tokens a step, through every library.

A `door` is one library: its arrays, and its functions with the pool as an argument that is handed in and one
that comes out, whether it was updated in place or not.
"""

import types

import numpy
import pytest

import attune_kernels as attune
from conftest import skip_without_gpu

HEADS, KEYS, VALUES = 2, 16, 24


def numpy_door():
    def on(function):
        def call(q, k, v, pool, **options):
            pool = pool.copy()
            result = function(q, k, v, pool, **options)
            return result[0] if isinstance(result, tuple) else result, pool

        return call

    return types.SimpleNamespace(
        array=lambda x: x, host=lambda x: x,
        attention=on(lambda q, k, v, pool, **options: attune.recurrent_attention(q, k, v, states=pool, **options)),
        lightning=on(lambda q, k, v, pool, **options: attune.lightning_attention(q, k, v, states=pool, **options)),
        decode=on(attune.recurrent_decode), on_host=True, has_bfloat16=False)


def supported(device, call):
    """The call's result; a GPU may have no kernels for pools."""
    try:
        return call()
    except RuntimeError as error:
        if device == "cuda" and "no kernel" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise


def torch_door(device):
    torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")
    import attune_kernels.torch as at

    if device == "cuda":
        skip_without_gpu("PyTorch", torch.cuda.is_available)

    def on(function):
        def call(q, k, v, pool, **options):
            pool = pool.clone()
            result = supported(device, lambda: function(q, k, v, pool, **options))
            return result[0] if isinstance(result, tuple) else result, pool

        return call

    return types.SimpleNamespace(
        array=lambda x: torch.from_numpy(numpy.array(x)).to(device), host=lambda x: x.float().cpu().numpy(),
        attention=on(lambda q, k, v, pool, **options: at.recurrent_attention(q, k, v, states=pool, **options)),
        lightning=on(lambda q, k, v, pool, **options: at.lightning_attention(q, k, v, states=pool, **options)),
        decode=on(at.recurrent_decode), on_host=device == "cpu", has_bfloat16=True, bfloat16=lambda x: x.bfloat16())


def jax_door(device):
    jax = pytest.importorskip("jax", "0.9.1", reason="JAX 0.9.1 or newer is not installed")
    import attune_kernels.jax as aj

    if device == "cuda":
        skip_without_gpu("JAX", lambda: any(device.platform == "gpu" for device in jax.devices()))
    there = jax.devices(device)[0]

    def jitted(function):
        def call(*arrays, **options):
            compiled = jax.jit(lambda *x: function(*x, **options))
            return supported(device, lambda: jax.block_until_ready(compiled(*arrays)))

        return call

    return types.SimpleNamespace(
        array=lambda x: jax.device_put(x, there), host=lambda x: numpy.asarray(x, numpy.float32),
        attention=jitted(lambda q, k, v, pool, **options: aj.recurrent_attention(q, k, v, states=pool, **options)),
        lightning=jitted(lambda q, k, v, pool, **options: aj.lightning_attention(q, k, v, states=pool, **options)),
        decode=jitted(aj.recurrent_decode), on_host=device == "cpu", has_bfloat16=True,
        bfloat16=lambda x: x.astype(jax.numpy.bfloat16))


DOORS = {"numpy": numpy_door, "torch-cpu": lambda: torch_door("cpu"), "torch-cuda": lambda: torch_door("cuda"),
         "jax-cpu": lambda: jax_door("cpu"), "jax-cuda": lambda: jax_door("cuda")}


@pytest.fixture(params=DOORS)
def door(request):
    return DOORS[request.param]()


def random(*shape, seed=0):
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape).astype(numpy.float32)


def operands(*rows):
    """q, k, v and gk of the shape [*rows, H, ..]."""
    return (*(random(*rows, HEADS, KEYS, seed=i) / 2 for i in range(2)), random(*rows, HEADS, VALUES, seed=2),
            -abs(random(*rows, HEADS, KEYS, seed=3)) / 4)


def recurrence(q, k, v, gk, state):
    """(o, the state after each token) of one sequence [T, H, ..], in float64."""
    state, o, states = state.astype(numpy.float64), [], []
    for t in range(len(q)):
        state = state * numpy.exp(gk[t].astype(numpy.float64))[..., None] + k[t][..., None] * v[t][:, None, :]
        states.append(state)
        o.append(numpy.einsum("hk,hkv->hv", q[t], state) * KEYS ** -0.5)
    return numpy.array(o).reshape(len(q), HEADS, VALUES), states


def close(actual, expected, tolerance=1e-4):
    numpy.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_prompts_of_a_packed_batch_start_and_end_in_slots(door):
    arrays = operands(1, 40)
    pool = random(6, HEADS, KEYS, VALUES, seed=7)
    bounds, starts, ends = [0, 13, 14, 40], [4, -1, 2], [0, 5, 2]
    slots = [door.array(numpy.array(x, numpy.int32)) for x in (starts, ends)]
    q, k, v, gk = (door.array(x) for x in arrays)
    o, after = door.attention(q, k, v, door.array(pool), gk=gk, cu_seqlens=door.array(numpy.array(bounds, numpy.int32)),
                              initial_slots=slots[0], final_slots=slots[1])
    expected = pool.copy()
    for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        start = pool[starts[n]] if starts[n] >= 0 else numpy.zeros_like(pool[0])
        part, states = recurrence(*(x[0, begin:end] for x in arrays), start)
        close(door.host(o)[0, begin:end], part)
        expected[ends[n]] = states[-1]
    close(door.host(after), expected)
    numpy.testing.assert_array_equal(door.host(after)[[1, 3, 4]], pool[[1, 3, 4]])


def test_states_on_the_way_are_kept(door):
    arrays = operands(2, 150)
    pool = random(6, HEADS, KEYS, VALUES, seed=8)
    q, k, v, gk = (door.array(x) for x in arrays)
    _, after = door.attention(q, k, v, door.array(pool), gk=gk, snapshot_every=64,
                              final_slots=door.array(numpy.array([0, 1], numpy.int32)),
                              snapshot_slots=door.array(numpy.array([[2, 3], [-1, 4]], numpy.int32)))
    expected = pool.copy()
    for n, kept in enumerate(({64: 2, 128: 3}, {128: 4})):
        _, states = recurrence(*(x[n] for x in arrays), pool[n])
        expected[n] = states[-1]
        for tokens, slot in kept.items():
            expected[slot] = states[tokens - 1]
    close(door.host(after), expected)


def test_a_padded_batch_of_decoding_rows_and_prompts(door):
    arrays = operands(1, 32)
    pool = random(3, HEADS, KEYS, VALUES, seed=9)
    bounds = [0, 1, 21, 22]
    q, k, v, gk = (door.array(x) for x in arrays)
    o, after = door.attention(q, k, v, door.array(pool), gk=gk, cu_seqlens=door.array(numpy.array(bounds, numpy.int32)),
                              final_slots=door.array(numpy.array([0, 1, 2], numpy.int32)))
    assert not door.host(o)[0, 22:].any()
    for n, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        part, states = recurrence(*(x[0, begin:end] for x in arrays), pool[n])
        close(door.host(o)[0, begin:end], part)
        close(door.host(after)[n], states[-1])


def test_lightning_attention_on_a_pool(door):
    q, k, v, _ = operands(2, 20)
    pool = random(2, HEADS, KEYS, VALUES, seed=10)
    slopes = numpy.array([0.5, 0.25], numpy.float32)
    o, after = door.lightning(*(door.array(x) for x in (q, k, v, pool)), slopes=door.array(slopes),
                              final_slots=door.array(numpy.array([1, 0], numpy.int32)))
    gk = numpy.broadcast_to(-slopes[:, None], (20, HEADS, KEYS))
    for n, slot in enumerate((1, 0)):
        part, states = recurrence(q[n], k[n], v[n], gk, pool[slot])
        close(door.host(o)[n], part)
        close(door.host(after)[slot], states[-1])


def test_states_of_16_bits_are_rounded_once(door):
    if not door.has_bfloat16:
        pytest.skip("NumPy has no bfloat16")
    arrays = operands(1, 30)
    pool = door.bfloat16(door.array(random(2, HEADS, KEYS, VALUES, seed=11)))
    before = door.host(pool)
    q, k, v, gk = (door.array(x) for x in arrays)
    o, after = door.attention(q, k, v, pool, gk=gk, final_slots=door.array(numpy.array([1], numpy.int32)))
    part, states = recurrence(*(x[0] for x in arrays), before[1])
    close(door.host(o)[0], part)
    close(door.host(after)[1], states[-1], 2 ** -8)
    assert after.dtype == pool.dtype


def test_tokens_of_a_step_follow_each_other(door):
    arrays = operands(2, 5)
    pool = random(3, HEADS, KEYS, VALUES, seed=12)
    q, k, v, gk = (door.array(x) for x in arrays)
    o, after = door.decode(q, k, v, door.array(pool), gk=gk, slot_indices=door.array(numpy.array([2, -1], numpy.int32)))
    part, states = recurrence(*(x[0] for x in arrays), pool[2])
    close(door.host(o)[0], part)
    assert not door.host(o)[1].any()
    close(door.host(after), [*pool[:2], states[-1]])


def test_drafted_tokens_are_taken_back_by_kept_states(door):
    pool = random(9, HEADS, KEYS, VALUES, seed=13)
    table = numpy.array([[0, 1, 2, 3], [4, 5, 6, 7]], numpy.int32)
    first, second = operands(2, 4), tuple(x[:, ::-1] / 2 for x in operands(2, 4))
    kept = door.array(table)

    def step(arrays, pool, accepted):
        q, k, v, gk = (door.array(numpy.ascontiguousarray(x)) for x in arrays)
        accepted = door.array(numpy.array(accepted, numpy.int32))
        return door.decode(q, k, v, pool, gk=gk, kept_slots=kept, accepted=accepted)

    _, after = step(first, door.array(pool), [1, 1])
    o, final = step(second, after, [2, 4])
    for b, accepted in enumerate((2, 4)):
        _, states = recurrence(*(x[b] for x in first), pool[table[b, 0]])
        close(door.host(after)[table[b]], states)
        part, later = recurrence(*(x[b] for x in second), states[accepted - 1])
        close(door.host(o)[b], part)
        close(door.host(final)[table[b]], later)
    numpy.testing.assert_array_equal(door.host(final)[8], pool[8])


def test_drafted_tokens_are_taken_back_by_replay(door):
    pool = random(2, HEADS, KEYS, VALUES, seed=14)
    drafted, new = operands(2, 4), tuple(x[:, ::-1] / 2 for x in operands(2, 3))
    q, k, v, gk = (door.array(numpy.ascontiguousarray(x)) for x in new)
    _, last_k, last_v, last_gk = (door.array(x) for x in drafted)
    o, after = door.decode(q, k, v, door.array(pool), gk=gk, slot_indices=door.array(numpy.array([1, 0], numpy.int32)),
                           committed_k=last_k, committed_v=last_v, committed_gk=last_gk,
                           committed_accepted=door.array(numpy.array([3, 0], numpy.int32)))
    for b, (slot, accepted) in enumerate(((1, 3), (0, 0))):
        _, states = recurrence(*(x[b] for x in drafted), pool[slot])
        start = states[accepted - 1] if accepted else pool[slot]
        close(door.host(after)[slot], start)
        close(door.host(o)[b], recurrence(*(x[b] for x in new), start)[0])


def test_mistakes_with_pools_are_named(door):
    q, k, v, _ = (door.array(x) for x in operands(2, 4))
    pool = door.array(random(3, HEADS, KEYS, VALUES))
    several = door.array(numpy.array([0, 0], numpy.int32))
    outside = door.array(numpy.array([0, 3], numpy.int32))
    slots = door.array(numpy.array([0, 1], numpy.int32))
    for call, text in (
        (lambda: door.attention(q, k, v, pool, initial_state=pool[:2], final_slots=slots), "initial_state"),
        (lambda: door.attention(q, k, v, pool, final_slots=slots[:1]), "final_slots"),
        (lambda: door.attention(q, k, v, pool, final_slots=slots, snapshot_every=10), "snapshot"),
        (lambda: door.decode(q, k, v, pool, slot_indices=slots, kept_slots=slots), "kept_slots"),
        (lambda: door.decode(q, k, v, pool, slot_indices=slots, committed_k=k), "committed"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=text):
            call()
    if not door.on_host:
        return
    for bad in (several, outside):  # only the host sees the values
        with pytest.raises((ValueError, RuntimeError), match="final_slots"):
            numpy.asarray(door.attention(q, k, v, pool, final_slots=bad)[0])


def test_random_rounding_keeps_what_rounding_to_nearest_forgets():
    pool = numpy.ones((1, HEADS, KEYS, VALUES), numpy.float16)
    # Each call adds 1e-4 to states of 1: a tenth of a unit in the last place.
    token = [numpy.full((1, HEADS, n), 1e-2, numpy.float32) for n in (KEYS, KEYS, VALUES)]
    nearest, random_one, again = pool.copy(), pool.copy(), pool.copy()
    for seed in range(100):
        attune.recurrent_decode(*token, nearest)
        attune.recurrent_decode(*token, random_one, state_seed=seed)
        attune.recurrent_decode(*token, again, state_seed=seed)
    assert (nearest == 1).all()
    assert abs(float(random_one.mean()) - 1.01) < 1e-3
    numpy.testing.assert_array_equal(random_one, again)
    with pytest.raises(ValueError, match="state_seed"):
        attune.recurrent_decode(*token, again, state_seed=-1)


def test_a_final_state_has_the_type_of_the_initial_one():
    q, k, v, _ = operands(1, 8)
    start = random(1, HEADS, KEYS, VALUES).astype(numpy.float16)
    _, state = attune.recurrent_attention(q, k, v, initial_state=start, want_final_state=True)
    assert state.dtype == numpy.float16


# --- what torch asks ---------------------------------------------------------------------------------------


def test_torch_knows_that_pools_are_written_to():
    torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")
    import attune_kernels.torch as at

    q, k, v, gk = (torch.from_numpy(x) for x in operands(2, 9))
    pool, slots = torch.randn(4, HEADS, KEYS, VALUES), torch.tensor([3, 1])
    none = [None]
    torch.library.opcheck(torch.ops.attune.forward_on_pool.default,
                          (q, k, v, pool, *none * 2, gk, *none * 4, slots, slots, *none, 0, None, None, 0, 0, False,
                           False, False, "", ""))
    torch.library.opcheck(torch.ops.attune.decode.default,
                          (q, k, v, pool, *none * 2, gk, *none * 2, slots, *none * 2, k, v, *none, gk, *none,
                           torch.tensor([1, 0]), None, None, 0, 0, False, False, "", ""))

    @torch.compile(fullgraph=True, dynamic=True)
    def step(q, k, v, gk, pool):
        return at.gated_linear_attention(q * 2, k, v, gk, states=pool, final_slots=slots)[0] + 1

    expected_pool = pool.clone()
    expected = at.gated_linear_attention(q * 2, k, v, gk, states=expected_pool, final_slots=slots)[0] + 1
    close(step(q, k, v, gk, pool), expected)
    close(pool, expected_pool)
    mapped = pool.unsqueeze(0).repeat(2, 1, 1, 1, 1)
    rows = [torch.stack([x, x / 2]) for x in (q, k, v, gk)]
    o = torch.vmap(lambda q, k, v, gk, pool: at.gated_linear_attention(q, k, v, gk, states=pool, final_slots=slots)[0])(
        *rows, mapped)
    close(o[0], at.gated_linear_attention(q, k, v, gk, states=pool, final_slots=slots)[0])
    close(mapped[0], pool)
    with pytest.raises(ValueError, match="no gradient"):
        at.gated_linear_attention(q.requires_grad_(), k, v, gk, states=pool, final_slots=slots)
    with pytest.raises(ValueError, match="no states"):
        at.gated_linear_attention(q, k, v, gk, final_slots=slots)


def test_gradients_reach_states_of_16_bits():
    torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")
    import attune_kernels.torch as at

    q, k, v, gk = (torch.from_numpy(x) for x in operands(2, 9))
    start = torch.randn(2, HEADS, KEYS, VALUES).bfloat16()
    wide, narrow = start.float().requires_grad_(), start.clone().requires_grad_()
    for state in (wide, narrow):
        o, final = at.gated_linear_attention(q, k, v, gk, initial_state=state, want_final_state=True)
        assert final.dtype == state.dtype
        (o.sum() + final.float().sum()).backward()
    assert narrow.grad.dtype == torch.bfloat16
    close(narrow.grad.float(), wide.grad, 1e-2)


def test_a_donated_pool_is_updated_where_it_lies():
    jax = pytest.importorskip("jax", "0.9.1", reason="JAX 0.9.1 or newer is not installed")
    import attune_kernels.jax as aj

    cpu = jax.devices("cpu")[0]
    q, k, v, gk, pool = (jax.device_put(x, cpu) for x in (*operands(2, 9), random(4, HEADS, KEYS, VALUES)))
    slots = jax.device_put(numpy.array([3, 1], numpy.int32), cpu)
    pool = pool + 0

    def step(pool):
        return aj.gated_linear_attention(q, k, v, gk, states=pool, final_slots=slots)

    expected_o, expected = jax.jit(step)(pool)
    address = pool.unsafe_buffer_pointer()
    o, updated = jax.jit(step, donate_argnums=0)(pool)
    assert pool.is_deleted() and updated.unsafe_buffer_pointer() == address
    close(o, expected_o)
    close(updated, expected)
    with pytest.raises(ValueError, match="no states"):
        aj.gated_linear_attention(q, k, v, gk, final_slots=slots)


def test_gradients_of_jax_reach_states_of_16_bits():
    jax = pytest.importorskip("jax", "0.9.1", reason="JAX 0.9.1 or newer is not installed")
    import attune_kernels.jax as aj

    q, k, v, gk = (jax.numpy.asarray(x) for x in operands(2, 9))
    start = jax.numpy.asarray(random(2, HEADS, KEYS, VALUES), jax.numpy.bfloat16)

    def loss(state):
        o, final = aj.gated_linear_attention(q, k, v, gk, initial_state=state, want_final_state=True)
        assert final.dtype == state.dtype
        return o.sum() + final.astype(jax.numpy.float32).sum()

    narrow, wide = jax.grad(loss)(start), jax.grad(loss)(start.astype(jax.numpy.float32))
    assert narrow.dtype == jax.numpy.bfloat16
    close(narrow.astype(jax.numpy.float32), wide, 1e-2)
