"""attune_kernels.fla against a recurrence in float64: signatures, results, errors, install()."""

import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")

import attune_kernels.fla as fla  # noqa: E402
from test_torch import close, gradients, inputs, naive  # noqa: E402

# The parameter lists of fla 0.5.2, name by name; "=" and the default where there is one.
SIGNATURES = {
    "chunk_gla": "q k v g scale=None initial_state=None output_final_state=False state_v_first=False "
                 "cu_seqlens=None cu_seqlens_cpu=None",
    "fused_recurrent_gla": "q k v gk=None gv=None scale=None initial_state=None output_final_state=False "
                           "reverse=False state_v_first=False cu_seqlens=None **kwargs",
    "fused_chunk_gla": "**kwargs",
    "chunk_simple_gla": "q k v g=None g_gamma=None scale=None initial_state=None output_final_state=False "
                        "state_v_first=False cu_seqlens=None cu_seqlens_cpu=None **kwargs",
    "fused_chunk_simple_gla": "q k v g=None g_gamma=None scale=None initial_state=None output_final_state=False "
                              "cu_seqlens=None",
    "fused_recurrent_simple_gla": "q k v g=None g_gamma=None scale=None initial_state=None "
                                  "output_final_state=False reverse=False state_v_first=False cu_seqlens=None "
                                  "**kwargs",
    "parallel_simple_gla": "q k v g=None scale=None output_attentions=False cu_seqlens=None cu_seqlens_cpu=None "
                           "**kwargs",
    "chunk_lightning_attn": "q k v layer_idx num_layers scale=None initial_state=None output_final_state=False "
                            "cu_seqlens=None **kwargs",
    "fused_recurrent_lightning_attn": "q k v layer_idx num_layers scale=None initial_state=None "
                                      "output_final_state=False reverse=False cu_seqlens=None **kwargs",
    "chunk_retention": "q k v scale=None initial_state=None output_final_state=False cu_seqlens=None **kwargs",
    "fused_chunk_retention": "q k v scale=None initial_state=None output_final_state=False cu_seqlens=None "
                             "**kwargs",
    "fused_recurrent_retention": "q k v scale=None initial_state=None output_final_state=False reverse=False "
                                 "state_v_first=False cu_seqlens=None **kwargs",
    "parallel_retention": "q k v scale=None output_attentions=False cu_seqlens=None **kwargs",
    "chunk_linear_attn": "q k v scale=None initial_state=None output_final_state=False normalize=True "
                         "cu_seqlens=None",
    "fused_chunk_linear_attn": "q k v scale=None initial_state=None output_final_state=False normalize=True "
                               "cu_seqlens=None",
    "fused_recurrent_linear_attn": "q k v scale=None initial_state=None output_final_state=False reverse=False "
                                   "normalize=False cu_seqlens=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    found = []
    for parameter in inspect.signature(getattr(fla, name)).parameters.values():
        text = "**kwargs" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        found.append(text if parameter.default is parameter.empty else f"{text}={parameter.default}")
    assert " ".join(found) == SIGNATURES[name]


def test_every_function_is_listed():
    assert set(fla.__all__) == set(SIGNATURES) | {"install"}


# --- results -----------------------------------------------------------------------------------------------

HEADS = torch.arange(3, dtype=torch.float64)
LIGHTNING = -(8 / 3 * (1 - 2 / 5)) * HEADS
RETENTION = torch.log1p(-torch.exp2(-5 - HEADS))


def cases(device):
    q, k, v, gk, h0 = inputs(device, values=16)
    g = torch.nn.functional.logsigmoid(torch.randn(2, 33, 3, generator=torch.Generator().manual_seed(9)).to(device))
    gv = gk.detach().flip(1).requires_grad_()
    g.requires_grad_()
    gamma = torch.tensor([-0.1, -0.5, -1.0], device=device)
    lightning, retention = LIGHTNING.to(device), RETENTION.to(device)
    state = {"initial_state": h0, "output_final_state": True}
    return {
        "chunk_gla": (fla.chunk_gla, (q, k, v, gk), state, {"gk": gk}),
        "fused_recurrent_gla": (fla.fused_recurrent_gla, (q, k, v, gk, gv), {**state, "reverse": True},
                                {"gk": gk, "gv": gv, "reverse": True}),
        "chunk_simple_gla": (fla.chunk_simple_gla, (q, k, v, g, gamma, 1), state,
                             {"g": g, "g_gamma": gamma, "scale": 1}),
        "fused_chunk_simple_gla": (fla.fused_chunk_simple_gla, (q, k, v, g), state, {"g": g}),
        "fused_recurrent_simple_gla": (fla.fused_recurrent_simple_gla, (q, k, v), {**state, "g": g, "reverse": True},
                                       {"g": g, "reverse": True}),
        "chunk_lightning_attn": (fla.chunk_lightning_attn, (q, k, v, 2, 5), state, {"g_gamma": lightning}),
        "fused_recurrent_lightning_attn": (fla.fused_recurrent_lightning_attn, (q, k, v, 2, 5),
                                           {**state, "reverse": True}, {"g_gamma": lightning, "reverse": True}),
        "chunk_retention": (fla.chunk_retention, (q, k, v), {**state, "chunk_size": 32}, {"g_gamma": retention}),
        "fused_chunk_retention": (fla.fused_chunk_retention, (q, k, v), state, {"g_gamma": retention}),
        "fused_recurrent_retention": (fla.fused_recurrent_retention, (q, k, v, 0.5), state,
                                      {"g_gamma": retention, "scale": 0.5}),
        "chunk_linear_attn": (fla.chunk_linear_attn, (q, k, v), {**state, "normalize": False}, {}),
        "fused_recurrent_linear_attn": (fla.fused_recurrent_linear_attn, (q, k, v), {**state, "reverse": True},
                                        {"reverse": True}),
    }


@pytest.mark.parametrize("name", list(cases("cpu")))
def test_values_and_gradients(device, name):
    function, arguments, options, meaning = cases(device)[name]
    leaves = [x for x in (*arguments, options["initial_state"], options.get("g"))
              if isinstance(x, torch.Tensor) and x.requires_grad]
    actual = function(*arguments, **options)
    expected = naive(*arguments[:3], initial_state=options["initial_state"], **meaning)
    for a, e in zip(actual, expected):
        close(a, e, 5e-4)
    assert actual[1].dtype == torch.float32
    for leaf, a, e in zip(leaves, gradients(actual, leaves), gradients(expected, leaves)):
        assert a.dtype == leaf.dtype
        close(a, e, 5e-3)


def test_states_with_values_first_and_the_old_keyword(device):
    q, k, v, gk, h0 = inputs(device, requires_grad=False)
    o, state = fla.chunk_gla(q, k, v, gk, None, h0, True)
    turned_o, turned = fla.chunk_gla(q, k, v, gk, None, h0.transpose(-1, -2).contiguous(), True, True)
    close(turned_o, o)
    close(turned.transpose(-1, -2), state)
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        _, old = fla.fused_recurrent_gla(q, k, v, gk, output_final_state=True, transpose_state_layout=True)
    assert old.shape == (2, 3, 24, 16)
    with pytest.raises(ValueError, match="Cannot pass both"):
        fla.fused_recurrent_gla(q, k, v, gk, state_v_first=True, transpose_state_layout=True)


def test_mixed_and_half_precision(device):
    q, k, v, gk, h0 = inputs(device, values=16)
    half = [x.detach().half().requires_grad_() for x in (q, k, v, gk, h0)]
    o, state = fla.fused_recurrent_gla(*half[:4], initial_state=half[4], output_final_state=True)
    assert o.dtype == torch.float16 and state.dtype == torch.float32
    for leaf, gradient in zip(half, gradients((o, state), half)):
        assert gradient.dtype == leaf.dtype == torch.float16
    mixed, _ = fla.chunk_gla(half[0], k, v, gk.double())
    assert mixed.dtype == v.dtype
    close(mixed, naive(q, k, v, gk)[0], 2e-2)


def test_packed_sequences_with_padding_behind_them(device):
    q, k, v, gk, _ = inputs(device, batch=1, tokens=40)
    bounds = torch.tensor([0, 13, 13, 30], dtype=torch.int32, device=device)
    o, state = fla.chunk_gla(q, k, v, gk, output_final_state=True, cu_seqlens=bounds)
    parts = [naive(*(x[:, begin:end] for x in (q, k, v, gk))) for begin, end in ((0, 13), (13, 30))]
    close(o[:, :30], torch.cat([part[0] for part in parts], 1))
    assert not o[:, 30:].any() and not state[1].any()
    close(state[[0, 2]], torch.cat([part[1] for part in parts]))
    (dv,) = torch.autograd.grad(o.sum(), v)
    assert dv[:, :30].any() and not dv[:, 30:].any()


def test_a_gradient_of_g_gamma(device):
    q, k, v, _, _ = inputs(device)
    gamma = torch.tensor([-0.1, -0.5, -1.0], device=device, requires_grad=True)
    actual = gradients(fla.chunk_simple_gla(q, k, v, g_gamma=gamma)[:1], (gamma,))
    close(actual[0], gradients(naive(q, k, v, g_gamma=gamma)[:1], (gamma,))[0], 1e-3)


def test_parallel_scores(device):
    q, k, v, gk, _ = inputs(device, values=16)
    g = gk.detach().mean(-1).requires_grad_()
    o, scores = fla.parallel_simple_gla(q, k, v, g, 0.5, output_attentions=True)
    close(torch.einsum("bhts,bshv->bthv", scores, v), o)
    assert fla.parallel_retention(q, k, v)[1] is None
    close(fla.parallel_retention(q, k, v)[0], fla.chunk_retention(q, k, v)[0])


@pytest.mark.parametrize("reverse", [False, True])
def test_normalized_linear_attention(device, reverse):
    q, k, v, _, _ = inputs(device, values=16)
    q, k = (x.detach().abs().add(0.01).requires_grad_() for x in (q, k))

    def expected_of(q, k, v, z=None):
        sums = k.double().flip(1).cumsum(1).flip(1) if reverse else k.double().cumsum(1)
        sums = sums if z is None else sums + z
        o, _ = naive(q, k, v, reverse=reverse)
        return o / ((q.double() * 16 ** -0.5 * sums).sum(-1, keepdim=True) + 1e-10), sums[:, :1] if reverse else sums[:, -1:]

    o, (kv, z) = fla.fused_recurrent_linear_attn(q, k, v, output_final_state=True, reverse=reverse, normalize=True)
    expected = expected_of(q, k, v)
    assert kv.shape == (2, 3, 16, 16)
    close(z, expected[1])
    close(o, expected[0])
    for a, e in zip(gradients((o, z), (q, k, v)), gradients(expected, (q, k, v))):
        close(a, e, 2e-3)


def test_normalized_packed_sequences_resume(device):
    q, k, v, _, _ = inputs(device, batch=1, tokens=30, requires_grad=False)
    q, k = q.abs() + 0.01, k.abs() + 0.01
    bounds = torch.tensor([0, 12, 30], device=device)
    whole, (kv, z) = fla.chunk_linear_attn(q, k, v, output_final_state=True, cu_seqlens=bounds)
    for i, (begin, end) in enumerate(((0, 12), (12, 30))):
        part = [x[:, begin:end] for x in (q, k, v)]
        o, (part_kv, part_z) = fla.chunk_linear_attn(*part, output_final_state=True)
        close(whole[:, begin:end], o)
        close(kv[i:i + 1], part_kv)
        close(z[i:i + 1], part_z)
        middle = (end - begin) // 2
        _, state = fla.chunk_linear_attn(*(x[:, :middle] for x in part), output_final_state=True)
        rest, _ = fla.chunk_linear_attn(*(x[:, middle:] for x in part), initial_state=state)
        close(rest, o[:, middle:])
    padded = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 5)) for x in (q, k, v)]  # tokens behind the last sequence
    o, (_, padded_z) = fla.chunk_linear_attn(*padded, output_final_state=True, cu_seqlens=bounds)
    close(o, torch.nn.functional.pad(whole, (0, 0, 0, 0, 0, 5)))
    close(padded_z, z)


