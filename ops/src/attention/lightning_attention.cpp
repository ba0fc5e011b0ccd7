#include <bit>
#include <cmath>
#include <utility>

#include <attune/ops/lightning_attention.hpp>

#include "attention/attention_run.hpp"
#include "distributed/distributed_run.hpp"

namespace attune::ops {
namespace {

template <class Op, class Alias>
AttentionCall<Op> call_of(const ConstTensorView& q, const ConstTensorView& k,
                          const ConstTensorView& v, const LightningAttentionOptions& options) {
  return attention_call<Op>(Alias::kName, q, k, v, options);
}
constexpr auto& forward = call_of<RecurrentAttention, LightningAttention>;
constexpr auto& backward = call_of<RecurrentAttentionBackward, LightningAttentionBackward>;

}  // namespace

RecurrentAttentionResult lightning_attention(const ConstTensorView& q, const ConstTensorView& k,
                                             const ConstTensorView& v,
                                             const LightningAttentionOptions& options) {
  return run_forward(forward(q, k, v, options), options.call);
}

void lightning_attention_into(const RecurrentAttentionOutputs& out, const ConstTensorView& q,
                              const ConstTensorView& k, const ConstTensorView& v,
                              const LightningAttentionOptions& options) {
  run_forward_into(out, forward(q, k, v, options), options.call);
}

Plan<RecurrentAttention> plan_lightning_attention(const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const LightningAttentionOptions& options) {
  return plan_forward(forward(q, k, v, options), options.call);
}

Plan<RecurrentAttention> plan_lightning_attention(const RecurrentAttentionOutputs& out,
                                                  const ConstTensorView& q,
                                                  const ConstTensorView& k,
                                                  const ConstTensorView& v,
                                                  const LightningAttentionOptions& options) {
  return plan_forward_into(out, forward(q, k, v, options), options.call);
}

RecurrentAttentionArgs lightning_attention_args(const RecurrentAttentionOutputs& out,
                                                const ConstTensorView& q, const ConstTensorView& k,
                                                const ConstTensorView& v,
                                                const LightningAttentionOptions& options) {
  return forward_args(out, forward(q, k, v, options));
}

LightningAttentionGradients lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options) {
  RecurrentAttentionGradients result =
      run_backward(backward(q, k, v, options), gradients, options.call);
  LightningAttentionGradients named{.dq = std::move(result.dq),
                                    .dk = std::move(result.dk),
                                    .dv = std::move(result.dv),
                                    .dinitial_state = std::move(result.dinitial_state)};
  (options.slopes ? named.dslopes : named.dg_gamma) = std::move(result.dg_gamma);
  return named;
}

namespace {

/// The gradients as the lowered op names them.
RecurrentAttentionGradientOutputs lowered(const LightningAttentionGradientOutputs& out,
                                          const LightningAttentionOptions& options) {
  const auto& [unused, unused_name] =
      options.slopes ? std::pair{&out.dg_gamma, "dg_gamma"} : std::pair{&out.dslopes, "dslopes"};
  if (unused->has_value()) {
    throw InvalidArgument(str(LightningAttentionBackward::kName, ": ", unused_name,
                              ": given without ", unused_name + 1));
  }
  return {.dq = out.dq,
          .dk = out.dk,
          .dv = out.dv,
          .dg_gamma = options.slopes ? out.dslopes : out.dg_gamma,
          .dinitial_state = out.dinitial_state};
}

}  // namespace

void lightning_attention_backward_into(const LightningAttentionGradientOutputs& out,
                                       const ConstTensorView& q, const ConstTensorView& k,
                                       const ConstTensorView& v,
                                       const RecurrentAttentionOutputGradients& gradients,
                                       const LightningAttentionOptions& options) {
  BackwardCall call = backward(q, k, v, options);
  run_backward_into(lowered(out, options), std::move(call), gradients, options.call);
}

Plan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options) {
  return plan_backward(backward(q, k, v, options), gradients, options.call);
}

Plan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const LightningAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options) {
  BackwardCall call = backward(q, k, v, options);
  return plan_backward_into(lowered(out, options), std::move(call), gradients, options.call);
}

RecurrentAttentionBackwardArgs lightning_attention_backward_args(
    const LightningAttentionGradientOutputs& out, const ConstTensorView& q,
    const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options) {
  BackwardCall call = backward(q, k, v, options);
  return backward_args(lowered(out, options), std::move(call), gradients);
}

namespace {

/// 2^(-8 (h + 1) / heads): ALiBi's slopes for a number of heads that is a power of two.
double geometric_slope(std::int64_t h, std::int64_t heads) {
  return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
}

}  // namespace

std::vector<float> minimax_slopes(std::int64_t heads, std::int64_t layer, std::int64_t layers) {
  if (heads < 1)
    throw InvalidArgument(str("minimax_slopes: heads: got ", heads, ", expected >= 1"));
  if (layers < 1) {
    throw InvalidArgument(str("minimax_slopes: layers: got ", layers, ", expected >= 1"));
  }
  if (layer < 0 || layer >= layers) {
    throw InvalidArgument(
        str("minimax_slopes: layer: got ", layer, ", expected 0 .. ", layers - 1));
  }
  const double depth =
      layers == 1 ? 0.0 : static_cast<double>(layer) / static_cast<double>(layers - 1);
  const double factor = 1.0 - depth + 1e-5;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double slope =
        h < power ? geometric_slope(h, power) : geometric_slope(2 * (h - power), 2 * power);
    slopes.push_back(static_cast<float>(slope * factor));
  }
  return slopes;
}

// ---- over ranks ----

namespace distributed {

SequencePlan<RecurrentAttention> plan_lightning_attention(const ConstTensorView& q,
                                                          const ConstTensorView& k,
                                                          const ConstTensorView& v,
                                                          const LightningAttentionOptions& options,
                                                          const SequenceLayout& layout,
                                                          attune::distributed::Exchange& exchange) {
  return plan_forward(forward(q, k, v, options), options.call, layout, exchange);
}

SequencePlan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange) {
  return plan_backward(backward(q, k, v, options), gradients, options.call, layout, exchange);
}

}  // namespace distributed

}  // namespace attune::ops
