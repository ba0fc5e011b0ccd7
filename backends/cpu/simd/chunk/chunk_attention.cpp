#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_forward_config.hpp"
#include "chunk_launch.hpp"
#include "chunk_work.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"

namespace attune::cpu::simd {
namespace {

using Config = ChunkForwardConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Fewer tokens a sequence than this and the recurrent kernel is faster: most of a chunk would be
/// padding, or the state is read and written for one chunk alone.
constexpr std::int64_t kLeastTokens = 16;

constexpr TokenCosts kCosts{
    .step = 16, .token = 3.1, .channel = 0.64, .product = 0.0233, .g = 9.6, .gk = 0.59, .gv = 0.64};

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

/// Whether products of bf16 pairs may be used: q, k and v are bf16, and the CPU has the
/// instruction.
bool takes_pairs(const Problem& problem, const DeviceInfo& device) {
  return problem.dtype == DType::kBF16 && has_isa(device, Isa::kAvx512Bf16);
}

class ChunkAttentionKernel final : public SimdKernel<Config> {
 public:
  ChunkAttentionKernel() : SimdKernel("simd.chunk", 1) {}

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (tokens_per_sequence(problem) < kLeastTokens) {
      return Support::no(refused::kShape, str("fewer than ", kLeastTokens, " tokens a sequence"));
    }
    return SimdKernel::supports(problem, device);
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.isa == Isa::kAvx512Bf16 && problem.dtype != DType::kBF16) {
      return Support::no(refused::kConfig, "isa=avx512_bf16 takes bf16");
    }
    return SimdKernel::fits(problem, device, config);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttention::flops(problem), kFlopsPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    config.chunk = config.isa == Isa::kAvx512 ? 16 : 8;
    config.prefetch = config.stream = is_far(problem);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    return config;
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    return simd::expected_us(kCosts, problem, by_head(problem, config.tile_v, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return launch_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch(problem, args, config, site.workspace);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    const int full_tile = axis_value_for(&Config::tile_v, problem.V);
    const int all_threads = threads_for(problem, config, device.cores);
    const bool moves_rows = config.prefetch || config.stream;
    if (config.prefetch && tokens_per_sequence(problem) <= config.chunk) return false;
    if (config.isa == Isa::kAvx512Bf16) {
      return takes_pairs(problem, device) && config.tile_v == full_tile &&
             config.threads == all_threads && config.prefetch == config.stream;
    }
    return config.isa == widest_isa(device) && full_or_half(config, &Config::tile_v, full_tile) &&
           (moves_rows ? config.threads == all_threads
                       : full_or_half(config, &Config::threads, all_threads));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_attention() {
  return std::make_unique<ChunkAttentionKernel>();
}

}  // namespace attune::cpu::simd
