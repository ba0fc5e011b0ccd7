"""attune_kernels.torch: golden cases, gradients, and what PyTorch asks of an operator."""

import ctypes
import gc
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")

import attune_kernels as attune  # noqa: E402
import attune_kernels.torch as at  # noqa: E402
import golden  # noqa: E402

FORWARD = {
    "recurrent_attention": at.recurrent_attention,
    "gated_linear_attention": at.gated_linear_attention,
    "lightning_attention": at.lightning_attention,
}


def tensors(case, device, names):
    """A case's tensors; q, k, v and do in the type that they were written in."""
    made = {name: torch.from_numpy(case.tensors[name]).to(device) for name in names if name in case.tensors}
    if case.is_16_bit:
        made.update({name: made[name].bfloat16() for name in ("q", "k", "v", "do") if name in made})
    return made


def inputs(device, batch=2, tokens=33, heads=3, keys=16, values=24, seed=0, gated=True, requires_grad=True):
    """q, k, v, gk and an initial state, the same on every device."""
    generator = torch.Generator().manual_seed(seed)

    def made(*shape):
        return torch.randn(shape, generator=generator).to(device)

    q, k = made(batch, tokens, heads, keys), made(batch, tokens, heads, keys)
    v = made(batch, tokens, heads, values)
    gk = torch.nn.functional.logsigmoid(made(batch, tokens, heads, keys)) if gated else None
    state = made(batch, heads, keys, values)
    return [None if x is None else x.requires_grad_(requires_grad) for x in (q, k, v, gk, state)]


def naive(q, k, v, gk=None, initial_state=None, g=None, g_gamma=None, gv=None, scale=None, reverse=False):
    """The recurrence in float64, by torch's own operators: the reference of values and gradients."""
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=torch.float64, device=q.device)
    if initial_state is not None:
        state = state + initial_state.double()
    outputs = []
    for t in reversed(range(q.shape[1])) if reverse else range(q.shape[1]):
        decay = torch.zeros_like(state)
        if g is not None:
            decay = decay + g[:, t, :, None, None].double()
        if g_gamma is not None:
            decay = decay + g_gamma[..., None, None].double()
        if gk is not None:
            decay = decay + gk[:, t, :, :, None].double()
        if gv is not None:
            decay = decay + gv[:, t, :, None, :].double()
        state = state * decay.exp() + k[:, t, :, :, None].double() * v[:, t, :, None, :].double()
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t].double(), state))
    if reverse:
        outputs.reverse()
    return torch.stack(outputs, 1) * (q.shape[-1] ** -0.5 if scale is None else scale), state


def close(actual, expected, tolerance=2e-4):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


def gradients(outputs, leaves):
    weights = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape) for x in outputs]
    return torch.autograd.grad(outputs, leaves, weights, allow_unused=True)


# --- values and gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.names("rec_") + golden.names("gla_") + golden.names("ltn_"))
def test_golden_case(device, name):
    case = golden.Case(name)
    arguments = tensors(case, device, golden.ARGUMENTS)
    leaves = [key for key in golden.GRADIENTS if key in arguments]
    for key in leaves:
        arguments[key].requires_grad_()
    o, state = FORWARD[case.op](**arguments, **case.options(), want_final_state=True)
    case.check("o", o.detach().float().cpu())
    case.check("final_state", state.detach().cpu())
    weights = tensors(case, device, ("do", "dfinal_state"))
    found = torch.autograd.grad((o, state), [arguments[key] for key in leaves],
                                (weights["do"], weights["dfinal_state"]))
    expected = case.expected_gradients()
    for key, gradient in zip(leaves, found):
        assert gradient.dtype == arguments[key].dtype
        if key in expected:
            case.check("d" + key, gradient.float().cpu())


@pytest.mark.parametrize("name", golden.names("dec_"))
def test_golden_decode(device, name):
    case = golden.Case(name)
    given = tensors(case, device, ("q", "k", "v", "kv_cache", "slopes", "slot_indices"))
    state = given.pop("kv_cache")
    o = at.lightning_decode(given["q"], given["k"], given["v"], state, slopes=given["slopes"],
                            slot_indices=given["slot_indices"], **case.options())
    case.check("o", o.float().cpu())
    case.check("kv_cache", state.cpu())


