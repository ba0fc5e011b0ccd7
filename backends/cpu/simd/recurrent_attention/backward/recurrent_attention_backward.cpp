#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_launch.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"
#include "streams_gradients.hpp"

namespace attune::cpu::simd {
namespace {

using Config = RecurrentBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

/// By what 120 problems took beside simd.chunk.backward on one thread, not fitted.
constexpr TokenCosts kCosts{
    .step = 4, .token = 55, .channel = 0.15, .product = 0.0785, .g = 4, .gk = 1.5, .gv = 3.2};

/// What a constant decay costs: more states, and an error in its gradient that is half as large
/// again as that of simd.chunk.backward, which is therefore taken where the two are close.
constexpr double kConstantDecay = 45;

/// What a channel costs besides where its rows are made into floats in either sweep.
constexpr double kWidenedChannel = 0.6;

TokenCosts costs_of(const Problem& problem) {
  TokenCosts costs = kCosts;
  if ((problem.gates & ops::kGateGamma) != 0) costs.g = kConstantDecay;
  if (problem.dtype != DType::kF32) costs.channel += kWidenedChannel;
  return costs;
}

int threads_for(const Problem& problem, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, backward_task_count(problem)));
}

/// For at most `useful` threads.
Config usual_config(const Problem& problem, const DeviceInfo& device, std::int64_t useful) {
  const int threads = threads_for(problem, useful);
  return {.stream = streams_gradients(problem, device, threads),
          .threads = threads,
          .isa = widest_isa(device)};
}

class RecurrentAttentionBackwardKernel final : public SimdKernel<Config> {
 public:
  RecurrentAttentionBackwardKernel() : SimdKernel("simd.recurrent_attention.backward", 2) {}

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttentionBackward::flops(problem), kFlopsPerThread, device);
    return usual_config(problem, device, useful);
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    return simd::expected_us(costs_of(problem), problem, by_group(problem, 1, config.threads));
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
    // What is seldom best is tried without all combinations of the rest.
    const Config usual = usual_config(problem, device, device.cores);
    const bool narrower = config.isa == Isa::kAvx2 && usual.isa == Isa::kAvx512;
    if (config.tokens_per_pass == 1 || !full_or_half(config, &Config::threads, usual.threads)) {
      return false;
    }
    if (config.isa != usual.isa && !narrower) return false;
    const int changes =
        narrower + (config.threads != usual.threads) + (config.stream != usual.stream);
    return changes <= 1;
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention_backward() {
  return std::make_unique<RecurrentAttentionBackwardKernel>();
}

}  // namespace attune::cpu::simd
