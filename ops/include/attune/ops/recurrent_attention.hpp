// Gated recurrent (linear) attention.
//
//   S_t[i,j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i,j] + k_t[i] v_t[j]      S in R^{K
//   x V} o_t[j]   = scale * sum_i q_t[i] S_t[i,j]
//
// for each sequence n and query head h: decay, then write, then read. Every gate is optional; gates
// are natural logarithms of the decay, added up, and not negated (0 keeps the state, -inf resets it
// exactly).
//
//   tensor            shape                    type            notes
//   q                 [B,T,H,K]                f32, f16, bf16  any strides, last dimension
//   contiguous k, v              [B,T,Hkv,K], [B,T,Hkv,V] q's             H a multiple of Hkv: head
//   h reads kv head h/(H/Hkv) g                 [B,T,H]                  f32 or q's      one decay
//   a head. [B,T,H,K] means gk gk, gv            [B,T,H,K], [B,T,H,V]     f32 or q's      one a key
//   channel, one a value channel g_gamma           [H] or [N,H]             f32             one a
//   head, constant in time initial_state     [N,H,K,V]                f32             any strides,
//   so [V,K] storage is a view of it final_state       [N,H,K,V]                f32             may
//   be exactly initial_state: updated in place cu_seqlens        [N+1]                    i32, i64
//   packed sequences: B = 1, sequence n is the tokens
//                                                              cu_seqlens[n] .. cu_seqlens[n+1];
//                                                              may be empty
//   o                 [B,T,H,V]                q's
//
// K and V are independent, any size >= 1. N is B, or the number of packed sequences. Packed q, k, v
// and gates may have rank 3, [T,H,K]. T = 0 and B = 0 are legal; an empty sequence passes its state
// through. With `reverse` tokens are taken from the last to the first, and the final state is the
// one after token 0.
//
// State and sums are fp32 for 16-bit inputs. f32 inputs use IEEE fp32 unless allow_tf32. Relative
// RMS error against float64 is at most 2e-5 (f32) or 5e-3 (f16, bf16) for each tensor. One config
// gives the same bits on every run.
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

#include <attune/core/plan.hpp>
#include <attune/core/tensor.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// "Not given" is std::nullopt; a null pointer is an error unless the tensor is empty.
struct RecurrentAttentionOptions {
  std::optional<ConstTensorView> g = {};
  std::optional<ConstTensorView> g_gamma = {};
  std::optional<ConstTensorView> gk = {};
  std::optional<ConstTensorView> gv = {};
  std::optional<ConstTensorView> initial_state = {};
  std::optional<ConstTensorView> cu_seqlens = {};  // on q's device
  std::optional<ConstTensorView> cu_seqlens_host =
      {};                            // the same values in host memory, where they are known
  std::optional<double> scale = {};  // K^-1/2; finite
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
RecurrentAttentionResult recurrent_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const RecurrentAttentionOptions& options = {});

struct RecurrentAttentionOutputs {
  TensorView o;
  std::optional<TensorView> final_state = {};  // written when given
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
/// Only shapes, strides, types and devices of the tensors are looked at.
Plan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
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
  std::optional<ConstTensorView> d_o = {};           // [B,T,H,V], q's type
  std::optional<ConstTensorView> dfinal_state = {};  // [N,H,K,V], f32
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
  std::optional<TensorView> dg = {}, dg_gamma = {}, dgk = {}, dgv = {}, dinitial_state = {};
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

RecurrentAttentionBackwardArgs recurrent_attention_backward_args(
    const RecurrentAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients,
    const RecurrentAttentionOptions& options = {});

}  // namespace attune::ops
