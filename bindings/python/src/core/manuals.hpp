// What Python's help() says of each function. The first line is its signature, in the form that
// `inspect.signature` reads.
#pragma once

namespace attune_python {

constexpr const char* kRecurrentManual =
    R"(recurrent_attention(q, k, v, *, g=None, g_gamma=None, gk=None, gv=None, initial_state=None, states=None, initial_slots=None, final_slots=None, snapshot_every=None, snapshot_slots=None, state_seed=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, want_final_state=False, o=None, final_state=None, allow_tf32=False, platform=None, config=None, stream=None)
--

Gated recurrent (linear) attention: (o, final_state), the latter None unless wanted.

Formula, shapes and types are in help(attune_kernels). N is B, or the number of packed sequences, of
which sequence n is the tokens from cu_seqlens[n] to cu_seqlens[n+1]; cu_seqlens_host is the same in
host memory, where q is on a GPU and it is known. Packed arrays may have rank 3, [T,H,K]. scale None is
K ** -0.5. With reverse, tokens are taken from the last to the first.

On a pool, `states` [S,H,K,V], in place of initial_state and final_state: sequence n starts from slot
initial_slots[n] of it, from zero where that is negative, and its final state goes to slot final_slots[n],
nowhere where that is negative. Without initial_slots they are final_slots: in place. With snapshot_every =
E, a multiple of 64, the states after tokens E, 2 E, .. of sequence n go to slots snapshot_slots[n,0],
snapshot_slots[n,1], ..; negative ones are not kept. A slot that one sequence writes and another reads or
writes raises ValueError on a CPU and is undefined on a GPU. The pool is written to; it has no gradient.

States of 16 bits are rounded where they are stored, once a call: to nearest, or at random with
`state_seed`, 0 to 2^64 - 1, another one for each call.

o and final_state, where given, are written to and returned; final_state may be initial_state itself.
allow_tf32 lets f32 inputs be multiplied as TF32. platform is "simd", "cuda" or "reference", None for
all; config an override such as "tile_v=64", which raises ValueError where it does not fit. stream is the
cudaStream_t to queue on, None for the current one of q's library.)";

constexpr const char* kGlaManual =
    R"(gated_linear_attention(q, k, v, gk, *, g_gamma=None, initial_state=None, states=None, initial_slots=None, final_slots=None, snapshot_every=None, snapshot_slots=None, state_seed=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, want_final_state=False, o=None, final_state=None, allow_tf32=False, platform=None, config=None, stream=None)
--

Gated linear attention (GLA, arXiv:2312.06635): a decay gk [B,T,H,K] for each key channel.

As recurrent_attention otherwise.)";

constexpr const char* kLightningManual =
    R"(lightning_attention(q, k, v, *, layer_idx=None, num_layers=None, slopes=None, g_gamma=None, initial_state=None, states=None, initial_slots=None, final_slots=None, snapshot_every=None, snapshot_slots=None, state_seed=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, want_final_state=False, o=None, final_state=None, allow_tf32=False, platform=None, config=None, stream=None)
--

Lightning attention (arXiv:2401.04658): a decay for each head, constant in time.

It comes from exactly one of slopes [H] (the decay is -slopes), g_gamma [H] or [N,H], and layer_idx with
num_layers, which mean g_gamma[h] = -(8/H) (1 - layer_idx/num_layers) h. As recurrent_attention otherwise.)";

constexpr const char* kRecurrentBackwardManual =
    R"(recurrent_attention_backward(q, k, v, d_o=None, *, dfinal_state=None, g=None, g_gamma=None, gk=None, gv=None, initial_state=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, allow_tf32=False, platform=None, config=None, stream=None)
--

The gradient of recurrent_attention: a dict of "dq", "dk", "dv" in q's type, and in f32 "dg", "dg_gamma",
"dgk", "dgv" and "dinitial_state" for those that are given.

d_o [B,T,H,V] and dfinal_state [N,H,K,V] are the gradients of a loss with respect to the results; at least
one is given, the other counts as zero. The gradient of a gate of -inf is 0.)";

constexpr const char* kGlaBackwardManual =
    R"(gated_linear_attention_backward(q, k, v, gk, d_o=None, *, dfinal_state=None, g_gamma=None, initial_state=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, allow_tf32=False, platform=None, config=None, stream=None)
--

The gradient of gated_linear_attention, as recurrent_attention_backward's.)";

constexpr const char* kLightningBackwardManual =
    R"(lightning_attention_backward(q, k, v, d_o=None, *, dfinal_state=None, layer_idx=None, num_layers=None, slopes=None, g_gamma=None, initial_state=None, cu_seqlens=None, cu_seqlens_host=None, scale=None, reverse=False, allow_tf32=False, platform=None, config=None, stream=None)
--

The gradient of lightning_attention, as recurrent_attention_backward's, with "dslopes" where slopes are given.)";

constexpr const char* kRecurrentDecodeManual =
    R"(recurrent_decode(q, k, v, state, *, g=None, g_gamma=None, gk=None, gv=None, slot_indices=None, kept_slots=None, accepted=None, committed_k=None, committed_v=None, committed_g=None, committed_gk=None, committed_gv=None, committed_accepted=None, state_seed=None, scale=None, o=None, allow_tf32=False, platform=None, config=None, stream=None)
--

One token for each row of a batch, or a few: o [B,H,V] or [B,T,H,V], and state updated in place.

    q                   [B,H,K] or [B,T,H,K]  f32, f16, bf16  T is 1 to 16
    k, v                [B,Hkv,K], [B,Hkv,V]  q's             with a T where q has one; gates likewise
    g, gk, gv           [B,H] [B,H,K] [B,H,V] f32 or q's
    g_gamma             [H]                   f32
    state               [S,H,K,V]             f32, f16, bf16  any strides
    slot_indices        [B]                   i32, i64        None: row b uses slot b
    kept_slots          [B] or [B,T]          i32, i64        not with slot_indices
    accepted            [B]                   i32, i64        with kept_slots
    committed_k, .._v   [B,R,Hkv,K] [B,R,Hkv,V]  q's          R is 1 to 16
    committed_g and so on  [B,R,..]           f32 or q's      given as g, gk and gv are
    committed_accepted  [B]                   i32, i64        with committed_k

A negative slot is padding: its row of o is zero and no state is touched. Several tokens of a row follow
each other; for drafted tokens, of which some will be rejected, there are two ways. With kept_slots the state
after token t goes to slot kept_slots[b,t], and the next step starts from kept_slots[b, accepted[b] - 1].
With committed_k and so on, which are the last step's k, v and gates, the state takes the first
committed_accepted[b] of them and is stored, and the new tokens are computed from it without being stored.
state_seed is that of recurrent_attention. The gradient of a step that updates its state in place is not
defined.)";

constexpr const char* kLightningDecodeManual =
    R"(lightning_decode(q, k, v, state, *, layer_idx=None, num_layers=None, slopes=None, g_gamma=None, slot_indices=None, kept_slots=None, accepted=None, committed_k=None, committed_v=None, committed_accepted=None, state_seed=None, scale=None, o=None, allow_tf32=False, platform=None, config=None, stream=None)
--

As recurrent_decode, with the decays of lightning_attention.)";

}  // namespace attune_python
