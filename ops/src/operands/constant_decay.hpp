// The decay that is constant in time: its sources, and the one form that kernels see.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <attune/core/call_check.hpp>
#include <attune/core/case_tensors.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

inline constexpr std::optional<ConstTensorView> kNoTensor;

/// As the caller gave it.
struct DecaySources {
  const std::optional<ConstTensorView>& g_gamma = kNoTensor;
  const std::optional<ConstTensorView>& slopes = kNoTensor;
  std::optional<std::int64_t> layer_idx = {};
  std::optional<std::int64_t> num_layers = {};
  bool required = false;  // lightning's: exactly one source, not at most one
};

/// The one source. Throws InvalidArgument where there are several, or none and one is required.
ConstantDecay constant_decay(std::string_view op, const DecaySources& sources);

/// The one in a file: a tensor, or the attributes layer_idx and num_layers.
ConstantDecay decay_of_file(std::string_view op, const FileInputs& file, bool required);

/// Throws InvalidArgument unless a layer is one of its model's.
void check_layer(const CallCheck& check, const ConstantDecay& decay);

}  // namespace attune::ops
