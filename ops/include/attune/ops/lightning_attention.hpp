// Lightning attention: recurrent attention with one constant decay a head.
//
//   S_t = exp(gamma_h) * S_{t-1} + k_t v_t^T       o_t = scale * q_t S_t
//
// The decay has exactly one source:
//
//   given                      gamma_h                                     gradient
//   layer_idx and num_layers   -(8/H) (1 - layer_idx/num_layers) h         none
//   slopes s [H] f32           -s_h                                        dslopes
//   g_gamma [H] or [N,H] f32   itself                                      dg_gamma
//
// A layer's decay, h = 0 .. H-1, is computed where the kernel runs; layer_idx is in [0,
// num_layers], and head 0 never decays.
//
// Lightning's blocks are a matter of speed and belong to the config: whatever the block size, the
// result is the recurrence's, across every block's edge, and prefill followed by decode equals one
// long prefill. History goes in by initial_state and out by final_state. `scale` defaults to
// K^-1/2; serving engines that leave it out pass 1.
//
// Everything else, and everything that can go wrong, is as in recurrent_attention.hpp, which this
// lowers to. Source: Qin et al., "Lightning Attention-2", arXiv:2401.04658, eq. 1-3.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <attune/core/optional_view.hpp>
#include <attune/ops/recurrent_attention.hpp>

namespace attune::ops {

struct LightningAttentionOptions {
  std::optional<std::int64_t> layer_idx = {};  // both or neither
  std::optional<std::int64_t> num_layers = {};
  OptionalConstTensorView slopes = {};
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
RecurrentAttentionResult lightning_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const LightningAttentionOptions& options);

/// The same into the caller's tensors, on the stream of options.call.
void lightning_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const LightningAttentionOptions& options);

/// A choice for tensors like these, and the arguments to launch it with (see
/// plan_recurrent_attention).
Plan<RecurrentAttention> plan_lightning_attention(const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const LightningAttentionOptions& options);
Plan<RecurrentAttention> plan_lightning_attention(const RecurrentAttentionOutputs& out,
                                                  const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const LightningAttentionOptions& options);
RecurrentAttentionArgs lightning_attention_args(const RecurrentAttentionOutputs& out,
                                                const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v,
                                                const LightningAttentionOptions& options);

struct LightningAttentionGradients {
  Tensor dq, dk, dv;
  std::optional<Tensor> dslopes = {};   // [H] f32, when the decay came from slopes
  std::optional<Tensor> dg_gamma = {};  // g_gamma's shape, f32, when it came from g_gamma
  std::optional<Tensor> dinitial_state = {};
};

LightningAttentionGradients lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options);

struct LightningAttentionGradientOutputs {
  TensorView dq, dk, dv;
  OptionalTensorView dslopes = {}, dg_gamma = {}, dinitial_state = {};
};
void lightning_attention_backward_into(const LightningAttentionGradientOutputs& out,
                                       const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v,
                                       const RecurrentAttentionOutputGradients& gradients,
                                       const LightningAttentionOptions& options);

Plan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options);
Plan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const LightningAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options);
RecurrentAttentionBackwardArgs lightning_attention_backward_args(
    const LightningAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options);

/// The slopes of MiniMax's lightning layers, for `heads` heads of layer `layer` of `layers`:
///
///   s_h = 2^(-8 (h+1) / H) * (1 - layer / (layers - 1) + 1e-5)
///
/// With one layer the second factor is 1 + 1e-5. When H is no power of two, the first 2^floor(log2
/// H) heads take the slopes of that power and the others every second slope of twice it, as ALiBi
/// does (Press et al., arXiv:2108.12409). Throws InvalidArgument when heads < 1, layers < 1 or
/// layer is not in [0, layers).
std::vector<float> minimax_slopes(std::int64_t heads, std::int64_t layer, std::int64_t layers);

/// As registered: the default problem has gate=gamma.
struct LightningAttention {
  static constexpr std::string_view kName = "lightning_attention";
  static constexpr std::string_view kSummary = "lightning attention, forward";
  using Target = RecurrentAttention;
  static Params expand(Params params);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
};
struct LightningAttentionBackward {
  static constexpr std::string_view kName = "lightning_attention.backward";
  static constexpr std::string_view kSummary = "lightning attention, backward";
  using Target = RecurrentAttentionBackward;
  static Params expand(Params params) { return LightningAttention::expand(std::move(params)); }
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
};

}  // namespace attune::ops
