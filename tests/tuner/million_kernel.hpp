// A kernel of the tuner's tests with a million configs, and the configs of others that have them.
#pragma once

#include <cstdlib>
#include <string_view>
#include <tuple>

#include "tuner/scaling_op.hpp"

namespace attune::test {

/// A million points, of which those are left whose digits add up to kLeast: the larger that is, the
/// fewer there are.
template <int kLeast>
struct DigitsConfig {
  using Op = Scaling;
  int a = 9, b = 9, c = 9, d = 9, e = 9, f = 9;
  friend constexpr bool operator==(const DigitsConfig&, const DigitsConfig&) = default;
  static constexpr auto axes() {
    using C = DigitsConfig;
    constexpr int kDigits[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    return std::tuple{launch_axis("a", &C::a, kDigits), launch_axis("b", &C::b, kDigits),
                      launch_axis("c", &C::c, kDigits), launch_axis("d", &C::d, kDigits),
                      launch_axis("e", &C::e, kDigits), launch_axis("f", &C::f, kDigits)};
  }
  static constexpr auto constraints() {
    using C = DigitsConfig;
    return std::tuple{constraint(
        "the digits add up to enough",
        [](int a, int b, int c, int d, int e, int f) { return a + b + c + d + e + f >= kLeast; },
        &C::a, &C::b, &C::c, &C::d, &C::e, &C::f)};
  }
};
using MillionConfig = DigitsConfig<0>;
using SparseConfig = DigitsConfig<50>;  // 210 of a million keep it

template <class Config>
double away(const Config& c) {
  return std::abs(c.a - 7) + std::abs(c.b - 4) + std::abs(c.c - 8) + std::abs(c.d - 2) +
         std::abs(c.e - 6) + std::abs(c.f - 8);
}

/// Right, and the slower the further a config is away from the best.
class MillionKernel final : public Kernel<MillionConfig> {
 public:
  explicit MillionKernel(World& world) : world_(world) {}
  std::string_view name() const noexcept override { return "test.scaling.million"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  MillionConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const MillionConfig& config,
           const LaunchSite&) const override {
    world_.launch_us = 100 * (1 + away(config));
    for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
  }

 private:
  World& world_;
};

}  // namespace attune::test
