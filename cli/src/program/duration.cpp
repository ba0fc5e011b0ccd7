#include "program/duration.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace attune::cli {
namespace {

struct Unit {
  std::string_view name;
  double milliseconds;
};
constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
constexpr double kLongest = 30.0 * 24 * 3600e3;

}  // namespace

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> number = parse_real(text.substr(0, digits));
  if (!number) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (text.substr(digits) != unit.name) continue;
    const double milliseconds = std::round(*number * unit.milliseconds);
    if (milliseconds < 1 || milliseconds > kLongest) return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(milliseconds));
  }
  return std::nullopt;
}

}  // namespace attune::cli
