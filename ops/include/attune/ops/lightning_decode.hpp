// One or a few tokens of lightning attention for each row of a batch, on a pool of states:
// recurrent_decode.hpp with the decay of lightning_attention.hpp, from slopes [H], g_gamma [H], or
// layer_idx and num_layers; exactly one of the three.
#pragma once

#include <cstdint>
#include <optional>

#include <attune/core/optional_view.hpp>
#include <attune/ops/recurrent_decode.hpp>

namespace attune::ops {

struct LightningDecodeOptions {
  std::optional<std::int64_t> layer_idx = {};
  std::optional<std::int64_t> num_layers = {};
  OptionalConstTensorView slopes = {};
  OptionalConstTensorView g_gamma = {};
  OptionalConstTensorView slot_indices = {};
  OptionalConstTensorView kept_slots = {};
  OptionalConstTensorView accepted = {};
  std::optional<CommittedTokens> committed = {};  // without gates
  StateRounding state_rounding = {};
  std::optional<double> scale = {};  // K^-1/2
  CallOptions call = {};
};

/// Updates `state` in place and returns o, a new tensor on q's device.
Tensor lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const TensorView& state,
                        const LightningDecodeOptions& options);

/// The same into the caller's o, on the stream of options.call.
void lightning_decode_into(const TensorView& o, const ConstTensorView& q, const ConstTensorView& k,
                           const ConstTensorView& v, const TensorView& state,
                           const LightningDecodeOptions& options);

Plan<RecurrentDecode> plan_lightning_decode(const ConstTensorView& q, const ConstTensorView& k,
                                            const ConstTensorView& v, const TensorView& state,
                                            const LightningDecodeOptions& options);
Plan<RecurrentDecode> plan_lightning_decode(const TensorView& o, const ConstTensorView& q,
                                            const ConstTensorView& k, const ConstTensorView& v,
                                            const TensorView& state,
                                            const LightningDecodeOptions& options);
RecurrentDecodeArgs lightning_decode_args(const TensorView& o, const ConstTensorView& q,
                                          const ConstTensorView& k, const ConstTensorView& v,
                                          const TensorView& state,
                                          const LightningDecodeOptions& options);

/// As registered: the default problem has gate=gamma.
struct LightningDecode {
  static constexpr std::string_view kName = "lightning_decode";
  static constexpr std::string_view kSummary = "a step of lightning attention on a pool of states";
  using Target = RecurrentDecode;
  static Params expand(Params params);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
};

}  // namespace attune::ops
