"""attune_kernels over NumPy: results, errors, threads, forks, and what an import loads."""

import ast
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy
import pytest

import attune_kernels as attune
import golden
from conftest import skip_without_gpu

FORWARD = {
    "recurrent_attention": attune.recurrent_attention,
    "gated_linear_attention": attune.gated_linear_attention,
    "lightning_attention": attune.lightning_attention,
}
BACKWARD = {
    "recurrent_attention": attune.recurrent_attention_backward,
    "gated_linear_attention": attune.gated_linear_attention_backward,
    "lightning_attention": attune.lightning_attention_backward,
}


def inputs(batch=2, tokens=33, heads=3, keys=16, values=24, seed=0, dtype=numpy.float32):
    random = numpy.random.default_rng(seed)
    shapes = [(batch, tokens, heads, keys), (batch, tokens, heads, keys), (batch, tokens, heads, values)]
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def naive(q, k, v, gk=None, scale=None):
    """The recurrence in float64."""
    q, k, v = (x.astype(numpy.float64) for x in (q, k, v))
    batch, tokens, heads, keys = q.shape
    state = numpy.zeros((batch, heads, keys, v.shape[-1]))
    o = numpy.zeros((*q.shape[:-1], v.shape[-1]))
    for t in range(tokens):
        if gk is not None:
            state *= numpy.exp(gk[:, t].astype(numpy.float64))[..., None]
        state += k[:, t, :, :, None] * v[:, t, :, None, :]
        o[:, t] = numpy.einsum("bhk,bhkv->bhv", q[:, t], state) * (keys ** -0.5 if scale is None else scale)
    return o, state


# --- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.names("rec_") + golden.names("gla_") + golden.names("ltn_"))
def test_golden_case(name):
    case = golden.Case(name)
    if case.is_16_bit:
        pytest.skip("NumPy has no bfloat16")
    arguments = {**case.arguments(), **case.options()}
    o, final_state = FORWARD[case.op](**arguments, want_final_state=True)
    assert type(o) is numpy.ndarray and o.flags.writeable
    case.check("o", o)
    case.check("final_state", final_state)
    gradients = BACKWARD[case.op](**arguments, d_o=case.tensors["do"], dfinal_state=case.tensors["dfinal_state"])
    expected = case.expected_gradients()
    assert set(gradients) == {"d" + key for key in expected}
    for key in expected:
        case.check("d" + key, gradients["d" + key])


def test_golden_decode():
    case = golden.Case("dec_fp32")
    state = case.tensors["kv_cache"]
    o = attune.lightning_decode(case.tensors["q"], case.tensors["k"], case.tensors["v"], state,
                                slopes=case.tensors["slopes"], slot_indices=case.tensors["slot_indices"],
                                **case.options())
    case.check("o", o)
    case.check("kv_cache", state)


