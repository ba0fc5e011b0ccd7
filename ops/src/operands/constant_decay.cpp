#include "constant_decay.hpp"

namespace attune::ops {
namespace {

using Source = ConstantDecay::Source;

void check_one_source(std::string_view op, const DecaySources& given) {
  const bool by_layer = given.layer_idx || given.num_layers;
  const auto refuse = [&](const auto&... what) { throw InvalidArgument(str(op, ": ", what...)); };
  const auto refuse_two = [&](std::string_view first, std::string_view second) {
    refuse(first, ": given together with ", second, ", expected one source of constant decay");
  };
  if (given.g_gamma && given.slopes) refuse_two("g_gamma", "slopes");
  if (given.g_gamma && by_layer) refuse_two("g_gamma", "layer_idx and num_layers");
  if (given.slopes && by_layer) refuse_two("slopes", "layer_idx and num_layers");
  if (given.required && !given.g_gamma && !given.slopes && !by_layer) {
    refuse("slopes: no decay given, expected one of slopes, g_gamma, or layer_idx and num_layers");
  }
  if (by_layer && !given.num_layers) refuse("num_layers: not given, expected with layer_idx");
  if (by_layer && !given.layer_idx) refuse("layer_idx: not given, expected with num_layers");
}

}  // namespace

ConstantDecay constant_decay(std::string_view op, const DecaySources& sources) {
  check_one_source(op, sources);
  ConstantDecay decay;
  if (sources.slopes) {
    decay.source = Source::kSlopes;
    decay.values = *sources.slopes;
  } else if (sources.g_gamma) {
    decay.source = Source::kValues;
    decay.values = *sources.g_gamma;
  } else if (sources.layer_idx) {
    decay.source = Source::kLayer;
    decay.layer_idx = *sources.layer_idx;
    decay.num_layers = *sources.num_layers;
  }
  return decay;
}

ConstantDecay decay_of_file(std::string_view op, const FileInputs& file, bool required) {
  const auto view_of = [&](std::string_view name) -> std::optional<ConstTensorView> {
    if (const Tensor* tensor = file.find(name); tensor != nullptr) return tensor->view();
    return std::nullopt;
  };
  const std::optional<ConstTensorView> g_gamma = view_of("g_gamma"), slopes = view_of("slopes");
  return constant_decay(op, {.g_gamma = g_gamma,
                             .slopes = slopes,
                             .layer_idx = file.integer("layer_idx"),
                             .num_layers = file.integer("num_layers"),
                             .required = required});
}

void check_layer(const CallCheck& check, const ConstantDecay& decay) {
  if (decay.source != Source::kLayer) return;
  if (decay.num_layers < 1) {
    check.refuse("num_layers", "got ", decay.num_layers, ", expected at least 1");
  }
  if (decay.layer_idx < 0 || decay.layer_idx > decay.num_layers) {
    check.refuse("layer_idx", "got ", decay.layer_idx, ", expected 0 .. ", decay.num_layers,
                 " (num_layers)");
  }
}

double gamma_of(const ConstantDecay& gamma, std::int64_t n, std::int64_t h, std::int64_t heads) {
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
