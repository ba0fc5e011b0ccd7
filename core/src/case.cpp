#include <cmath>
#include <limits>

#include <attune/core/case.hpp>

namespace attune {

TensorMap copy_outputs(const Case& from, const Device& device) {
  TensorMap copies;
  for (const NamedTensor& output : from.outputs())
    copies.emplace(output.name, to_host(output.view, device));
  return copies;
}

double relative_rms_error(const std::vector<double>& x, const std::vector<double>& expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == expected[i] || (std::isnan(x[i]) && std::isnan(expected[i]));
    if (!std::isfinite(expected[i]) || !std::isfinite(x[i])) {
      if (!same) return std::numeric_limits<double>::infinity();
      continue;
    }
    const double difference = x[i] - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  if (norm > 0) return std::sqrt(error / norm);
  return x.empty() ? 0 : std::sqrt(error / static_cast<double>(x.size()));
}

}  // namespace attune
