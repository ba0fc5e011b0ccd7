#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <attune/core/error.hpp>
#include <attune/core/operand_case.hpp>

namespace attune {
namespace {

/// The first that has all bits of its exponent: inf or NaN. One more in the exponent's last place
/// then carries into the sign. Blocks of a fixed number of bits are loops that the compiler
/// vectorizes, which one that may end early is not: outputs of candidates are large.
template <class T, class Bits>
std::optional<std::int64_t> first_not_finite(std::span<const T> values, Bits exponent,
                                             Bits last_place) {
  const auto carried = [&](Bits bits) {
    return static_cast<Bits>(static_cast<Bits>(bits & exponent) + last_place);
  };
  const auto has_carry = [&](Bits bits) { return bits > exponent + last_place - 1; };
  std::array<Bits, 256> block;
  auto first = values.begin();
  for (; values.end() - first >= std::ssize(block); first += std::ssize(block)) {
    std::memcpy(block.data(), &*first, sizeof(block));
    Bits any = 0;
    for (const Bits bits : block) any = static_cast<Bits>(any | carried(bits));
    if (has_carry(any)) break;
  }
  const auto found = std::find_if(
      first, values.end(), [&](T value) { return has_carry(carried(std::bit_cast<Bits>(value))); });
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

std::optional<std::int64_t> first_not_finite(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF16:
      return first_not_finite<f16, std::uint16_t>(tensor.values<f16>(), 0x7C00, 0x0400);
    case DType::kBF16:
      return first_not_finite<bf16, std::uint16_t>(tensor.values<bf16>(), 0x7F80, 0x0080);
    case DType::kF32:
      return first_not_finite<float, std::uint32_t>(tensor.values<float>(), 0x7F800000, 0x00800000);
    default:
      return std::nullopt;  // integers
  }
}

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

void check_finite(OutputCheck& check, const Tensor& actual) {
  const std::optional<std::int64_t> fault = first_not_finite(actual);
  check.passed = !fault.has_value();
  if (check.passed) return;
  check.error = std::numeric_limits<double>::infinity();
  check.reason = str(text_of(element_as_double(actual.view(), *fault)), " at ",
                     position(actual.shape(), *fault));
}

void check_values(OutputCheck& check, const Extents& shape, const std::vector<double>& x,
                  const std::vector<double>& e, const Tolerances& tolerances,
                  const SummandRms& summand_rms) {
  check.error = relative_rms_error(x, e);
  check.reason = finiteness_fault(shape, x, e);
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

OutputCheck check_output(const std::string& name, const Tensor& actual, const Tensor* expected,
                         const Tolerances& tolerances, const SummandRms& summand_rms) {
  OutputCheck check;
  check.name = name;
  check.tolerance = summand_rms ? tolerances.gate_gradient : tolerances.tensor;
  if (expected == nullptr) {
    check_finite(check, actual);
  } else if (actual.shape() != expected->shape()) {
    check.error = std::numeric_limits<double>::infinity();
    check.reason = str("shape ", actual.shape(), ", expected ", expected->shape());
  } else {
    check_values(check, actual.shape(), to_doubles(actual.view()), to_doubles(expected->view()),
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
