"""attune_kernels.torch on a GPU: streams, graphs, and what torch.compile makes of them."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")

import attune_kernels.torch as at  # noqa: E402
from test_torch import close, gradients, inputs, naive  # noqa: E402

CYCLES = 20_000_000  # about 10 ms


def warmed_up(call):
    """Calls once on a stream of its own, as torch asks before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = call()
    torch.cuda.current_stream().wait_stream(stream)
    return result


def captured(call):
    """(a graph of the call, what the call returned in it)."""
    warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def late(stream, tensors):
    """Copies that are there only after a long time on a stream: elsewhere they read as zeros."""
    made = [torch.zeros_like(x) for x in tensors]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        for to, x in zip(made, tensors):
            to.copy_(x)
    return made


def test_calls_and_gradients_are_queued_on_the_current_stream(cuda):
    q, k, v, gk, _ = inputs(cuda, requires_grad=False)
    leaves = [x.clone().requires_grad_() for x in (q, k, v, gk)]
    expected = at.gated_linear_attention(*leaves)[0]
    expected_gradients = gradients((expected,), leaves)  # and what is loaded once is loaded
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    arrived = late(stream, (q, k, v, gk))
    with torch.cuda.stream(stream):
        arrived = [x.requires_grad_() for x in arrived]
        o, _ = at.gated_linear_attention(*arrived)
        found = gradients((o,), arrived)
    stream.synchronize()
    close(o, expected, 0)
    for a, e in zip(found, expected_gradients):
        close(a, e, 0)


FIRST_BACKWARD = """
import torch
import attune_kernels.torch as at
leaves = [torch.randn(2, 193, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(4)]
o, _ = at.gated_linear_attention(*leaves[:3], torch.nn.functional.logsigmoid(leaves[3]))
d_o = torch.ones_like(o)
gradients = torch.autograd.grad(o, leaves[:3], d_o)
assert all(x.isfinite().all() for x in gradients)
"""


def test_autograds_thread_begins_without_a_context(cuda):
    subprocess.run([sys.executable, "-c", FIRST_BACKWARD], check=True, timeout=100)


def test_tensors_of_another_device_are_named(cuda):
    q, k, v, gk, state = inputs(cuda, batch=1, requires_grad=False)
    given = {"q": q, "k": k, "v": v, "gk": gk, "initial_state": state, "cu_seqlens": torch.tensor([0, 33], device=cuda)}
    for name in given:
        named = "k" if name == "q" else name  # q says where the call is
        with pytest.raises(RuntimeError, match=f"recurrent_attention: {named}: on device .*expected"):
            at.recurrent_attention(**{**given, name: given[name].cpu()})
    row = [x[:, 0] for x in (q, k, v)]
    slot = given["cu_seqlens"][:1]
    for name, pool, slots in (("state", state.cpu(), slot), ("slot_indices", state, slot.cpu())):
        with pytest.raises(RuntimeError, match=f"recurrent_decode: {name}: on device .*expected"):
            at.recurrent_decode(*row, pool, slot_indices=slots)


def test_a_graph_computes_what_its_inputs_hold_by_then(cuda):
    q, k, v, gk, _ = inputs(cuda, batch=1, requires_grad=False)
    bounds = torch.tensor([0, 20, 33], device=cuda)
    state = torch.randn(2, 3, 16, 24, device=cuda)

    def call():
        return at.gated_linear_attention(q, k, v, gk, initial_state=state, cu_seqlens=bounds, want_final_state=True)

    graph, (o, final) = captured(call)
    for seed, middle in ((1, 5), (2, 33)):
        others = inputs(cuda, batch=1, seed=seed, requires_grad=False)
        for to, x in zip((q, k, v, gk), others):
            to.copy_(x)
        bounds.copy_(torch.tensor([0, middle, 33]))
        graph.replay()
        for n, (begin, end) in enumerate(((0, middle), (middle, 33))):
            if begin == end:
                close(final[n], state[n])
                continue
            expected, expected_state = naive(*(x[:, begin:end] for x in (q, k, v, gk)), state[n:n + 1])
            close(o[:, begin:end], expected)
            close(final[n:n + 1], expected_state)


