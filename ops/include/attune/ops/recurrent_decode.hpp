// A step of gated recurrent attention for each row of a batch, on a pool of states: one token, or
// the few of speculative decoding.
//
//   S[slot][h] = exp(g + g_gamma + gk[i] + gv[j]) * S[slot][h] + k[i] v[j]
//   o[j]       = scale * sum_i q[i] S[slot][h][i,j]                          for each token in turn
//
//   tensor              shape                     type            notes
//   q                   [B,H,K] or [B,T,H,K]      f32, f16, bf16  T is 1 to 16; any strides, last
//                                                                 dimension contiguous
//   k                   [B,Hkv,K] or [B,T,Hkv,K]  q's             with T where q is; Hkv divides H
//   v                   [B,Hkv,V] or [B,T,Hkv,V]  q's
//   g                   [B,H] or [B,T,H]          f32 or q's      log decays, as in
//   gk                  [B,H,K] or [B,T,H,K]      f32 or q's      recurrent_attention.hpp
//   gv                  [B,H,V] or [B,T,H,V]      f32 or q's
//   g_gamma             [H]                       f32
//   state               [S,H,K,V]                 f32, f16, bf16  the pool, any strides; updated in
//                                                                 place
//   slot_indices        [B]                       i32, i64        row b uses slot slot_indices[b];
//                                                                 without it, slot b
//   kept_slots          [B] or [B,T]              i32, i64        see "Kept states"; not with
//   accepted            [B]                       i32, i64        slot_indices
//   committed.k         [B,R,Hkv,K]               q's             see "Replay"; R is 1 to 16
//   committed.v         [B,R,Hkv,V]               q's
//   committed.g         [B,R,H]                   f32 or q's      given as g is
//   committed.gk        [B,R,H,K]                 f32 or q's      given as gk is
//   committed.gv        [B,R,H,V]                 f32 or q's      given as gv is
//   committed.accepted  [B]                       i32, i64
//   o                   [B,H,V] or [B,T,H,V]      q's
//
// A negative slot index is padding: the row's output is zero and no state is touched. An index >= S
// is an error in host memory and counts as padding on a device; the same slot twice is an error in
// host memory and undefined on a device. The gradient is not defined for a step that updates its
// state in place.
//
// Several tokens. With a T, a row's tokens follow each other. A model that checks drafted tokens
// learns only afterwards how many of them are accepted; the state behind those may be had in three
// ways. Say the last step had tokens t0 t1 t2 t3, of which the model accepts t0 and t1:
//
//   Plain. The state after all T tokens is stored. For tokens that are certain.
//
//   Kept states. The state after token t of row b goes to slot kept_slots[b,t], and the row starts
//   from the one that the accepted tokens of the last step have led to, in the same row of the
//   table: kept_slots[b, accepted[b] - 1]. After t0 and t1 accepted[b] is 2. Each step writes T
//   states. The first token of a step is the model's own and none that was drafted, so accepted[b]
//   is 1 to T; 0 is an error. A first step starts where the prompt's state was put: in
//   kept_slots[b,0], with accepted[b] = 1. A negative slot keeps no state; where a row would start
//   from one, or accepted[b] is negative, the row is padding. No slot may stand twice in the table.
//
//     recurrent_decode(q, k, v, pool, {.kept_slots = table, .accepted = accepted});
//
//   Replay. `committed` is the last step's k, v and gates, and how many of its tokens were
//   accepted: committed.accepted[b] is 2 of R = 4. The state takes these first, that state is
//   stored, and the new tokens are computed from it without being stored: one state is read and one
//   written, whatever T. With 0 nothing is taken and the slot stays as it is, as in a first step,
//   whose committed tokens may be anything of the right shape. A negative number is padding.
//
//     recurrent_decode(q, k, v, pool,
//                      {.slot_indices = slots,
//                       .committed = CommittedTokens{.k = k_before, .v = v_before,
//                                                    .accepted = accepted}});
//
// States in 16 bits. The pool may be f16 or bf16: sums are fp32, and what is stored is rounded once
// a call, to nearest or, on request, stochastically (state_rounding.hpp), where a state decays so
// slowly that nearest rounding would lose what is written to it (docs/cpu.md has what it costs).
// Rounding of an f32 pool is none, whatever is asked for.
//
// Indices on a device are not read before a launch. There a row is padding, too, whose count of
// accepted tokens is out of range, and a slot >= S in kept_slots keeps no state.
//
// Precision as of o in recurrent_attention.hpp. A NaN or an infinity in a row of q, k, v or a gate
// stays in o and the slots of that row, and there in its head; one of k and v in the heads that
// read it.
//
// Sources and errors as in recurrent_attention.hpp.
#pragma once

#include <optional>

#include <attune/core/optional_view.hpp>
#include <attune/core/plan.hpp>
#include <attune/core/state_rounding.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::ops {

/// Tokens of the last step, for replay.
struct CommittedTokens {
  ConstTensorView k = {}, v = {};
  OptionalConstTensorView g = {}, gk = {}, gv = {};
  ConstTensorView accepted = {};
};

struct RecurrentDecodeOptions {
  OptionalConstTensorView g = {};
  OptionalConstTensorView g_gamma = {};
  OptionalConstTensorView gk = {};
  OptionalConstTensorView gv = {};
  OptionalConstTensorView slot_indices = {};
  OptionalConstTensorView kept_slots = {};  // with accepted
  OptionalConstTensorView accepted = {};
  std::optional<CommittedTokens> committed = {};
  StateRounding state_rounding = {};  // to nearest, or stochastic(seed)
  std::optional<double> scale = {};   // K^-1/2
  CallOptions call = {};
};

/// Updates `state` in place and returns o, a new tensor on q's device.
Tensor recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const RecurrentDecodeOptions& options = {});

/// The same into the caller's o, on the stream of options.call.
void recurrent_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const RecurrentDecodeOptions& options = {});

/// A choice for tensors like these, and the arguments to launch it with (see
/// plan_recurrent_attention).
Plan<RecurrentDecode> plan_recurrent_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const RecurrentDecodeOptions& options = {});
Plan<RecurrentDecode> plan_recurrent_decode(const TensorView& o, const ConstTensorView& q,
                                            const ConstTensorView& k, const ConstTensorView& v,
                                            const TensorView& state,
                                            const RecurrentDecodeOptions& options);
RecurrentDecodeArgs recurrent_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const RecurrentDecodeOptions& options = {});

}  // namespace attune::ops
