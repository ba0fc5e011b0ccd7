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

constexpr TokenCosts kCosts{
    .step = 4, .token = 56, .channel = 0.35, .product = 0.081, .g = 26, .gk = 1.5, .gv = 3.3};

/// Gradients past the caches: their rows, one or two a channel, cost less. By what six problems
/// took on one thread, not fitted.
constexpr TokenCosts kStreamedCosts{
    .step = 4, .token = 56, .channel = 0.21, .product = 0.081, .g = 26, .gk = 1.4, .gv = 3.2};

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
    return simd::expected_us(config.stream ? kStreamedCosts : kCosts, problem,
                             by_group(problem, 1, config.threads));
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