def test_strided_arguments_and_results_of_ones_own():
    q, k, v = inputs()
    expected, expected_state = naive(q, k, v)
    heads_first = [numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    o = numpy.empty((2, 33, 3, 24), numpy.float32)
    values_first = numpy.empty((2, 3, 24, 16), numpy.float32)
    result, state = attune.recurrent_attention(*heads_first, o=o, final_state=values_first.transpose(0, 1, 3, 2))
    assert result is o and state.base is values_first
    numpy.testing.assert_allclose(o, expected, rtol=0, atol=2e-4)
    numpy.testing.assert_allclose(values_first.transpose(0, 1, 3, 2), expected_state, rtol=0, atol=2e-4)


def test_half_precision_results_are_half_precision():
    q, k, v = inputs(dtype=numpy.float16)
    o, state = attune.recurrent_attention(q, k, v, want_final_state=True)
    assert o.dtype == numpy.float16 and state.dtype == numpy.float32
    numpy.testing.assert_allclose(o, naive(q, k, v)[0], rtol=0, atol=0.1)


def test_no_final_state_unless_wanted():
    o, state = attune.recurrent_attention(*inputs())
    assert state is None


def test_empty_sequences_are_legal():
    q, k, v = inputs(tokens=0)
    o, state = attune.recurrent_attention(q, k, v, want_final_state=True)
    assert o.shape == (2, 0, 3, 24) and not state.any()


def test_decoding_continues_a_prefill():
    q, k, v = inputs(tokens=20)
    expected, _ = naive(q, k, v)
    _, state = attune.recurrent_attention(q[:, :19], k[:, :19], v[:, :19], want_final_state=True)
    o = attune.recurrent_decode(q[:, 19], k[:, 19], v[:, 19], state)
    numpy.testing.assert_allclose(o, expected[:, 19], rtol=0, atol=2e-4)


def test_results_outlive_their_inputs_and_free_their_memory():
    q, k, v = inputs(tokens=64)
    o, _ = attune.recurrent_attention(q, k, v)
    expected = o.copy()
    del q, k, v
    gc.collect()
    numpy.testing.assert_array_equal(o, expected)


# --- errors: ten mistakes, and what they say ---------------------------------------------------------


def mistakes():
    q, k, v = inputs()
    read_only = numpy.zeros((2, 3, 16, 24), numpy.float32)
    read_only.flags.writeable = False
    token = (q[:, 0], k[:, 0], v[:, 0])
    call = attune.recurrent_attention
    return {
        "no array": (lambda: call([1.0], k, v), TypeError, "q.*list"),
        "a mask": (lambda: call(numpy.ma.array(q, mask=q > 0), k, v), TypeError, "q.*MaskedArray"),
        "missing": (lambda: call(q, k), TypeError, "needs the argument 'v'"),
        "unknown keyword": (lambda: call(q, k, v, gate=q), TypeError, "'gate'"),
        "twice": (lambda: call(q, k, v, **{"q": q}), TypeError, "two values for 'q'"),
        "wrong rank": (lambda: call(q[0, 0], k, v), ValueError, "q has 2 dimensions, expected 4$"),
        "wrong length": (lambda: call(q, k[:, :-1], v), ValueError, "k"),
        "wrong type": (lambda: call(q, k, v, gk=q.astype(numpy.float64)), ValueError, "gk"),
        "mixed types": (lambda: call(q, k.astype(numpy.float16), v), ValueError, "k"),
        "last dimension strided": (lambda: call(*(numpy.asfortranarray(x) for x in (q, k, v))), ValueError, "q"),
        "text for a number": (lambda: call(q, k, v, scale="x"), TypeError, "recurrent_attention: scale: a number"),
        "number for a text": (lambda: call(q, k, v, config=3), TypeError, "config: a text is expected, not int"),
        "text for a stream": (lambda: call(q, k, v, stream="x"), TypeError, "stream: an integer is expected, not str"),
        "type of NumPy's default": (lambda: call(q.astype(numpy.float64), k, v), ValueError, "q: dtype f64, expected"),
        "config that does not fit": (lambda: call(q, k, v, config="tile_v=3"), ValueError, "tile_v"),
        "unknown platform": (lambda: call(q, k, v, platform="abacus"), LookupError, "abacus"),
        "no decay": (lambda: attune.lightning_attention(q, k, v), ValueError, "exactly one of"),
        "two decays": (lambda: attune.lightning_attention(q, k, v, layer_idx=0, num_layers=2,
                                                          g_gamma=numpy.zeros(3, numpy.float32)),
                       ValueError, "2 are given"),
        "read-only state": (lambda: attune.recurrent_decode(*token, read_only), ValueError, "read-?only"),
        "state of another type": (lambda: attune.recurrent_decode(*token, numpy.zeros((2, 3, 16, 24))),
                                  ValueError, "state"),
        "text for a budget": (lambda: attune.tune("recurrent_attention", "B=1", budget_ms="5s"), TypeError,
                              "tune: budget_ms: an integer is expected, not str"),
        "unknown op": (lambda: attune.explain("attention", "B=1"), (ValueError, LookupError), "attention"),
        "unknown policy": (lambda: attune.policy("sometimes"), ValueError, "sometimes"),
        "unknown device": (lambda: attune.explain("recurrent_attention", "B=1", device="tpu"), ValueError, "tpu"),
    }


@pytest.mark.parametrize("name", list(mistakes()))
def test_a_mistake_is_named(name):
    make, error, text = mistakes()[name]
    with pytest.raises(error, match=text):
        make()


def test_strict_policy_raises_not_tuned():
    q, k, v = inputs(tokens=7, heads=1, keys=5, values=3)
    with attune.scope(policy="strict"), pytest.raises(attune.NotTuned):
        attune.recurrent_attention(q, k, v)
    attune.recurrent_attention(q, k, v)


def test_classes_of_errors():
    for error in (attune.Unsupported, attune.NotTuned, attune.CacheError, attune.ExecutionError, attune.DeviceFault):
        assert issubclass(error, RuntimeError)
    assert issubclass(attune.Unavailable, LookupError)


# --- choosing ----------------------------------------------------------------------------------------

PROBLEM = "B=2 T=33 H=3 K=16 V=24"


def test_the_default_policy_tunes_nothing():
    before = attune.counters()["tunings"]
    attune.recurrent_attention(*inputs(tokens=17))
    assert attune.counters()["tunings"] == before


def test_explain_names_the_kernel():
    told = attune.explain("recurrent_attention", PROBLEM)
    assert told["kernel"].startswith("simd.") and told["device"] == "cpu:0"
    assert any(kernel["supported"] for kernel in told["kernels"])


def test_a_config_is_in_force_inside_of_its_scope():
    outside = attune.explain("recurrent_attention", PROBLEM)
    with attune.scope(op="recurrent_attention", config="kernel=reference.recurrent_attention"):
        inside = attune.explain("recurrent_attention", PROBLEM)
    assert inside["kernel"] == "reference.recurrent_attention" != outside["kernel"]
    assert attune.explain("recurrent_attention", PROBLEM)["kernel"] == outside["kernel"]


def test_scopes_end_in_their_order():
    first = attune._core.begin_policy("heuristic")
    second = attune._core.begin_policy("db")
    with pytest.raises(ValueError):
        attune._core.end_scope(first)
    attune._core.end_scope(second)
    attune._core.end_scope(first)
    with pytest.raises(ValueError):
        attune._core.end_scope(first)


def test_scopes_follow_to_another_thread():
    told = []

    def work(scopes):
        begun = attune._core.attach_scopes(scopes)
        told.append(attune.explain("recurrent_attention", PROBLEM)["kernel"])
        attune._core.end_scope(begun)
        told.append(attune.explain("recurrent_attention", PROBLEM)["kernel"])

    with attune.scope(op="recurrent_attention", config="kernel=reference.recurrent_attention"):
        thread = threading.Thread(target=work, args=(attune._core.capture_scopes(),))
        thread.start()
        thread.join()
    assert told[0] == "reference.recurrent_attention" != told[1]


def test_tuning_stores_what_the_next_explanation_finds():
    problem = "B=1 T=16 H=1 K=16 V=16"
    told = attune.tune("recurrent_attention", problem, budget_ms=200)
    assert told["trials"] and told["median_us"] > 0
    found = attune.explain("recurrent_attention", problem)
    assert found["tier"] in ("memory", "persistent") and found["kernel"] == told["kernel"]
    attune.forget("recurrent_attention", problem)
    assert attune.explain("recurrent_attention", problem)["tier"] not in ("memory", "persistent")


def test_devices_and_databases():
    assert any(device.get("device") == "cpu:0" for device in attune.devices())
    assert all("path" in database for database in attune.databases())


def test_record_after_the_first_call_is_refused():
    attune.recurrent_attention(*inputs())
    with pytest.raises(RuntimeError, match="ATTUNE_RECORD"):
        attune.record("shapes.jsonl")


def test_minimax_slopes():
    slopes = attune.minimax_slopes(4, 0, 2)
    numpy.testing.assert_allclose(slopes, [2.0 ** (-2 * (h + 1)) * (1 + 1e-5) for h in range(4)], rtol=1e-6)
    with pytest.raises(ValueError, match="heads: got 0, expected >= 1"):
        attune.minimax_slopes(0, 0, 2)


# --- manuals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in attune.__all__ if name[0].islower()])
def test_a_function_has_a_manual_and_a_signature(name):
    function = getattr(attune, name)
    assert len(inspect.getdoc(function)) > 40
    inspect.signature(function)


def test_manuals_name_the_parameters_that_functions_take():
    q, k, v = inputs()
    for name in (*FORWARD, "recurrent_decode", "lightning_decode"):
        parameters = inspect.signature(getattr(attune, name)).parameters
        required = [p for p in parameters.values() if p.default is inspect.Parameter.empty]
        arguments = dict.fromkeys((p.name for p in required), None)
        optional = dict.fromkeys(p.name for p in parameters.values() if p.name not in arguments)
        with pytest.raises(TypeError, match=f"needs the argument '{required[0].name}'"):
            getattr(attune, name)(**arguments, **optional)  # an unknown one would be named instead


def test_stubs_have_the_functions_and_parameters_that_there_are():
    stub = ast.parse(Path(attune.__file__).with_name("__init__.pyi").read_text())
    typed = {node.name: node.args for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert set(typed) == {name for name in attune.__all__ if name[0].islower()}
    for name, arguments in typed.items():
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        assert names == list(inspect.signature(getattr(attune, name)).parameters), name


# --- processes and threads -----------------------------------------------------------------------------


def run(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


def test_an_import_loads_no_array_library():
    done = run("import sys, attune_kernels\n"
               "print([name for name in ('torch', 'jax', 'numpy', 'cupy', 'json') if name in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_record_writes_what_a_program_ran(tmp_path):
    file = tmp_path / "shapes.jsonl"
    done = run(f"import attune_kernels as attune\nattune.record({str(file)!r})\nimport numpy\n"
               "q = numpy.zeros((1, 19, 1, 16), numpy.float32)\nattune.recurrent_attention(q, q, q)")
    assert done.returncode == 0, done.stderr
    assert "T=19" in file.read_text() or '"T": 19' in file.read_text() or '"T":19' in file.read_text()


def test_the_environment_names_the_policy():
    done = run("import attune_kernels as attune, numpy\nq = numpy.zeros((1, 7, 1, 5), numpy.float32)\n"
               "try: attune.recurrent_attention(q, q, q)\nexcept attune.NotTuned: print('strict')",
               ATTUNE_POLICY="strict")
    assert done.stdout == "strict\n", done.stderr


def test_a_forked_child_calls_attune():
    done = run("""
import os, numpy, attune_kernels as attune
q = numpy.random.default_rng(0).standard_normal((2, 256, 3, 16), numpy.float32)
expected, _ = attune.recurrent_attention(q, q, q)
child = os.fork()
if child == 0:
    o, _ = attune.recurrent_attention(q, q, q)
    attune.recurrent_attention(q[:, :100], q[:, :100], q[:, :100])
    os._exit(0 if numpy.array_equal(o, expected) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.stdout == "0\n", done.stderr


def test_other_threads_run_while_a_call_does():
    q, k, v = inputs(batch=1, tokens=4096, heads=4, keys=64, values=64)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)

    begin = time.perf_counter()
    thread = threading.Thread(target=tick)
    thread.start()
    # Slow on purpose: the reference kernel takes a large part of a second.
    start = time.perf_counter()
    attune.recurrent_attention(q, k, v, platform="reference")
    end = time.perf_counter()
    done.set()
    thread.join()
    inside = [t for t in ticks if start < t < end]
    assert begin < start and len(inside) > 10, f"{len(inside)} steps of the other thread in {end - start:.3f} s"


def test_two_threads_make_their_first_call_at_once():
    q, k, v = inputs(tokens=50, seed=3)
    expected, _ = naive(q, k, v)
    results = [None, None]

    def work(i):
        results[i] = attune.recurrent_attention(q, k, v)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for o in results:
        numpy.testing.assert_allclose(o, expected, rtol=0, atol=2e-4)


# --- other libraries ---------------------------------------------------------------------------------------


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    cpu = jax.devices("cpu")[0]  # elsewhere its arrays cannot be written to
    q, k, v = inputs()
    o, state = attune.recurrent_attention(*(jax.device_put(x, cpu) for x in (q, k, v)), want_final_state=True)
    assert isinstance(o, jax.Array) and isinstance(state, jax.Array)
    numpy.testing.assert_allclose(o, naive(q, k, v)[0], rtol=0, atol=2e-4)
    half = [jax.device_put(x, cpu).astype(jax.numpy.bfloat16) for x in (q, k, v)]
    assert attune.recurrent_attention(*half)[0].dtype == jax.numpy.bfloat16
    with pytest.raises(ValueError, match="read-only"):
        attune.recurrent_decode(*(x[:, 0] for x in half), state)


class Foreign:
    """An array of a library that knows DLPack of old: no version, no namespace but NumPy's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)

    def __array_namespace__(self):
        return numpy

    @property
    def dtype(self):
        return self.array.dtype


def test_arrays_of_a_library_with_old_dlpack():
    q, k, v = inputs()
    o, _ = attune.recurrent_attention(*(Foreign(x) for x in (q, k, v)))
    numpy.testing.assert_array_equal(o, attune.recurrent_attention(q, k, v)[0])


def test_results_of_a_library_without_a_namespace_come_from_its_package(monkeypatch):
    package = types.ModuleType("shelf")
    package.empty, package.float32 = (lambda shape, dtype: numpy.empty(shape, dtype)), numpy.float32
    monkeypatch.setitem(sys.modules, "shelf", package)

    class Shelved(Foreign):
        __module__ = "shelf.arrays"
        __array_namespace__ = property()  # none, as CuPy 14

    q, k, v = inputs()
    o, _ = attune.recurrent_attention(*(Shelved(x) for x in (q, k, v)))
    numpy.testing.assert_array_equal(o, attune.recurrent_attention(q, k, v)[0])


def test_an_array_without_memory_of_a_kind_that_attune_knows():
    class Elsewhere(Foreign):
        def __dlpack__(self, **_):
            raise BufferError("this array is on the moon")

    q, k, v = inputs()
    with pytest.raises(ValueError, match="recurrent_attention: k: this array is on the moon"):
        attune.recurrent_attention(q, Elsewhere(k), v)


# --- arrays of a GPU ---------------------------------------------------------------------------------------


def torch_on_gpu():
    torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")
    skip_without_gpu("PyTorch", torch.cuda.is_available)
    stream = torch.cuda.Stream()

    def late(array, on):
        """The array, there only after a long time on a stream."""
        with torch.cuda.stream(on):
            made = torch.zeros(array.shape, device="cuda")
            source = torch.from_numpy(array).cuda()
            torch.cuda._sleep(20_000_000)  # cycles: about 10 ms
            return made.copy_(source)

    return (lambda array: torch.from_numpy(array).cuda(), lambda x: x.cpu().numpy(), lambda x: x.data_ptr(), stream,
            torch.cuda.stream, late)


def cupy_on_gpu():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    skip_without_gpu("CuPy", cupy.cuda.is_available)
    stream = cupy.cuda.Stream(non_blocking=True)
    wait = cupy.RawKernel(
        "extern \"C\" __global__ void wait(long long cycles) {"
        " long long start = clock64(); while (clock64() - start < cycles); }", "wait")

    def late(array, on):
        with on:
            made = cupy.zeros(array.shape, cupy.float32)
            source = cupy.asarray(array)
            wait((1,), (1,), (numpy.int64(20_000_000),))
            made[...] = source
            return made

    return cupy.asarray, cupy.asnumpy, lambda x: x.data.ptr, stream, lambda on: on, late


GPU_LIBRARIES = {"torch": torch_on_gpu, "cupy": cupy_on_gpu}


@pytest.mark.parametrize("library", GPU_LIBRARIES)
def test_arrays_of_a_gpu_are_shared_and_not_copied(library):
    to_gpu, to_host, address, _, _, _ = GPU_LIBRARIES[library]()
    arrays = inputs()
    expected, expected_state = naive(*arrays)
    q, k, v = (to_gpu(x) for x in arrays)
    o, state = attune.recurrent_attention(q, k, v, want_final_state=True)
    assert type(o) is type(q) and type(state) is type(q)
    numpy.testing.assert_allclose(to_host(o), expected, rtol=5e-5, atol=2e-4)
    numpy.testing.assert_allclose(to_host(state), expected_state, rtol=5e-5, atol=2e-4)
    own = to_gpu(numpy.zeros(expected.shape, numpy.float32))
    before = address(own)
    result, _ = attune.recurrent_attention(q, k, v, o=own)
    assert result is own and address(own) == before
    numpy.testing.assert_array_equal(to_host(own), to_host(o))
    kept = to_host(state).copy()
    row = attune.recurrent_decode(*(x[:, 0] for x in (q, k, v)), state)
    kept += arrays[1][:, 0, :, :, None] * arrays[2][:, 0, :, None, :]
    numpy.testing.assert_allclose(to_host(state), kept, rtol=5e-5, atol=2e-4)
    numpy.testing.assert_allclose(to_host(row), numpy.einsum("bhk,bhkv->bhv", arrays[0][:, 0], kept) / 4, rtol=5e-5,
                                  atol=2e-4)


@pytest.mark.parametrize("library", GPU_LIBRARIES)
def test_gradients_on_a_gpu_are_those_of_the_cpu(library):
    to_gpu, to_host, _, _, _, _ = GPU_LIBRARIES[library]()
    arrays = inputs()
    d_o = numpy.ones_like(arrays[2])
    expected = attune.recurrent_attention_backward(*arrays, d_o)
    actual = attune.recurrent_attention_backward(*(to_gpu(x) for x in arrays), to_gpu(d_o))
    assert set(actual) == set(expected)
    for name, gradient in actual.items():
        numpy.testing.assert_allclose(to_host(gradient), expected[name], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("library", GPU_LIBRARIES)
def test_work_is_queued_on_the_current_stream_of_the_library(library):
    to_gpu, to_host, _, stream, use, late = GPU_LIBRARIES[library]()
    q, k, v = inputs()
    k_there, v_there = to_gpu(k), to_gpu(v)
    attune.recurrent_attention(to_gpu(q), k_there, v_there)  # what is loaded once is loaded
    stream.synchronize()
    queued = late(q, stream)
    with use(stream):
        o, _ = attune.recurrent_attention(queued, k_there, v_there)
        later = o + 0
    stream.synchronize()
    numpy.testing.assert_allclose(to_host(later), naive(q, k, v)[0], rtol=5e-5, atol=2e-4)


def test_arrays_of_a_gpu_and_of_the_host_are_not_mixed():
    to_gpu = torch_on_gpu()[0]
    q, k, v = inputs()
    with pytest.raises(ValueError, match="recurrent_attention: k"):
        attune.recurrent_attention(to_gpu(q), k, to_gpu(v))
