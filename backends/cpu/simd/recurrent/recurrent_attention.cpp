#include <algorithm>
#include <bit>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"
#include "recurrent_forward_config.hpp"
#include "recurrent_launch.hpp"

namespace attune::cpu::simd {
namespace {

using Config = RecurrentForwardConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

/// As many as there are: with more than T, a pass falls back to what of them there is.
int most_tokens(const Problem& problem) {
  const auto tokens = static_cast<std::uint64_t>(std::max<std::int64_t>(problem.T, 1));
  return axis_value_for(&Config::tokens_per_pass,
                        static_cast<std::int64_t>(std::bit_floor(tokens)));
}

/// Whether the states that a thread reads and writes are more than its own caches hold.
///
/// Measured on a Sapphire Rapids with 2 MiB of L2, T = 1, D = 128: writing past the caches takes
/// 0.7 times as long at 8 MiB a thread, half as long from 32 MiB on, 1.1 times as long at 2 MiB
/// and 1.3 times below.
bool states_are_far(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const std::int64_t state = problem.H * problem.K * problem.V * std::int64_t{sizeof(float)};
  const std::int64_t both = 2 * problem.sequences() * state;
  return both / config.threads > std::max<std::int64_t>(device.l2_bytes, 1 << 20);
}

/// Whether the tokens come from beyond a thread's own caches.
bool tokens_are_far(const Problem& problem, const DeviceInfo& device, const Config& config) {
  return ops::RecurrentAttention::bytes(problem) / config.threads >
         static_cast<double>(device.l2_bytes);
}

class RecurrentAttentionKernel final : public SimdKernel<Config> {
 public:
  RecurrentAttentionKernel() : SimdKernel("simd.recurrent_attention", 2) {}

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttention::flops(problem), kFlopsPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    config.tokens_per_pass = most_tokens(problem);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    if (problem.T <= config.tokens_per_pass) config.passes = 1;
    if (config.passes == 1 || !tokens_are_far(problem, device, config)) config.prefetch_tokens = 0;
    config.stream = problem.h0 && problem.ht && states_are_far(problem, device, config);
    if (config.tokens_per_pass == 1 && problem.h0) {
      config.prefetch_state = config.stream ? 1024 : 512;
    }
    return config;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return launch_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch(problem, args, config, site.workspace);
  }

 private:
  /// Per axis that leaves what measured best somewhere: instruction sets narrower than AVX2, and
  /// fewer tokens a pass than two, never did where there was a choice.
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int tile_v = axis_value_for(&Config::tile_v, problem.V);
    const int threads = threads_for(problem, config, device.cores);
    const bool one_pass = problem.T <= config.tokens_per_pass;
    const bool one_token = problem.T == 1;
    const Isa widest = widest_isa(device);
    const bool is_plain = config.tile_v == tile_v && config.threads == threads;
    const bool narrower = config.isa == Isa::kAvx2 && widest == Isa::kAvx512 && !config.stream;
    return full_or_half(config, &Config::tokens_per_pass, most_tokens(problem)) &&
           full_or_half(config, &Config::threads, threads) && config.tile_v <= tile_v &&
           config.passes == (one_pass ? 1 : Config{}.passes) &&
           (one_pass ? config.prefetch_tokens == 0 : config.prefetch_tokens != 4) &&
           (config.prefetch_state == 0 || (one_token && problem.h0)) &&
           (!config.stream || (problem.h0 && problem.ht && is_plain)) &&
           (config.isa == widest || (narrower && is_plain));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_recurrent_attention() {
  return std::make_unique<RecurrentAttentionKernel>();
}

}  // namespace attune::cpu::simd
