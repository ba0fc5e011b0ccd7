// What every kernel of this platform answers alike.
#pragma once

#include <string_view>
#include <vector>

#include <attune/core/kernel.hpp>

#include "heuristics.hpp"
#include "isa.hpp"

namespace attune::cpu::simd {

/// What kernels of the forward pass understand: whatever there is.
inline std::vector<std::string_view> forward_features() {
  return {"g",
          "gamma",
          "gk",
          "gv",
          "packed",
          "h0",
          "ht",
          "pool",
          "reverse",
          "initial_slots",
          "snapshot_every",
          "state=f16",
          "state=bf16",
          "rounding=stochastic"};
}

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

  Support supports(const Problem&, const DeviceInfo& device) const override {
    if (device.id.backend != "cpu") return Support::no(refused::kDevice, "needs host memory");
    if constexpr (requires { Config::kIsa; }) {
      return runs_on(device, Config::kIsa);
    } else {
      return runs_on(device, widest_isa(device));
    }
  }

  Support fits([[maybe_unused]] const Problem& problem, [[maybe_unused]] const DeviceInfo& device,
               [[maybe_unused]] const Config& config) const override {
    if constexpr (requires { config.isa; }) {
      const Support runs = runs_on(device, config.isa);
      if (!runs) {
        return Support::no(refused::kDevice,
                           str("isa=", to_string(config.isa), " ", runs.reason()));
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

}  // namespace attune::cpu::simd
