"""attune_kernels.jax_ejkernel: ejkernel's signatures, shapes and errors over attune_kernels.jax."""

import pytest

jax = pytest.importorskip("jax", "0.9.1", reason="JAX 0.9.1 or newer is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

import attune_kernels.jax as aj  # noqa: E402
import attune_kernels.jax_ejkernel as ej  # noqa: E402


def inputs(*leading, heads=2, keys=16, values=8, seed=0):
    random = numpy.random.default_rng(seed)
    q, k, gk = (jnp.asarray(random.standard_normal((*leading, heads, keys)), jnp.float32) for _ in range(3))
    v = jnp.asarray(random.standard_normal((*leading, heads, values)), jnp.float32)
    return q, k, v, -0.1 * abs(gk)


def same(actual, expected):
    for x, y in zip(actual, expected):
        numpy.testing.assert_array_equal(x, y)


def test_a_gate_of_each_channel_is_known_by_its_dimensions():
    q, k, v, gk = inputs(2, 11)
    expected = aj.recurrent_attention(q, k, v, gk=gk, want_final_state=True)
    same(ej.recurrent(q, k, v, gk), expected)
    same(ej.recurrent_gla(q, k, v, g=gk), expected)
    same(ej.gla_attention(q, k, v, gk, return_state=True), expected)
    same([ej.gla_attention(q, k, v, gk)], expected[:1])
    g = gk[..., 0]
    per_head = aj.recurrent_attention(q, k, v, g=g, want_final_state=True)
    same(ej.recurrent(q, k, v, g), per_head)
    same(ej.recurrent_attention(q, k, v, g, return_state=True), per_head)
    with pytest.raises(ValueError, match="gk is given too"):
        ej.recurrent(q, k, v, gk, gk=gk)


def test_packed_sequences_have_the_queries_rank():
    q, k, v, gk = inputs(1, 11)
    cu_seqlens = jnp.asarray([0, 4, 11])
    o, state = ej.recurrent(q, k, v, gk, cu_seqlens=cu_seqlens)
    flat_o, flat_state = ej.recurrent(q[0], k[0], v[0], gk[0], cu_seqlens=cu_seqlens)
    assert o.shape == (1, 11, 2, 8) and flat_o.shape == (11, 2, 8) and state.shape == (2, 2, 16, 8)
    same((flat_o, flat_state), (o[0], state))
    with pytest.raises(ValueError, match="batch size is expected to be 1"):
        ej.recurrent(*inputs(2, 11), cu_seqlens=cu_seqlens)


def test_initial_states_may_have_five_dimensions_and_16_bits():
    q, k, v, gk = inputs(2, 11)
    state = jnp.ones((2, 2, 16, 8), jnp.float16)
    expected = aj.recurrent_attention(q, k, v, gk=gk, initial_state=state.astype(jnp.float32), want_final_state=True)
    same(ej.recurrent_gla(q, k, v, gk, initial_state=state), expected)
    same(ej.recurrent_gla(q, k, v, gk, initial_state=state[None]), expected)
    gradient = jax.grad(lambda x: ej.recurrent_gla(q, k, v, gk, initial_state=x)[0].sum())(state)
    assert gradient.dtype == jnp.float16 and numpy.any(gradient)
    with pytest.raises(ValueError, match="number of initial states"):
        ej.recurrent(q, k, v, initial_state=state[:1])


def test_constant_decays_and_lightning_work_inside_of_jit():
    q, k, v, _ = inputs(2, 11)
    g_gamma = jnp.asarray([-0.1, -0.2])
    expected = aj.recurrent_attention(q, k, v, g_gamma=g_gamma, want_final_state=True)
    same(jax.jit(lambda x: ej.recurrent(q, k, v, g_gamma=x))(g_gamma), expected)
    same(ej.recurrent(q, k, v, g_gamma=g_gamma[None]), expected)
    lightning = aj.lightning_attention(q, k, v, layer_idx=1, num_layers=4, scale=1.0, reverse=True,
                                       want_final_state=True)
    same(jax.jit(lambda q: ej.lightning_attn(q, k, v, 1, 4, 1.0, reverse=True))(q), lightning)
    same(ej.lightning_attention(q, k, v, layer_idx=1, num_layers=4, softmax_scale=1.0, reverse=True,
                                return_state=True, platform="xla"), lightning)
