#include <algorithm>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_forward_config.hpp"
#include "chunk_launch.hpp"
#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"
#include "cpu/simd/simd.hpp"

namespace attune::cpu::simd {
namespace {

using Config = ChunkForwardConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Work that keeps a thread busy ten times longer than it takes to wake it.
constexpr double kFlopsPerThread = 2e6;

std::int64_t useful_threads(const Problem& problem, const DeviceInfo& device) {
  const double worth = 1 + ops::RecurrentAttention::flops(problem) / kFlopsPerThread;
  return std::min<std::int64_t>(device.cores, static_cast<std::int64_t>(std::min(worth, 1e6)));
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

bool is_candidate(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const auto full_or_half = [&](int Config::*member, int full) {
    return config.*member == full || config.*member == half_of(member, full);
  };
  const int tile_v = axis_value_for(&Config::tile_v, problem.V);
  const int threads = threads_for(problem, config, device.cores);
  return full_or_half(&Config::tile_v, tile_v) && config.threads == threads &&
         config.isa == widest_isa(device);
}

class ChunkAttentionKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "simd.chunk"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "cpu" ? Support::yes() : Support::no("needs host memory");
  }

  /// More threads than cores or tasks, tiles wider than V and chunks longer than T do no harm. So a
  /// config found for a neighbour in the same bucket fits.
  Support fits(const Problem&, const DeviceInfo& device, const Config& config) const override {
    const std::string_view missing = missing_feature(device, config.isa);
    if (missing.empty()) return Support::yes();
    return Support::no(
        str("isa=", to_string(config.isa), " needs ", missing, ", which this CPU has not"));
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful = useful_threads(problem, device);
    Config config;
    config.isa = widest_isa(device);
    config.chunk = 16;
    config.tile_v = axis_value_for(&Config::tile_v, problem.V);
    while (task_count(problem, config) < useful) {
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
    return launch_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch(problem, args, config, site.workspace);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_attention() {
  return std::make_unique<ChunkAttentionKernel>();
}

}  // namespace attune::cpu::simd
