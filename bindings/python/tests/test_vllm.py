"""attune_kernels.vllm against the plain recurrence: batches as vLLM makes them, states, install()."""

import inspect
import sys
import types

import pytest

torch = pytest.importorskip("torch", "2.10", reason="PyTorch 2.10 or newer is not installed")

import attune_kernels.vllm as ours  # noqa: E402
from test_torch import close  # noqa: E402

HEADS, SIZE = 4, 32
SLOPES = torch.tensor([0.9, 0.5, 0.1, 0.01])


def skip_if_unsupported(device, call):
    """The call's result; pools are for devices with kernels that have them."""
    try:
        return call()
    except RuntimeError as error:
        if device == "cuda" and "no kernel" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise


def random(device, *shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device) / 2


def recurrence(q, k, v, state):
    """(o [T, H, E], the state after each token) of one sequence [T, H, ..], in float64, without a scale."""
    decay = torch.exp(-SLOPES.to(q.device).double())[:, None, None]
    state, o, states = state.double(), [], []
    for t in range(q.shape[0]):
        state = state * decay + k[t].double()[..., None] * v[t].double()[:, None]
        states.append(state)
        o.append(torch.einsum("hd,hde->he", q[t].double(), state))
    return torch.stack(o), states


def batch(device, pool_dtype, query_lengths, seq_lengths, decodes):
    """q, k, v [tokens, H, D], a pool, a slot a sequence, and vLLM's metadata."""
    tokens = sum(query_lengths)
    q, k, v = (random(device, tokens, HEADS, SIZE, seed=i) for i in range(3))
    pool = random(device, len(query_lengths) + 3, HEADS, SIZE, SIZE, seed=9).to(pool_dtype)
    slots = torch.arange(len(query_lengths), device=device, dtype=torch.int32).flip(0) + 2
    bounds = torch.tensor([0, *query_lengths], device=device).cumsum(0).to(torch.int32)
    decode_tokens = sum(query_lengths[:decodes])
    metadata = types.SimpleNamespace(
        num_decodes=decodes, num_prefills=len(query_lengths) - decodes, num_decode_tokens=decode_tokens,
        num_prefill_tokens=tokens - decode_tokens, query_start_loc=bounds,
        seq_lens=torch.tensor(seq_lengths, device=device, dtype=torch.int32))
    return q, k, v, pool, slots, metadata


def never(*_, **__):
    raise AssertionError("vLLM's own function was called")


def check_batch(hidden, q, k, v, before, after, slots, query_lengths, seq_lengths, tolerance):
    begin = 0
    for n, length in enumerate(query_lengths):
        rows = slice(begin, begin + length)
        start = before[slots[n]] if seq_lengths[n] > length else torch.zeros_like(before[0])
        o, states = recurrence(q[rows], k[rows], v[rows], start)
        close(hidden[rows].unflatten(1, (HEADS, SIZE)), o)
        close(after[slots[n]], states[-1], tolerance)
        begin += length
    assert torch.equal(after[:2], before[:2])