def test_a_graph_of_decoding_updates_its_pool_each_time(cuda):
    q, k, v, gk, state = inputs(cuda, tokens=12, requires_grad=False)
    pool = state.clone()
    row = [x[:, 0].clone() for x in (q, k, v, gk)]
    slots = torch.tensor([0, 1], device=cuda, dtype=torch.int32)

    def call():
        return at.recurrent_decode(*row[:3], pool, gk=row[3], slot_indices=slots)

    graph, o = captured(call)
    pool.copy_(state)
    expected, expected_state = naive(q, k, v, gk, state)
    for t in range(12):
        for to, x in zip(row, (q, k, v, gk)):
            to.copy_(x[:, t])
        graph.replay()
        close(o, expected[:, t])
    close(pool, expected_state)


def test_a_graph_of_a_training_step(cuda):
    leaves = list(inputs(cuda))[:4]
    d_o = torch.randn(2, 33, 3, 24, device=cuda)

    def call():
        o, _ = at.gated_linear_attention(*leaves)
        return o, torch.autograd.grad(o, leaves, d_o)

    graph, (o, found) = captured(call)
    with torch.no_grad():
        for to, x in zip(leaves, inputs(cuda, seed=5)[:4]):
            to.copy_(x)
    graph.replay()
    expected = naive(*leaves)[0]
    close(o, expected)
    for a, e in zip(found, torch.autograd.grad(expected, leaves, d_o.double())):
        close(a, e, 2e-3)


def test_workspace_and_results_are_of_torchs_allocator(cuda):
    q, k, v, _, _ = inputs(cuda, tokens=512, gated=False, requires_grad=False)
    at.recurrent_attention(q, k, v)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        at.recurrent_attention(q, k, v)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free


def test_compiled_calls_become_graphs(cuda):
    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def layer(q, k, v, gk):
        return at.gated_linear_attention(q * 2, k, v, gk)[0].sin()

    for seed in range(4):  # the first are recorded, the rest replayed
        q, k, v, gk, _ = inputs(cuda, seed=seed, requires_grad=False)
        torch.compiler.cudagraph_mark_step_begin()
        close(layer(q, k, v, gk), naive(q * 2, k, v, gk)[0].sin())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gates", [("g",), ("gk",), ("gk", "gv"), ("g_gamma",)], ids="+".join)
def test_gradients_of_long_sequences_are_the_recurrences(cuda, dtype, gates):
    """Sizes that kernels on tiles take, against float64: relative RMS errors of recurrent_attention.hpp."""
    q, k, v, gk, state = inputs(cuda, tokens=193, heads=4, keys=64, values=64, requires_grad=False)
    made = {"g": gk.mean(-1) / 4, "gk": gk / 4, "gv": gk.flip(1) / 4,
            "g_gamma": torch.linspace(-0.5, 0, 4, device=cuda)}
    q, k, v = (x.to(dtype) for x in (q / 4, k / 4, v))
    chosen = {name: made[name].clone() for name in gates}
    leaves = [x.requires_grad_() for x in (q, k, v, state, *chosen.values())]
    actual = at.recurrent_attention(q, k, v, initial_state=state, want_final_state=True, **chosen)
    expected = naive(q, k, v, initial_state=state, **chosen)
    weights = [torch.randn_like(x) for x in actual]
    wide = [x.double() for x in weights]
    found = (*actual, *torch.autograd.grad(actual, leaves, weights))
    wanted = (*expected, *torch.autograd.grad(expected, leaves, wide))
    for name, a, e in zip(("o", "state", "dq", "dk", "dv", "dstate", *gates), found, wanted):
        a, e = a.double(), e.double()
        allowed = 2e-5 if dtype is torch.float32 else 5e-3
        if name in gates:
            allowed = max(1e-4 if dtype is torch.float32 else 2e-2, 20 * allowed)
        elif dtype is not torch.float32 and name in ("dq", "dk", "dv"):
            allowed = 1e-2  # the naive gradient is rounded to 16 bits, too
        error = (a - e).square().mean().sqrt() / e.square().mean().sqrt()
        assert error <= allowed, f"{name}: relative RMS error {error:.3g}, {allowed:.3g} is allowed"
