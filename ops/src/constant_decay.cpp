#include "constant_decay.hpp"

#include <attune/core/tensor.hpp>

namespace attune::ops {
namespace {

void check_layer(const CallCheck& check, const DecayInputs& decay) {
  if (!decay.num_layers) check.refuse("num_layers", "not given, expected with layer_idx");
  if (!decay.layer_idx) check.refuse("layer_idx", "not given, expected with num_layers");
  if (*decay.num_layers < 1) {
    check.refuse("num_layers", "got ", *decay.num_layers, ", expected at least 1");
  }
  if (*decay.layer_idx < 0 || *decay.layer_idx > *decay.num_layers) {
    check.refuse("layer_idx", "got ", *decay.layer_idx, ", expected 0 .. ", *decay.num_layers,
                 " (num_layers)");
  }
}

void check_one_source(const CallCheck& check, const DecayInputs& decay, bool by_layer) {
  const auto refuse_two = [&](std::string_view first, std::string_view second) {
    check.refuse(first, "given together with ", second, ", expected one source of constant decay");
  };
  if (decay.g_gamma != nullptr && decay.slopes != nullptr) refuse_two("g_gamma", "slopes");
  if (decay.g_gamma != nullptr && by_layer) refuse_two("g_gamma", "layer_idx and num_layers");
  if (decay.slopes != nullptr && by_layer) refuse_two("slopes", "layer_idx and num_layers");
  if (decay.required && decay.g_gamma == nullptr && decay.slopes == nullptr && !by_layer) {
    check.refuse("slopes",
                 "no decay given, expected one of slopes, g_gamma, or layer_idx and num_layers");
  }
}

}  // namespace

const ConstTensorView* decay_values(const DecayInputs& decay) {
  return decay.slopes != nullptr ? decay.slopes : decay.g_gamma;
}

std::string_view decay_name(const DecayInputs& decay) {
  return decay.slopes != nullptr ? "slopes" : "g_gamma";
}

void check_decay(CallCheck& check, const DecayInputs& decay, DecayShape shape,
                 std::int64_t sequences, std::int64_t heads) {
  const bool by_layer = decay.layer_idx || decay.num_layers;
  check_one_source(check, decay, by_layer);
  if (by_layer) check_layer(check, decay);
  const ConstTensorView* values = decay_values(decay);
  if (values == nullptr) return;

  const std::string_view name = decay_name(decay);
  const bool heads_only = shape == DecayShape::kHeads ||
                          (shape == DecayShape::kSlopesOfHeads && decay.slopes != nullptr);
  check.dtype(name, *values, DType::kF32);
  if (shape == DecayShape::kCanonical || (!heads_only && values->rank() == 2)) {
    check.shape(name, *values, {sequences, heads});
  } else {
    check.shape(name, *values, {heads});
  }
  check.input(name, *values);
}

ConstantDecay lowered_decay(const DecayInputs& decay, std::int64_t sequences) {
  ConstantDecay lowered;
  if (const ConstTensorView* values = decay_values(decay); values != nullptr) {
    lowered.source =
        decay.slopes != nullptr ? ConstantDecay::Source::kSlopes : ConstantDecay::Source::kValues;
    lowered.values = over_sequences(*values, sequences);
  } else if (decay.layer_idx) {
    lowered.source = ConstantDecay::Source::kLayer;
    lowered.layer_idx = *decay.layer_idx;
    lowered.num_layers = *decay.num_layers;
  }
  return lowered;
}

DecayInputs decay_inputs(const ConstantDecay& decay) {
  switch (decay.source) {
    case ConstantDecay::Source::kNone:
      return {};
    case ConstantDecay::Source::kValues:
      return {.g_gamma = &decay.values};
    case ConstantDecay::Source::kSlopes:
      return {.slopes = &decay.values};
    case ConstantDecay::Source::kLayer:
      return {.layer_idx = decay.layer_idx, .num_layers = decay.num_layers};
  }
  return {};
}

double gamma_of(const ConstantDecay& gamma, std::int64_t n, std::int64_t h, std::int64_t heads) {
  using Source = ConstantDecay::Source;
  if (gamma.source == Source::kNone) return 0;
  if (gamma.source == Source::kLayer) {
    const double depth =
        static_cast<double>(gamma.layer_idx) / static_cast<double>(gamma.num_layers);
    return -(8.0 / static_cast<double>(heads)) * (1.0 - depth) * static_cast<double>(h);
  }
  const std::int64_t offset = n * gamma.values.stride(0) + h * gamma.values.stride(1);
  const double value = static_cast<const float*>(gamma.values.data)[offset];
  return gamma.source == Source::kSlopes ? -value : value;
}

}  // namespace attune::ops