def test_gradients_of_slopes(device):
    q, k, v, _, state = inputs(device, gated=False)
    slopes = torch.tensor([0.1, 0.5, 2.0], device=device, requires_grad=True)
    actual = gradients(at.lightning_attention(q, k, v, slopes=slopes, initial_state=state, want_final_state=True),
                       (q, slopes, state))
    expected = gradients(naive(q, k, v, initial_state=state, g_gamma=-slopes), (q, slopes, state))
    for a, e in zip(actual, expected):
        close(a, e, 1e-3)


def test_states_with_values_first(device):
    q, k, v, gk, state = inputs(device)
    o, final = at.gated_linear_attention(q, k, v, gk, initial_state=state, want_final_state=True)
    turned = state.detach().transpose(-1, -2).contiguous().requires_grad_()
    o_turned, final_turned = at.gated_linear_attention(q, k, v, gk, initial_state=turned, want_final_state=True,
                                                       state_v_first=True)
    assert final_turned.shape == (2, 3, 24, 16) and final_turned.is_contiguous()
    close(o_turned, o)
    close(final_turned.transpose(-1, -2), final)
    (expected,) = torch.autograd.grad(final.square().sum(), state)
    (actual,) = torch.autograd.grad(final_turned.square().sum(), turned)
    close(actual.transpose(-1, -2), expected)


def test_gradients_with_strides_of_zero_and_transposed_inputs(device):
    q, k, v, gk, _ = inputs(device)
    heads_first = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v, gk)]
    o, _ = at.gated_linear_attention(*(x.transpose(1, 2) for x in heads_first))
    o.sum().backward()  # hands in a gradient with strides (0, 0, 0, 0)
    naive(q, k, v, gk)[0].sum().backward()
    for turned, plain in zip(heads_first, (q, k, v, gk)):
        close(turned.grad.transpose(1, 2), plain.grad, 1e-3)


def test_a_last_dimension_with_strides(device):
    q, k, v, _, _ = inputs(device, gated=False, requires_grad=False)
    wide = [torch.stack((x, x), -1)[..., 0] for x in (q, k, v)]
    assert wide[0].stride(-1) == 2
    close(at.recurrent_attention(*wide)[0], naive(q, k, v)[0])


def test_only_what_needs_a_gradient_gets_one(device):
    q, k, v, gk, _ = inputs(device)
    k.requires_grad_(False)
    o, state = at.gated_linear_attention(q, k, v, gk)
    assert state is None
    o.square().sum().backward()
    assert k.grad is None and q.grad is not None and gk.grad is not None


def test_a_loss_of_the_state_alone(device):
    q, k, v, gk, state = inputs(device)
    _, final = at.gated_linear_attention(q, k, v, gk, initial_state=state, want_final_state=True)
    final.square().sum().backward()
    assert not q.grad.any()
    _, expected = naive(k, k, v, gk, state)
    close(k.grad, torch.autograd.grad(expected.square().sum(), k)[0], 1e-3)


def test_what_a_transform_has_left_behind_has_its_gradient(device):
    leaf, _, _, _, _ = inputs(device, gated=False)
    left = []

    def leaves_behind(x):
        left.append(leaf * x)
        return x.sum()

    torch.func.grad(leaves_behind)(torch.tensor(3.0, device=device))
    assert torch._C._functorch.is_functorch_wrapped_tensor(left[0])
    (actual,) = torch.autograd.grad(at.recurrent_attention(left[0], left[0], left[0])[0].sum(), leaf)
    x = leaf * 3.0
    close(actual, torch.autograd.grad(at.recurrent_attention(x, x, x)[0].sum(), leaf)[0], 0)


def test_a_second_derivative_is_refused(device):
    q, k, v, _, _ = inputs(device, gated=False)
    for loss in (lambda o: o.square().sum(), lambda o: o.sum()):  # with a d_o that has a gradient, and without
        (dq,) = torch.autograd.grad(loss(at.recurrent_attention(q, k, v)[0]), q, create_graph=True)
        with pytest.raises(RuntimeError, match="gradient of a gradient"):
            dq.sum().backward()
    slope = torch.func.grad(lambda k: at.recurrent_attention(q.detach(), k, v.detach())[0].sum())
    for mapped in (lambda k: slope(k).sum(), lambda k: torch.vmap(slope)(k[None]).sum()):
        with pytest.raises(RuntimeError, match="gradient of a gradient"):
            torch.func.grad(mapped)(k.detach())


