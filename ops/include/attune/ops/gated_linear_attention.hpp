// Gated linear attention (GLA): recurrent attention whose state decays by its own amount in every
// key channel.
//
//   S_t[i,:] = exp(gk_t[i] + g_gamma) * S_{t-1}[i,:] + k_t[i] v_t       o_t = scale * q_t S_t
//
// gk [B,T,H,K], f32 or q's type, is the log of the paper's forget gate alpha: typically
// logsigmoid(x) / 16. g_gamma [H] or [N,H] f32 is optional. Everything else, and everything that
// can go wrong, is as in recurrent_attention.hpp, which this lowers to: the two share kernels and
// tuned configs.
//
// Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training",
// arXiv:2312.06635, eq. 3.
#pragma once

#include <optional>

#include <attune/core/optional_view.hpp>
#include <attune/ops/recurrent_attention.hpp>

namespace attune::ops {

struct GatedLinearAttentionOptions {
  OptionalConstTensorView g_gamma = {};
  OptionalConstTensorView initial_state = {};
  OptionalConstTensorView cu_seqlens = {};
  OptionalConstTensorView cu_seqlens_host = {};
  OptionalTensorView states = {};  // a pool, updated, in place of initial_state and final_state
  OptionalConstTensorView initial_slots = {};  // final_slots
  OptionalConstTensorView final_slots = {};
  std::int64_t snapshot_every = 0;  // tokens, a multiple of 64; 0: none
  OptionalConstTensorView snapshot_slots = {};
  StateRounding state_rounding = {};  // of 16-bit states
  std::optional<double> scale = {};   // K^-1/2
  bool reverse = false;
  bool want_final_state = false;
  CallOptions call = {};
};

/// Computes o, and the final state when wanted, into new tensors on q's device.
RecurrentAttentionResult gated_linear_attention(const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v, const ConstTensorView& gk,
                                                const GatedLinearAttentionOptions& options = {});

/// The same into the caller's tensors, on the stream of options.call.
void gated_linear_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                                 const ConstTensorView& k, const ConstTensorView& v,
                                 const ConstTensorView& gk,
                                 const GatedLinearAttentionOptions& options = {});

/// The gradient: dq, dk, dv, dgk, and dg_gamma and dinitial_state where they were given.
RecurrentAttentionGradients gated_linear_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const RecurrentAttentionOutputGradients& gradients,
    const GatedLinearAttentionOptions& options = {});

void gated_linear_attention_backward_into(const RecurrentAttentionGradientOutputs& out,
                                          const ConstTensorView& q, const ConstTensorView& k,
                                          const ConstTensorView& v, const ConstTensorView& gk,
                                          const RecurrentAttentionOutputGradients& gradients,
                                          const GatedLinearAttentionOptions& options = {});

/// The same call as recurrent_attention's options: for plans, and whatever else takes those.
RecurrentAttentionOptions lowered(const ConstTensorView& gk,
                                  const GatedLinearAttentionOptions& options);

/// As registered: the default problem has gate=gk.
struct GatedLinearAttention {
  static constexpr std::string_view kName = "gated_linear_attention";
  static constexpr std::string_view kSummary = "gated linear attention (GLA), forward";
  using Target = RecurrentAttention;
  static Params expand(Params params);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
};
struct GatedLinearAttentionBackward {
  static constexpr std::string_view kName = "gated_linear_attention.backward";
  static constexpr std::string_view kSummary = "gated linear attention (GLA), backward";
  using Target = RecurrentAttentionBackward;
  static Params expand(Params params) { return GatedLinearAttention::expand(std::move(params)); }
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
};

}  // namespace attune::ops
