// What every kernel of this platform answers alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <attune/core/kernel.hpp>

#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"

namespace attune::cpu::simd {

/// A kernel in host memory whose config has `threads` and, where it is compiled for several
/// instruction sets, an `isa`. More threads than cores or tasks, and tiles wider than V, do no
/// harm: they are cut to what there is. So a config found for a neighbour in the same bucket fits.
template <class Config>
class SimdKernel : public Kernel<Config> {
 public:
  using Problem = typename Config::Op::Problem;

  SimdKernel(std::string_view name, int version) : name_(name), version_(version) {}

  std::string_view name() const noexcept final { return name_; }
  int version() const noexcept final { return version_; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "slots", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "cpu" ? Support::yes()
                                      : Support::no(refused::kDevice, "needs host memory");
  }

  Support fits([[maybe_unused]] const Problem& problem, [[maybe_unused]] const DeviceInfo& device,
               [[maybe_unused]] const Config& config) const override {
    if constexpr (requires { config.isa; }) {
      const std::string_view missing = missing_feature(device, config.isa);
      if (!missing.empty()) {
        return Support::no(refused::kDevice, str("isa=", to_string(config.isa), " needs ", missing,
                                                 ", which this CPU has not"));
      }
    }
    return Support::yes();
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for_each_config<Config>([&](const Config& config) {
      if (is_candidate(problem, device, config) && fits(problem, device, config)) {
        configs.push_back(config);
      }
    });
    return configs;
  }

 private:
  /// Whether `config` may be the best one, and is not another way to write one that is tried
  /// besides.
  virtual bool is_candidate(const Problem& problem, const DeviceInfo& device,
                            const Config& config) const = 0;

  std::string_view name_;
  int version_;
};

/// Threads that have something to do: no more than cores, nor than `work` is worth, at
/// `work_per_thread`: what keeps one busy ten times longer than it takes to wake it.
inline std::int64_t useful_threads(double work, double work_per_thread, const DeviceInfo& device) {
  const double worth = 1 + work / work_per_thread;
  return static_cast<std::int64_t>(std::min<double>(device.cores, worth));
}

/// The whole width of V in one task, as the key side is then prepared once and a state read as it
/// lies; narrower tiles only where there are fewer tasks than useful threads.
template <class Config, class TaskCount>
void choose_tile_v(Config& config, std::int64_t value_dim, std::int64_t useful,
                   const TaskCount& task_count) {
  config.tile_v = axis_value_for(&Config::tile_v, value_dim);
  while (task_count(config) < useful) {
    const int narrower = half_of(&Config::tile_v, config.tile_v);
    if (narrower == config.tile_v) break;
    config.tile_v = narrower;
  }
}

/// Whether the value of an axis is `full` or half of it.
template <class Config>
bool full_or_half(const Config& config, int Config::*member, int full) {
  return config.*member == full || config.*member == half_of(member, full);
}

}  // namespace attune::cpu::simd
