// Gated recurrent (linear) attention.
//
//   S_t[i,j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i,j] + k_t[i] v_t[j]      [K,V]
//   o_t[j]   = scale * sum_i q_t[i] S_t[i,j]
//
// for each sequence n and query head h: decay, then write, then read. Every gate is optional; gates
// are natural logarithms of the decay, added up, and not negated (0 keeps the state, -inf resets it
// exactly).
//
//   tensor         shape                     type            notes
//   q              [B,T,H,K]                 f32, f16, bf16  any strides, last dimension contiguous
//   k, v           [B,T,Hkv,K], [B,T,Hkv,V]  q's             H a multiple of Hkv: head h reads kv
//                                                            head h/(H/Hkv)
//   g              [B,T,H]                   f32 or q's      one decay a head. [B,T,H,K] means gk
//   gk, gv         [B,T,H,K], [B,T,H,V]      f32 or q's      one a key channel, one a value channel
//   g_gamma        [H] or [N,H]              f32             one a head, constant in time
//   initial_state  [N,H,K,V]                 f32, f16, bf16  any strides: [V,K] storage is a view
//   final_state    [N,H,K,V]                 initial_state's may be exactly initial_state: updated
//                                                            in place
//   cu_seqlens     [N+1]                     i32, i64        packed sequences: B = 1, sequence n is
//                                                            the tokens from cu_seqlens[n] up to
//                                                            cu_seqlens[n+1]; may be empty
//   states         [S,H,K,V]                 initial_state's a pool, any strides: see below
//   initial_slots  [N]                       i32, i64        where sequences start from in it
//   final_slots    [N]                       i32, i64        where their states go
//   snapshot_slots [N,M]                     i32, i64        where states on the way go
//   o              [B,T,H,V]                 q's
//
// K and V are independent, any size >= 1. N is B, or the number of packed sequences. Packed q, k, v
// and gates may have rank 3, [T,H,K]. T = 0 and B = 0 are legal; an empty sequence passes its state
// through. With `reverse` tokens are taken from the last to the first, and the final state is the
// one after token 0.
//
// Padded batches. cu_seqlens may end before T: the rows behind are not read, and those of o, and of
// the gradients of q, k, v and gates, are written as zeros. One packed call so takes any mix of
// prompts and of decoding rows, sequences of one token, whose lengths only the device knows.
//
// State pools. With `states`, sequence n starts from slot initial_slots[n] of it, from zero where
// that is negative, and its final state goes to slot final_slots[n], nowhere where that is
// negative. Without initial_slots they are final_slots: in place. Slots that are not named keep
// their bits. For one sequence both may be the same slot; a slot that one sequence writes and
// another reads or writes is an error in host memory, as is an index >= S. A pool takes the place
// of initial_state and final_state, which are not given then.
// There is no backward pass.
//
// Snapshots. With snapshot_every = E, a multiple of 64, the state after the tokens E, 2 E, ... of
// sequence n, as they are taken, goes to the slots snapshot_slots[n, 0], [n, 1], ... of the pool;
// negative ones are not kept. M is at least T_n / E for every sequence. All of its slots count as
// written.
//
// States of 16 bits. initial_state, final_state and states have one type, which says how they are
// stored: sums stay fp32, and a state is rounded once a call where it is written, as state_rounding
// says (core/state_rounding.hpp). What is stored so has the precision of its type. The backward
// pass takes states in f32.
//
// Precision. State and sums are fp32 for 16-bit inputs. f32 inputs use IEEE fp32 unless allow_tf32.
// One config gives the same bits on every run. Errors are RMS errors over a tensor, against the
// formula in float64. With e = 2e-5 for f32 inputs, and 5e-3 for f16, bf16 and allow_tf32, those of
// o, final_state, dq, dk, dv and dinitial_state are at most e times the RMS of that tensor.
//
// Gradients of gates are sums of terms that cancel where gates are strong: with every g at -12, dg
// is a difference of terms a hundred thousand times as large, and what rounds those in f32 may be a
// sixth of it. Their errors are at most
//
//   the larger of   d * RMS(gradient)   and   e * (RMS(read) + RMS(left)),     d = 1e-4 for f32 and
//                                                                              2e-2 otherwise
//   gradient          read, from the state                left, in it; 0 without a dfinal_state
//   dg    [B,T,H]     sum over K of q dq                  sum over K and V of
//                                                           final_state dfinal_state      [N,H]
//   dgk   [B,T,H,K]   q dq                                sum over V of the same        [N,H,K]
//   dgv   [B,T,H,V]   o do                                sum over K of the same        [N,H,V]
//   dg_gamma          dg's, summed over the tokens that   dg's, which each of these tokens has,
//   [H] or [N,H]      each of its values stands for       likewise
//
// dslopes is as dg_gamma. f32 keeps no digits below 1.2e-38, nor f16 below 6e-8, and nothing is
// promised of those. With f16 inputs, scores of two tokens, scale q k and scale do v, and scale do,
// with their decays, are rounded to f16 as well. Where a scale or inputs are so small, o, dq, dk, dv
// and dinitial_state may be off by up to 2.4e-7 times the RMS of v, k, q, do and q: half of f16's
// smallest step, a score or an element, of 64; dk and dv by that times the root of H/Hkv.
//
// Values that are not finite. -inf is a gate like any other. A NaN, or any other infinity, in an
// input stays in its sequence and head: from q, do and gates in their query head, and in dk and dv
// of the kv head that it reads; from k and v in the query heads that read theirs. All else has the
// same bits as without it, but that a dg_gamma [H] is a sum over sequences.
//
// There it goes where the formula takes it: to o and dq of its own token and of those after it, to
// dk and dv of its own and of those before it, and to the states. As kernels take up to 64 tokens
// at a time, o and dq of up to 63 tokens before it may be hit, too, and dk and dv of up to 63
// tokens after it; none further away is. Gradients of gates are sums over tokens: all those of its
// sequence and head may be hit. With `reverse`, before and after change places.
//
// Sources: Katharopoulos et al., arXiv:2006.16236, eq. 16-20; Yang et al., arXiv:2312.06635,
// section 4.
//
// Everything here throws InvalidArgument, naming the argument, before anything is launched when a
// rule above is broken or an output overlaps an input otherwise than stated; Unsupported when no
// kernel takes the problem, with every kernel's reason; Unavailable for a device or platform that
// is not there.
#pragma once