@pytest.mark.parametrize("pool_dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_prompts_and_decoding_rows_are_one_call(device, pool_dtype):
    lengths, seq_lengths = [1, 1, 300, 64, 7], [40, 2, 300, 1000, 7]  # decode, decode, new, continued, new
    q, k, v, pool, slots, metadata = batch(device, pool_dtype, lengths, seq_lengths, decodes=2)
    before = pool.clone()
    ours.clear_linear_attention_cache_for_new_sequences(pool, slots, metadata)
    hidden = skip_if_unsupported(device, lambda: ours.linear_attention_prefill_and_mix(
        q=q, k=k, v=v, kv_cache=pool, state_indices_tensor=slots, attn_metadata=metadata,
        slope_rate=SLOPES.reshape(HEADS, 1, 1).to(device), block_size=256, decode_fn=never, prefix_fn=never,
        layer_idx=3))
    assert hidden.shape == (373, HEADS * SIZE)
    check_batch(hidden, q, k, v, before, pool, slots, lengths, seq_lengths,
                1e-4 if pool_dtype == torch.float32 else 2 ** -7)


def test_rows_with_drafted_tokens_are_left_to_their_own_function(device):
    lengths, seq_lengths = [3, 3, 20], [50, 60, 20]
    q, k, v, pool, slots, metadata = batch(device, torch.float32, lengths, seq_lengths, decodes=2)
    metadata.state_indices_tensor_p = slots[2:]
    before, drafted = pool.clone(), torch.full((6, HEADS * SIZE), 7.0, device=device)
    hidden = skip_if_unsupported(device, lambda: ours.linear_attention_prefill_and_mix(
        q, k, v, pool, slots.unsqueeze(1).expand(3, 3), metadata, SLOPES.to(device), 256, lambda *_: drafted, never))
    assert torch.equal(hidden[:6], drafted)
    o, states = recurrence(q[6:], k[6:], v[6:], torch.zeros_like(before[0]))
    close(hidden[6:].unflatten(1, (HEADS, SIZE)), o)
    close(pool[slots[2]], states[-1])
    pool[slots[2]] = before[slots[2]]
    assert torch.equal(pool, before)


def test_padded_slots_and_a_batch_of_nothing(device):
    q, k, v, pool, slots, metadata = batch(device, torch.float32, [5, 4], [5, 9], decodes=0)
    slots[1] = -1
    before = pool.clone()
    hidden = skip_if_unsupported(device, lambda: ours.linear_attention_prefill_and_mix(
        q, k, v, pool, slots, metadata, SLOPES.to(device), 256, never, never))
    close(hidden[:5].unflatten(1, (HEADS, SIZE)), recurrence(q[:5], k[:5], v[:5], torch.zeros_like(before[0]))[0])
    changed = (pool != before).flatten(1).any(1).nonzero().flatten().tolist()
    assert changed == [int(slots[0])]
    metadata = types.SimpleNamespace(num_decodes=0, num_prefills=0, num_decode_tokens=0, num_prefill_tokens=0,
                                     query_start_loc=slots[:1] * 0, seq_lens=slots[:0])
    empty = ours.linear_attention_prefill_and_mix(q, k, v, pool, slots, metadata, SLOPES.to(device), 256, never, never)
    assert empty.shape == (0, HEADS * SIZE)


def test_prefill_and_then_decoding_is_one_long_recurrence(device):
    q, k, v, pool, slots, metadata = batch(device, torch.float32, [30], [30], decodes=0)
    prompt = types.SimpleNamespace(**{**vars(metadata), "num_prefill_tokens": 25,
                                      "query_start_loc": metadata.query_start_loc.clamp(max=25),
                                      "seq_lens": metadata.seq_lens.clamp(max=25)})
    skip_if_unsupported(device, lambda: ours.linear_attention_prefill_and_mix(
        q, k, v, pool, slots, prompt, SLOPES.to(device), 256, never, never))
    o, states = recurrence(q, k, v, torch.zeros_like(pool[0]))
    for t in range(25, 30):
        hidden = ours.linear_attention_decode(q, k, v, pool, SLOPES.to(device), slots, q_start=t, q_end=t + 1,
                                              slot_start=0, slot_end=1)
        close(hidden.unflatten(1, (HEADS, SIZE)), o[t:t + 1])
    close(pool[slots[0]], states[-1])


@pytest.mark.parametrize("tokens", [0, 1, 256, 600])
def test_lightning_attention_has_the_state_before_each_block(device, tokens):
    q, k = (random(device, 2, HEADS, tokens, SIZE, seed=i) for i in range(2))
    v = random(device, 2, HEADS, tokens, 16, seed=2)
    history = random(device, 2, HEADS, SIZE, 16, seed=3)
    before = history.clone()
    o, kv = ours.lightning_attention(q, k, v, SLOPES.reshape(HEADS, 1, 1).to(device), kv_history=history)
    blocks = -(-tokens // 256)
    assert o.shape == (2, HEADS, tokens, 16) and kv.shape == (2, HEADS, blocks + 1, SIZE, 16)
    assert torch.equal(history, before)
    for n in range(2 if tokens else 0):
        expected, states = recurrence(*(x[n].transpose(0, 1) for x in (q, k, v)), history[n])
        close(o[n].transpose(0, 1), expected)
        for i in range(blocks):
            close(kv[n, :, i + 1], states[min(256 * (i + 1), tokens) - 1])
    close(kv[:, :, 0], history, 0)
    if tokens == 1:
        close(ours.lightning_attention(q, k, v, SLOPES.to(device))[1][:, :, 0], torch.zeros_like(history), 0)


def test_linear_decode_is_one_step(device):
    q, k, v = (random(device, 3, HEADS, 1, SIZE, seed=i) for i in range(3))
    pool = random(device, 5, HEADS, SIZE, SIZE, seed=4)
    before = pool.clone()
    slots = torch.tensor([4, -1, 0], device=device)
    o = ours.linear_decode_forward_triton(q, k, v, pool, SLOPES.to(device), slots)
    assert o.shape == (3, HEADS * SIZE) and not o[1].any()
    for row, slot in ((0, 4), (2, 0)):
        expected, states = recurrence(*(x[row].transpose(0, 1) for x in (q, k, v)), before[slot])
        close(o[row].unflatten(0, (HEADS, SIZE)), expected[0])
        close(pool[slot], states[-1])
    assert torch.equal(pool[1:4], before[1:4])


# --- as vLLM has them, and in their place -------------------------------------------------------------------

SIGNATURES = {
    "lightning_attention": "q k v ed block_size=256 kv_history=None",
    "linear_decode_forward_triton": "q k v kv_caches slope_rate slot_idx BLOCK_SIZE=32",
    "linear_attention_prefill_and_mix": "q k v kv_cache state_indices_tensor attn_metadata slope_rate block_size "
                                        "decode_fn prefix_fn layer_idx=None",
    "linear_attention_decode": "q k v kv_cache slope_rate state_indices_tensor q_start=0 q_end=None slot_start=0 "
                               "slot_end=None block_size=32",
    "clear_linear_attention_cache_for_new_sequences": "kv_cache state_indices_tensor attn_metadata",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(ours, name)).parameters.values()
    assert " ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters) == SIGNATURES[name]


def pretend_vllm(monkeypatch, functions):
    """Modules of a vLLM: the layer's, and one that imports from it by name."""
    linear = "vllm.model_executor.layers.mamba.linear"
    names = ["vllm", "vllm.model_executor", "vllm.model_executor.layers", "vllm.model_executor.layers.mamba", linear,
             f"{linear}.minimax_linear_attn", f"{linear}.bailing_linear_attn"]
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    for name in names[-2:]:
        for function in functions:
            setattr(sys.modules[name], function, never)
    return sys.modules[names[-2]], sys.modules[names[-1]]


def test_install_replaces_what_is_imported_by_name(monkeypatch):
    minimax, bailing = pretend_vllm(monkeypatch, ["linear_attention_prefill_and_mix", "linear_attention_decode"])
    replaced = ours.install()
    assert [name.rpartition(".")[2] for name in replaced] == [
        "linear_attention_decode", "linear_attention_prefill_and_mix"] * 2
    for module in (minimax, bailing):
        assert module.linear_attention_prefill_and_mix is ours.linear_attention_prefill_and_mix
    assert ours.install() == []


def test_the_plugin_asks_before_it_changes_another_package(monkeypatch):
    minimax, _ = pretend_vllm(monkeypatch, ["linear_attention_decode"])
    monkeypatch.delenv("ATTUNE_VLLM", raising=False)
    ours.register()
    assert minimax.linear_attention_decode is never
    monkeypatch.setenv("ATTUNE_VLLM", "1")
    ours.register()
    ours.register()
    assert minimax.linear_attention_decode is ours.linear_attention_decode


def test_a_vllm_without_these_functions_is_an_error(monkeypatch):
    pretend_vllm(monkeypatch, [])
    with pytest.raises(RuntimeError, match="linear_attention_decode"):
        ours.install()
