#include <algorithm>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_launch.hpp"
#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"
#include "cpu/simd/simd.hpp"

namespace attune::cpu::simd {
namespace {

using Config = RecurrentBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Work that keeps a thread busy ten times longer than it takes to wake it.
constexpr double kFlopsPerThread = 1e6;

/// Threads that have something to do: no more than cores, nor than the work is worth.
std::int64_t useful_threads(const Problem& problem, const DeviceInfo& device) {
  const double worth = 1 + ops::RecurrentAttentionBackward::flops(problem) / kFlopsPerThread;
  return static_cast<std::int64_t>(std::min<double>(device.cores, worth));
}

int threads_for(const Problem& problem, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, backward_task_count(problem)));
}

/// Whether `config` may be the best one, and is not another way to write one that is tried besides.
bool is_candidate(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const int threads = threads_for(problem, device.cores);
  const Isa widest = widest_isa(device);
  const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512;
  return config.tokens_per_pass > 1 &&
         (config.threads == threads || config.threads == half_of(&Config::threads, threads)) &&
         (config.isa == widest || (narrower && config.threads == threads));
}

class RecurrentAttentionBackwardKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "simd.recurrent_attention.backward"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem&, const DeviceInfo& device) const override {
    return device.id.backend == "cpu" ? Support::yes() : Support::no("needs host memory");
  }

  /// More threads than cores or tasks, and more tokens a pass than T, are cut to what there is, as
  /// in simd.recurrent_attention.
  Support fits(const Problem&, const DeviceInfo& device, const Config& config) const override {
    const std::string_view missing = missing_feature(device, config.isa);
    if (missing.empty()) return Support::yes();
    return Support::no(
        str("isa=", to_string(config.isa), " needs ", missing, ", which this CPU has not"));
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return {.threads = threads_for(problem, useful_threads(problem, device)),
            .isa = widest_isa(device)};
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& c) { return !is_candidate(problem, device, c); });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_backward(problem, args, config, site.workspace);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward() {
  return std::make_unique<RecurrentAttentionBackwardKernel>();
}

}  // namespace attune::cpu::simd
