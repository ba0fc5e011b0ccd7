#include <algorithm>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"
#include "cpu/simd/simd.hpp"
#include "decode_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Config = DecodeConfig;
using Problem = ops::RecurrentDecodeProblem;

/// Of the states: work that keeps a thread busy ten times longer than it takes to wake it.
constexpr double kBytesPerThread = 1 << 20;

/// Threads that have something to do: no more than cores, nor than the work is worth.
std::int64_t useful_threads(const Problem& problem, const DeviceInfo& device) {
  const double worth = 1 + ops::RecurrentDecode::bytes(problem) / kBytesPerThread;
  return static_cast<std::int64_t>(std::min<double>(device.cores, worth));
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, decode_task_count(problem, config)));
}

/// Whether `config` may be the best one, and is not another way to write one that is tried besides.
bool is_candidate(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const auto full_or_half = [&](int Config::*member, int full) {
    return config.*member == full || config.*member == half_of(member, full);
  };
  const int tile_v = axis_value_for(&Config::tile_v, problem.V);
  const int threads = threads_for(problem, config, device.cores);
  const Isa widest = widest_isa(device);
  const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512;
  return full_or_half(&Config::tile_v, tile_v) &&
         (config.threads == 1 || full_or_half(&Config::threads, threads)) &&
         (config.isa == widest || (narrower && config.tile_v == tile_v));
}

class RecurrentDecodeKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "simd.decode"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "cpu" ? Support::yes() : Support::no("needs host memory");
  }

  /// More threads than cores or tasks, and tiles wider than V, are cut to what there is, as in
  /// simd.recurrent_attention.
  Support fits(const Problem&, const DeviceInfo& device, const Config& config) const override {
    const std::string_view missing = missing_feature(device, config.isa);
    if (missing.empty()) return Support::yes();
    return Support::no(
        str("isa=", to_string(config.isa), " needs ", missing, ", which this CPU has not"));
  }

  /// The whole width of V in one task, since a state is then read as it lies; narrower tiles only
  /// where there are too few rows and heads for the cores.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful = useful_threads(problem, device);
    Config config;
    config.isa = widest_isa(device);
    config.tile_v = axis_value_for(&Config::tile_v, problem.V);
    while (decode_task_count(problem, config) < useful) {
      const int narrower = half_of(&Config::tile_v, config.tile_v);
      if (narrower == config.tile_v) break;
      config.tile_v = narrower;
    }
    config.threads = threads_for(problem, config, useful);
    return config;
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& c) { return !is_candidate(problem, device, c); });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return decode_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_decode(problem, args, config, site.workspace);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_decode() {
  return std::make_unique<RecurrentDecodeKernel>();
}

}  // namespace attune::cpu::simd