def test_normalized_linear_attention_of_no_token(device):
    q, k, v, _, kv = inputs(device, tokens=0, requires_grad=False)
    z = torch.rand(2, 1, 3, 16, device=device)
    o, state = fla.chunk_linear_attn(q, k, v, initial_state=(kv, z), output_final_state=True)
    assert o.shape == v.shape
    for a, e in zip(state, (kv, z)):
        close(a, e, 0)


# --- errors ------------------------------------------------------------------------------------------------


def test_errors_are_those_of_fla(device):
    q, k, v, gk, h0 = inputs(device, requires_grad=False)
    bounds = torch.tensor([0, 10, 33], device=device)
    one = [x[:1] for x in (q, k, v, gk)]
    for call, error, text in (
        (lambda: fla.chunk_gla(q, k, v, gk, cu_seqlens=bounds), ValueError, "batch size is expected to be 1"),
        (lambda: fla.chunk_gla(*one, initial_state=h0[:1], cu_seqlens=bounds), ValueError, "number of initial states"),
        (lambda: fla.chunk_gla(q, k, v, gk, initial_state=h0.half()), AssertionError, "float32"),
        (lambda: fla.chunk_gla(q, k, v, gk[..., :-1]), AssertionError, "same shape"),
        (lambda: fla.chunk_gla(q, k, v[:, :-1], gk), AssertionError, "v must be of shape"),
        (lambda: fla.chunk_simple_gla(q, k, v, head_first=True), DeprecationWarning, "head_first"),
        (lambda: fla.chunk_simple_gla(q, k, v, chunk_size=48), ValueError, "power of 2, got 48"),
        (lambda: fla.parallel_simple_gla(*one[:3], output_attentions=True, cu_seqlens=bounds), AssertionError,
         "variable-length"),
        (lambda: fla.fused_chunk_gla(q=q), NotImplementedError, "chunk_gla"),
        (lambda: fla.chunk_gla(*one, cu_seqlens=[0, 33]), TypeError, "cu_seqlens: a tensor .* not list"),
    ):
        with pytest.raises(error, match=text):
            call()


# --- in fla's place ------------------------------------------------------------------------------------------


def test_install_replaces_what_is_imported_by_name(monkeypatch):
    def theirs(*_):
        raise AssertionError("fla's own function was called")

    modules = {name: types.ModuleType(name) for name in ("fla", "fla.ops", "fla.ops.gla", "fla.layers", "fla.layers.gla")}
    for name, module in modules.items():
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("fla.ops", "fla.ops.gla", "fla.layers.gla"):
        modules[name].chunk_gla = theirs
        modules[name].chunk_delta_rule = theirs
    replaced = fla.install()
    assert replaced == ["fla.layers.gla.chunk_gla", "fla.ops.chunk_gla", "fla.ops.gla.chunk_gla"]
    assert modules["fla.layers.gla"].chunk_gla is fla.chunk_gla
    assert modules["fla.ops"].chunk_delta_rule is theirs
    assert fla.install() == []


def test_compile_has_no_graph_break(device):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(q, k, v, g):
        return fla.chunk_simple_gla(q, k, v, g)[0]

    q, k, v, gk, _ = inputs(device)
    g = gk.detach().mean(-1)
    close(layer(q, k, v, g), naive(q, k, v, g=g)[0])