#include <optional>

#include <attune/core/optional_view.hpp>
#include <attune/core/plan.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// "Not given" is std::nullopt; a null pointer is an error unless the tensor is empty.
struct RecurrentAttentionOptions {
  OptionalConstTensorView g = {};
  OptionalConstTensorView g_gamma = {};
  OptionalConstTensorView gk = {};
  OptionalConstTensorView gv = {};
  OptionalConstTensorView initial_state = {};
  OptionalConstTensorView cu_seqlens = {};  // on q's device
  OptionalConstTensorView cu_seqlens_host =
      {};                          // the same values in host memory, where they are known
  OptionalTensorView states = {};  // a pool, updated, in place of initial_state and final_state
  OptionalConstTensorView initial_slots = {};  // final_slots
  OptionalConstTensorView final_slots = {};
  std::int64_t snapshot_every = 0;  // tokens, a multiple of 64; 0: none
  OptionalConstTensorView snapshot_slots = {};
  StateRounding state_rounding = {};  // of 16-bit states
  std::optional<double> scale = {};   // K^-1/2; finite
  bool reverse = false;
  bool want_final_state = false;  // read by the allocating form and by plans
  CallOptions call = {};
};

struct RecurrentAttentionResult {
  Tensor o;
  std::optional<Tensor> final_state = {};  // when want_final_state
};

/// Computes o, and the final state when wanted, into new tensors on q's device.
///
///   auto [o, state] = recurrent_attention(q, k, v, {.gk = gk, .want_final_state = true});
///
/// On a pool, the states of a batch of prompts go where an engine keeps them. A prompt with a
/// cached prefix starts from the prefix's slot and leaves it as it is:
///
///   auto [o, none] = recurrent_attention(
///       q, k, v, {.cu_seqlens = bounds, .states = pool, .initial_slots = from, .final_slots = to});
RecurrentAttentionResult recurrent_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const RecurrentAttentionOptions& options = {});

struct RecurrentAttentionOutputs {
  TensorView o;
  OptionalTensorView final_state = {};  // written when given
};

/// The same into the caller's tensors, on the stream of options.call.
void recurrent_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const RecurrentAttentionOptions& options = {});

/// A choice for tensors like these, to launch many times:
///
///   auto plan = plan_recurrent_attention(q, k, v, options);
///   auto args = recurrent_attention_args({.o = o}, q, k, v, options);
///   plan.launch(args, stream, workspace);
///
/// Only shapes, strides, types and devices of the tensors are looked at. Launches write outputs
/// that are laid out as the inputs are, and a final state of initial_state's type, else f32; a plan
/// for others is made with them.
Plan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const RecurrentAttentionOptions& options = {});
Plan<RecurrentAttention> plan_recurrent_attention(const RecurrentAttentionOutputs& out,
                                                  const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const RecurrentAttentionOptions& options = {});

/// Validated arguments for a plan's launch. They borrow the tensors, not the options.
RecurrentAttentionArgs recurrent_attention_args(const RecurrentAttentionOutputs& out,
                                                const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v,
                                                const RecurrentAttentionOptions& options = {});

/// The gradient of a loss with respect to the outputs. At least one is given; the other counts as
/// zero.
struct RecurrentAttentionOutputGradients {
  OptionalConstTensorView d_o = {};           // [B,T,H,V], q's type
  OptionalConstTensorView dfinal_state = {};  // [N,H,K,V], f32
};

/// The gradient with respect to the inputs: dq, dk and dv in q's type (dk and dv summed over the
/// query heads of a group), and one in f32 for each gate or state that was given. The gradient of a
/// -inf gate is 0. A rank-4 g has its gradient in dg.
struct RecurrentAttentionGradients {
  Tensor dq, dk, dv;
  std::optional<Tensor> dg, dg_gamma, dgk, dgv, dinitial_state;
};

/// Recomputes what it needs from the inputs; nothing of the forward pass is saved.
RecurrentAttentionGradients recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients,
    const RecurrentAttentionOptions& options = {});

/// Where the gradients go. Each gate or state that is given must have its gradient here, and no
/// other.
struct RecurrentAttentionGradientOutputs {
  TensorView dq, dk, dv;
  OptionalTensorView dg = {}, dg_gamma = {}, dgk = {}, dgv = {}, dinitial_state = {};
};

void recurrent_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                       const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v,
                                       const RecurrentAttentionOutputGradients& gradients,
                                       const RecurrentAttentionOptions& options = {});

Plan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients,
    const RecurrentAttentionOptions& options = {});
Plan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients,
    const RecurrentAttentionOptions& options = {});

RecurrentAttentionBackwardArgs recurrent_attention_backward_args(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients,
    const RecurrentAttentionOptions& options = {});

}  // namespace attune::ops
