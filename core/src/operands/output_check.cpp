#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include <attune/core/error.hpp>
#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

std::string position(const Extents& shape, std::int64_t index) {
  Extents at = shape;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    at[dim] = index % shape[dim];
    index /= shape[dim];
  }
  return str(at);
}

/// What a value that is not finite is called.
std::string_view kind_of(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "inf" : "-inf";
}

std::string text_of(double value) {
  return std::isfinite(value) ? str(value) : std::string(kind_of(value));
}

/// The first place where one is not finite and the other is not the same.
std::string finiteness_fault(const Extents& shape, const std::vector<double>& x,
                             const std::vector<double>& e) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i]) && std::isfinite(e[i])) continue;
    if (x[i] == e[i] || (std::isnan(x[i]) && std::isnan(e[i]))) continue;
    return str(text_of(x[i]), " at ", position(shape, static_cast<std::int64_t>(i)), ", expected ",
               text_of(e[i]));
  }
  return "";
}

/// The element of this index in row-major order.
double fetched(ConstTensorView view, std::int64_t index, const Device& device) {
  for (int dim = view.rank() - 1; dim >= 0; --dim) {
    const std::int64_t extent = view.size(dim);
    view = view.slice(dim, index % extent, index % extent + 1);
    index /= extent;
  }
  return element_as_double(to_host(view, device).view(), 0);
}

void check_values(OutputCheck& check, const Extents& shape, const std::vector<double>& x,
                  const std::vector<double>& e, const Tolerances& tolerances,
                  const SummandRms& summand_rms) {
  check.error = relative_rms_error(x, e);
  if (std::isinf(check.error)) check.reason = finiteness_fault(shape, x, e);
  if (!check.reason.empty()) return;

  const double size = rms(e);
  const double relative = summand_rms ? tolerances.gate_gradient : tolerances.tensor;
  check.tolerance = size > 0 ? relative : kAbsoluteTolerance;
  if (check.error > check.tolerance && summand_rms) {
    const double allowed = tolerances.tensor * summand_rms();
    check.tolerance = std::max(check.tolerance, size > 0 ? allowed / size : allowed);
  }
  // f32 keeps no digits of what is smaller, and 16-bit types not even the value.
  constexpr double kSmallestNormal = std::numeric_limits<float>::min();
  const bool vanishes = size > 0 && check.error * size < kSmallestNormal;
  check.passed = check.error <= check.tolerance || vanishes;
  if (!check.passed) {
    check.reason = str(size > 0 ? "relative RMS error " : "RMS of values that should be 0 ",
                       check.error, ", expected at most ", check.tolerance);
  }
}

}  // namespace

Tolerances tolerances_of(DType dtype, bool tf32) {
  if (dtype == DType::kF32 && !tf32) return {.tensor = 2e-5, .gate_gradient = 1e-4};
  return {.tensor = 5e-3, .gate_gradient = 2e-2};
}

OutputCheck check_finite(const NamedTensor& output, const Digest& digest, const Device& device) {
  OutputCheck check;
  check.name = output.name;
  check.passed = digest.not_finite < 0;
  if (check.passed) return check;
  check.error = std::numeric_limits<double>::infinity();
  check.reason = str(text_of(fetched(output.view, digest.not_finite, device)), " at ",
                     position(output.view.shape, digest.not_finite));
  return check;
}

OutputCheck check_output(const std::string& name, const Tensor& actual, const Tensor& expected,
                         const Tolerances& tolerances, const SummandRms& summand_rms) {
  OutputCheck check;
  check.name = name;
  check.tolerance = summand_rms ? tolerances.gate_gradient : tolerances.tensor;
  if (actual.shape() != expected.shape()) {
    check.error = std::numeric_limits<double>::infinity();
    check.reason = str("shape ", actual.shape(), ", expected ", expected.shape());
  } else {
    check_values(check, actual.shape(), to_doubles(actual.view()), to_doubles(expected.view()),
                 tolerances, summand_rms);
  }
  return check;
}

double rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::isfinite(value) ? value * value : 0.0;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace attune