@pytest.mark.parametrize("transform", [
    lambda f, x: torch.func.jvp(f, (x,), (x,)),
    lambda f, x: torch.func.jacfwd(f)(x),
    lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
], ids=["jvp", "jacfwd", "hessian"])
def test_forward_mode_is_refused(device, transform):
    q, k, v, _, state = inputs(device, tokens=3, gated=False, requires_grad=False)
    with pytest.raises(NotImplementedError, match="forward"):
        transform(lambda q: at.recurrent_attention(q, k, v)[0], q)
    with pytest.raises(NotImplementedError, match="recurrent_decode: .*forward"):
        torch.func.jvp(lambda q: at.recurrent_decode(q, k[:, 0], v[:, 0], state), (q[:, 0],), (q[:, 0],))
    with torch.autograd.forward_ad.dual_level():  # without a tangent it is a call like any other
        close(at.recurrent_attention(q, k, v)[0], naive(q, k, v)[0])


def test_errors_name_the_argument(device):
    q, k, v, gk, _ = inputs(device, requires_grad=False)
    for call, text in (
        (lambda: at.recurrent_attention(q, k[:, 1:], v), "k"),
        (lambda: at.recurrent_attention(q, k, v.double()), "v"),
        (lambda: at.recurrent_attention(q, k.bfloat16(), v), "k"),
        (lambda: at.recurrent_attention(q[0, 0], k, v), "dimensions, expected 4 each$"),
        (lambda: at.recurrent_attention(q, k, v, g=q.bool()), "g: dtype Bool, expected"),
        (lambda: at.recurrent_attention(q, k.to("meta"), v), "k is on meta"),
        (lambda: at.recurrent_attention(q, k, v, gk=gk.to("meta")), "gk is on meta"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], q.to("meta")), "state is on meta"),
        (lambda: at.recurrent_attention(q, k, v, config="tile_v=3"), "tile_v"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    for call, error, text in (
        (lambda: at.lightning_attention(q, k, v), ValueError, "exactly one of"),
        (lambda: at.recurrent_attention(q, [1.0], v), TypeError, "recurrent_attention: k: .*not list"),
        (lambda: at.recurrent_attention(q.cpu().numpy(), k, v), TypeError, "recurrent_attention: q: .*not ndarray"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], q, state_seed=-1), ValueError,
         "recurrent_decode: state_seed"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], q, state_seed="x"), TypeError, "state_seed: .*not str"),
        (lambda: at.lightning_attention(q, k, v, layer_idx=1.5, num_layers=4), TypeError, "layer_idx: .*not float"),
        (lambda: at.gated_linear_attention(q, k, v, None), TypeError, "gk: .*not NoneType"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0].clone().requires_grad_(), q), ValueError,
         "recurrent_decode: .*no gradient"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], q.clone().requires_grad_()), ValueError,
         "recurrent_decode: .*no gradient"),
        (lambda: at.recurrent_decode(q[:, 0], k[:, 0], 1.0, q), TypeError, "recurrent_decode: v: .*not float"),
        (lambda: at.recurrent_attention(q, k, v, cu_seqlens=[0, 33]), TypeError, "cu_seqlens: .*not list"),
        (lambda: at.recurrent_attention(q, k, v, scale=torch.ones((), requires_grad=True)), TypeError,
         "scale .*no gradient"),
        (lambda: torch.no_grad()(at.recurrent_attention)(q, k, v, g_gamma=[0.0]), TypeError, "g_gamma: .*not list"),
    ):
        with pytest.raises(error, match=text):
            call()


# --- what PyTorch asks of an operator --------------------------------------------------------------------


