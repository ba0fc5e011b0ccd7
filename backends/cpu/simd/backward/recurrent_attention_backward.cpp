#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_launch.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"

namespace attune::cpu::simd {
namespace {

using Config = RecurrentBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

constexpr TokenCosts kCosts{
    .step = 4, .token = 56, .channel = 0.35, .product = 0.081, .g = 26, .gk = 1.5, .gv = 3.3};

int threads_for(const Problem& problem, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, backward_task_count(problem)));
}

class RecurrentAttentionBackwardKernel final : public SimdKernel<Config> {
 public:
  RecurrentAttentionBackwardKernel() : SimdKernel("simd.recurrent_attention.backward", 1) {}

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttentionBackward::flops(problem), kFlopsPerThread, device);
    return {.threads = threads_for(problem, useful), .isa = widest_isa(device)};
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    return simd::expected_us(kCosts, problem,
                             by_group(problem, 1, heuristic_config(problem, device).threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch_backward(problem, args, config, site.workspace);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int threads = threads_for(problem, device.cores);
    const Isa widest = widest_isa(device);
    const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512;
    return config.tokens_per_pass > 1 && full_or_half(config, &Config::threads, threads) &&
           (config.isa == widest || (narrower && config.threads == threads));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward() {
  return std::make_unique<RecurrentAttentionBackwardKernel>();
}

}  // namespace attune::cpu::simd
