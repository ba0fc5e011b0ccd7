// A kernel from a function, for one that takes every problem of its op and needs no say in what is
// tried: the oracle of a new op, most of all.
//
//   registry.add(make_kernel<RowSoftmax>("reference.row_softmax", 1,
//                                        [](const auto& problem, const auto& args) { ... }),
//                {.platform = "reference", .backend = "cpu"});
//
//   registry.add(make_kernel<RowsConfig>("mine.row_softmax", 1,
//                                        [](const auto& problem, const auto& args,
//                                           const RowsConfig& config, const LaunchSite& site) { ... }),
//                {.platform = "mine", .backend = "cpu"});
//
// The function is called with the op's Problem and Args, then with the config and with the launch's
// site where it takes these. Its default config is RowsConfig{} or, where that breaks a constraint,
// the first point of the axes that keeps them all; every such point is tried. What else a kernel
// can say needs a class (kernel.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/kernel.hpp>

namespace attune {

/// The config of a kernel with nothing to tune.
template <class OpType>
struct NoAxes {
  using Op = OpType;
  friend constexpr bool operator==(const NoAxes&, const NoAxes&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

template <class Config, class Run>
class FunctionKernel final : public Kernel<Config> {
 public:
  using typename Kernel<Config>::Problem;
  using typename Kernel<Config>::Args;

  FunctionKernel(std::string name, int version, Run function,
                 std::vector<std::string_view> features)
      : name_(std::move(name)),
        version_(version),
        run_(std::move(function)),
        features_(std::move(features)) {}

  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return version_; }
  std::vector<std::string_view> features() const override { return features_; }
  Support supports(const Problem& problem, const DeviceInfo&) const override {
    return default_for(problem) ? Support::yes()
                                : Support::no(refused::kConfig, "no config keeps its constraints");
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo&) const override {
    return default_for(problem).value_or(Config{});
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    if constexpr (std::is_invocable_v<Run, const Problem&, const Args&>) {
      run_(problem, args);
    } else if constexpr (std::is_invocable_v<Run, const Problem&, const Args&, const Config&>) {
      run_(problem, args, config);
    } else {
      run_(problem, args, config, site);
    }
  }

 private:
  static std::optional<Config> default_for(const Problem& problem) {
    const ConfigSpace& space = config_space<Config>();
    if (space.broken(space.standard, &problem) == nullptr) return Config{};
    constexpr std::uint64_t kMostSteps = 200'000;  // some milliseconds
    std::optional<Config> first;
    visit_points(space, &problem, kMostSteps, [&](const ConfigBlob& point) {
      first = Kernel<Config>::unpack(point);
      return false;
    });
    return first;
  }

  std::string name_;
  int version_;
  Run run_;
  std::vector<std::string_view> features_;
};

namespace detail {
template <class OpOrConfig>
struct ConfigFor {
  using type = NoAxes<OpOrConfig>;
};
template <class OpOrConfig>
requires requires { OpOrConfig::axes(); }
struct ConfigFor<OpOrConfig> {
  using type = OpOrConfig;
};
}  // namespace detail

/// `name` and `version` as Kernel::name() and version(), `features` (with static storage) as
/// Kernel::features(). `run` is called from any thread.
template <class OpOrConfig, class Run>
std::unique_ptr<const ErasedKernel> make_kernel(std::string name, int version, Run run,
                                                std::vector<std::string_view> features = {}) {
  using Config = typename detail::ConfigFor<OpOrConfig>::type;
  return std::make_unique<FunctionKernel<Config, Run>>(std::move(name), version, std::move(run),
                                                       std::move(features));
}

}  // namespace attune