def raw_arguments(device, present):
    """Arguments of attune::forward with the optional ones named in `present`."""
    q, k, v, gk, state = inputs(device, batch=1, tokens=9, requires_grad=False)
    sequences = 2 if "cu_seqlens" in present else 1
    optional = {
        "g": gk.mean(-1), "g_gamma": -torch.rand(3, device=device), "gk": gk, "gv": -torch.rand_like(v),
        "slopes": torch.rand(3, device=device), "initial_state": state.repeat(sequences, 1, 1, 1),
        "cu_seqlens": torch.tensor([0, 4, 9], device=device), "cu_seqlens_host": torch.tensor([0, 4, 9]),
    }
    names = ("g", "g_gamma", "gk", "gv", "slopes", "initial_state", "cu_seqlens", "cu_seqlens_host")
    return (q, k, v, *(optional[name] if name in present else None for name in names),
            0.5, 0, 0, "reverse" in present, "want_final_state" in present, False, False, "", "")


CHOICES = [
    (),
    ("g", "g_gamma", "gk", "gv", "initial_state", "want_final_state"),
    ("slopes", "reverse", "want_final_state"),
    ("gk", "cu_seqlens", "cu_seqlens_host", "initial_state", "want_final_state"),
]


@pytest.mark.parametrize("present", CHOICES, ids="+".join)
def test_opcheck_forward(device, present):
    torch.library.opcheck(torch.ops.attune.forward.default, raw_arguments(device, present))


@pytest.mark.parametrize("present", CHOICES, ids="+".join)
def test_opcheck_backward(device, present):
    arguments = raw_arguments(device, present)
    o, state = torch.ops.attune.forward.default(*arguments)
    dstate = torch.randn_like(state) if "want_final_state" in present else None
    torch.library.opcheck(torch.ops.attune.backward.default, (torch.randn_like(o), dstate, *arguments))


@pytest.mark.parametrize("gated", [False, True])
def test_opcheck_decode(device, gated):
    q, k, v, gk, state = inputs(device, tokens=1, requires_grad=False, gated=gated)
    torch.library.opcheck(
        torch.ops.attune.decode.default,
        (q[:, 0], k[:, 0], v[:, 0], state, None, None, gk[:, 0] if gated else None, None, None,
         torch.tensor([1, -1], device=device) if gated else None, *[None] * 8, None, None, 0, 0, False, False, "", ""))


def test_compile_with_dynamic_tokens(device):
    @torch.compile(fullgraph=True, dynamic=True)
    def layer(q, k, v, gk):
        o, state = at.gated_linear_attention(q * 2, k, v, gk, want_final_state=True)
        return o.sin(), state

    for tokens in (33, 21, 40):
        q, k, v, gk, _ = inputs(device, tokens=tokens)
        actual, expected = layer(q, k, v, gk), naive(q * 2, k, v, gk)
        close(actual[0], expected[0].sin())
        for a, e in zip(gradients(actual, (q, k, v, gk)), gradients((expected[0].sin(), expected[1]), (q, k, v, gk))):
            close(a, e, 2e-3)
    assert torch._dynamo.utils.counters["frames"]["total"] == torch._dynamo.utils.counters["frames"]["ok"]


def test_compiled_decoding_updates_the_state(device):
    @torch.compile(fullgraph=True)
    def step(q, k, v, state):
        return at.recurrent_decode(q + 1, k, v, state)

    q, k, v, _, state = inputs(device, tokens=1, gated=False, requires_grad=False)
    expected_state = state.clone()
    expected = at.recurrent_decode(q[:, 0] + 1, k[:, 0], v[:, 0], expected_state)
    close(step(q[:, 0], k[:, 0], v[:, 0], state), expected)
    close(state, expected_state)


def per_sample(function, dims, samples, *arguments):
    parts = [function(*(x if d is None else x.select(d, i) for x, d in zip(arguments, dims))) for i in range(samples)]
    return [torch.stack(column) for column in zip(*parts)] if isinstance(parts[0], tuple) else torch.stack(parts)


@pytest.mark.parametrize("decay_is_mapped", [False, True])
def test_vmap_folds_into_the_batch(device, decay_is_mapped):
    samples = [inputs(device, seed=seed, requires_grad=False)[:4] for seed in range(3)]
    q, k, v, gk = (torch.stack(x) for x in zip(*samples))
    q = q.movedim(0, 2)  # mapped over a dimension in the middle
    k = k[0]             # the same for all
    decay = -torch.rand((3, 3) if decay_is_mapped else (3,), device=device)

    def layer(q, k, v, gk, decay):
        return at.recurrent_attention(q, k, v, gk=gk, g_gamma=decay, want_final_state=True)

    dims = (2, None, 0, 0, 0 if decay_is_mapped else None)
    actual = torch.vmap(layer, in_dims=dims)(q, k, v, gk, decay)
    for a, e in zip(actual, per_sample(layer, dims, 3, q, k, v, gk, decay)):
        close(a, e, 1e-4)


def test_vmap_of_packed_sequences(device):
    q, k, v, _, _ = inputs(device, batch=3, tokens=9, gated=False, requires_grad=False)
    bounds = torch.tensor([0, 4, 9], device=device)

    def layer(q, k, v):
        return at.recurrent_attention(q, k, v, cu_seqlens=bounds, want_final_state=True)

    rows = [x.unsqueeze(1) for x in (q, k, v)]
    for a, e in zip(torch.vmap(layer)(*rows), per_sample(layer, (0, 0, 0), 3, *rows)):
        close(a, e, 1e-4)


def test_vmap_of_decoding_updates_each_state(device):
    q, k, v, _, state = inputs(device, batch=4, tokens=1, gated=False, requires_grad=False)
    q, k, v = (x[:, 0].unsqueeze(1) for x in (q, k, v))
    state = state.unsqueeze(1)
    expected_state = state.clone()
    expected = torch.stack([at.recurrent_decode(q[i], k[i], v[i], expected_state[i]) for i in range(4)])
    close(torch.vmap(at.recurrent_decode)(q, k, v, state), expected)
    close(state, expected_state)
    with pytest.raises(RuntimeError, match="`state` for each sample"):
        torch.vmap(at.recurrent_decode, in_dims=(0, 0, 0, None))(q, k, v, state[0])


def test_func_grad_and_per_sample_gradients(device):
    samples = [inputs(device, seed=seed, requires_grad=False)[:3] for seed in range(3)]
    q, k, v = (torch.stack(x) for x in zip(*samples))
    slopes = torch.tensor([0.1, 0.5, 2.0], device=device)

    def loss(q, k, v, slopes):
        return at.lightning_attention(q, k, v, slopes=slopes)[0].square().sum()

    def naive_loss(q, k, v, slopes):
        return naive(q, k, v, g_gamma=-slopes)[0].square().sum()

    close(torch.func.grad(loss)(q[0], k[0], v[0], slopes), torch.func.grad(naive_loss)(q[0], k[0], v[0], slopes), 1e-3)
    each = torch.vmap(torch.func.grad(loss, argnums=(0, 3)), in_dims=(0, 0, 0, None))(q, k, v, slopes)
    for i in range(3):
        expected = torch.func.grad(naive_loss, argnums=(0, 3))(q[i], k[i], v[i], slopes)
        for a, e in zip(each, expected):
            close(a[i], e, 2e-3)


RANK = """
import sys
import torch
from torch import distributed, nn
import attune_kernels.torch as at

rank, ranks, file, device = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(16, 4 * 2 * 16)

    def forward(self, x):
        q, k, v, gate = self.projections(x).unflatten(-1, (4, 2, 16)).unbind(-3)
        return at.gated_linear_attention(q, k, v, nn.functional.logsigmoid(gate))[0]

torch.manual_seed(0)
alone, x = Layer().to(device), torch.randn(4, 21, 16).to(device)
shared = nn.parallel.DistributedDataParallel(alone)
shared(x.chunk(ranks)[rank]).square().mean().backward()
averaged = [p.grad.clone() for p in alone.parameters()]
alone.zero_grad()
alone(x).square().mean().backward()
for a, p in zip(averaged, alone.parameters()):
    torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)
distributed.destroy_process_group()
"""


def test_two_processes_share_their_gradients(device, tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path / "meeting"), device],
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    errors = [rank.communicate(timeout=200)[1] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), errors


# --- scopes and threads ----------------------------------------------------------------------------------


def choices_of_backward(device, thread):
    """How many configs of scopes were used in a backward pass that runs on another thread, or on this one."""
    q, k, v, _, _ = inputs(device, gated=False)
    op = "recurrent_attention.backward"
    kernel = attune.explain(op, "B=2 T=33 H=3 K=16 V=24", device=device)["kernel"]
    with attune.scope(op=op, config=f"kernel={kernel}"):
        o, _ = at.recurrent_attention(q, k, v)
    before = attune.counters()["overlays"]
    if thread:
        runner = threading.Thread(target=lambda: o.sum().backward())
        runner.start()
        runner.join()
    else:
        o.sum().backward()
    assert q.grad is not None
    return attune.counters()["overlays"] - before


@pytest.mark.parametrize("thread", [False, True])
def test_scopes_of_the_forward_pass_are_in_force_in_the_backward_pass(device, thread):
    assert choices_of_backward(device, thread) == 1


def test_a_config_is_of_the_forward_pass_alone(device):
    q, k, v, _, _ = inputs(device, gated=False)
    kernel = attune.explain("recurrent_attention", "B=2 T=33 H=3 K=16 V=24", device=device)["kernel"]
    at.recurrent_attention(q, k, v, config=f"kernel={kernel}", want_final_state=True)[0].sum().backward()
    expected = inputs(device, gated=False)[:3]
    naive(*expected)[0].sum().backward()
    close(q.grad, expected[0].grad, 1e-4)


def written_by_decoding(device):
    q, k, v, _, state = inputs(device, requires_grad=False)
    return state, lambda: at.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], state)


def written_by_packed_calls(device):
    q, k, v, _, states = inputs(device, batch=1, requires_grad=False)
    bounds, slot = torch.tensor([0, 33], device=device), torch.tensor([0], device=device)
    return states, lambda: at.recurrent_attention(q, k, v, cu_seqlens=bounds, states=states, initial_slots=slot,
                                                  final_slots=slot)


def written_by_the_core_modules_decoding(device):
    q, k, v, _, state = inputs(device, requires_grad=False)
    return state, lambda: attune.recurrent_decode(q[:, 0], k[:, 0], v[:, 0], state)


def written_by_the_core_modules_o(device):
    q, k, v, _, _ = inputs(device, requires_grad=False)
    o = torch.zeros_like(v)
    return o, lambda: attune.recurrent_attention(q, k, v, o=o)


@pytest.mark.parametrize("of", [written_by_decoding, written_by_packed_calls, written_by_the_core_modules_decoding,
                                written_by_the_core_modules_o])
def test_autograd_is_told_of_what_is_written_to(device, of):
    written, call = of(device)
    weight = torch.ones((), device=device, requires_grad=True)
    needs_it = (weight * written).sum()
    with torch.no_grad():
        call()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        needs_it.backward()


def test_results_that_no_memory_is_for():
    x = torch.zeros(1, 1, 1, 64).expand(1, 1 << 40, 8, 64)
    with pytest.raises(RuntimeError, match=r"no tensor of \[1, 1099511627776, 8, 64\]: .*memory"):
        at.recurrent_attention(x, x, x)


def test_results_are_shared_with_the_core_module(device):
    q, k, v, gk, _ = inputs(device, requires_grad=False)
    o, state = attune.recurrent_attention(q, k, v, gk=gk, want_final_state=True)
    assert type(o) is torch.Tensor and type(state) is torch.Tensor
    close(o, at.recurrent_attention(q, k, v, gk=gk, want_final_state=True)[0], 0)


def test_a_gradient_is_not_lost_without_a_word(device):
    q, k, v, _, _ = inputs(device, gated=False)
    with pytest.raises(ValueError, match="q requires a gradient"):
        attune.recurrent_attention(q, k, v)


def test_calls_and_gradients_keep_no_memory(device):
    """Bytes of the heap in use, by glibc's own count, to which other threads add now and then: what is kept is
    kept in each of several rounds."""

    class Counts(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("the C library does not count")
    libc.mallinfo2.restype = Counts
    q, k, v, gk, _ = inputs(device, batch=1, tokens=4)

    def calls(count):
        for _ in range(count):
            at.gated_linear_attention(q, k, v, gk)[0].sum().backward()
            q.grad = k.grad = v.grad = gk.grad = None
        gc.collect()
        return libc.mallinfo2().uordblks

    in_use = [calls(300) for _ in range(5)]
    assert min(b - a for a, b in zip(in_use, in_use[1:])) < 2400  # bytes: less than 8 a call
