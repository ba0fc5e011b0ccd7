#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_tiles.hpp"
#include "cpu/simd/chunk/chunk_work.hpp"
#include "cpu/simd/expected_time.hpp"
#include "cpu/simd/forward_launch.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/simd/simd_kernel.hpp"

namespace attune::cpu::simd {
namespace {

using Config = ChunkTilesConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Shorter sequences are left to the recurrent kernel: tokens advance by 32, and at 16 it takes 0.4
/// to 0.9 times as long.
constexpr std::int64_t kLeastTokens = 32;

/// Narrower problems round as often and average less: q, k, pairs and the state are rounded to
/// bf16.
constexpr std::int64_t kLeastWidth = 16;

/// K and V are taken in whole ones of so many.
constexpr std::int64_t kTileDepth = 32;

/// Inputs and outputs of a thread that stay in its second-level cache from one call to the next.
/// Fetching rows that are there costs 5 to 10 %; it gains 20 to 30 where they are not.
constexpr double kNearBytes = 1024 * 1024;

/// Nominal work that is worth a thread. T = 64, H = 16, D = 64, 17 MFLOP, takes 54 us on 4 cores of
/// a Sapphire Rapids and 19 us on 16.
constexpr double kFlopsPerTiledThread = 1e6;

/// Fitted to 47 problems of bf16, T from 64 to 2048, K and V from 32 to 256, four of them at a time
/// on cores of their own: 9 % of the relative errors were left. g is 4 there, and 8 keeps narrower
/// problems with the recurrent kernel, which they are faster with.
constexpr TokenCosts kCosts{
    .step = 32, .token = 12, .product = 0.0123, .g = 8, .gk = 0.45, .gv = 1.65};

ChunkTilesTiling tiling_of(const Problem& problem, const Config& config) {
  return chunk_tiles_tiling(config, forward_sizes(problem), (problem.gates & ops::kGateGk) != 0,
                            (problem.gates & ops::kGateGv) != 0);
}

std::int64_t tiled_task_count(const Problem& problem, const Config& config) {
  return chunk_tiles_task_count(tiling_of(problem, config), forward_sizes(problem));
}

ForwardWorkspace workspace_of(const Problem& problem, const Config& config) {
  return forward_workspace(
      problem, std::min<std::int64_t>(config.threads, tiled_task_count(problem, config)),
      chunk_tiles_scratch_bytes(tiling_of(problem, config)));
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, tiled_task_count(problem, config)));
}

class ChunkTilesKernel final : public SimdKernel<Config> {
 public:
  ChunkTilesKernel() : SimdKernel("simd.chunk_tiles", 1) {}

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    const Support in_host_memory = SimdKernel::supports(problem, device);
    if (!in_host_memory) return in_host_memory;
    const std::string_view missing = missing_for_tiles(device);
    if (!missing.empty())
      return Support::no(refused::kDevice, str("needs ", missing, ", which this CPU has not"));
    if (problem.dtype != DType::kBF16) return Support::no(refused::kDType, "takes bf16");
    if (problem.K < kLeastWidth || problem.V < kLeastWidth) {
      return Support::no(refused::kShape, str("takes K and V of at least ", kLeastWidth));
    }
    if (tokens_per_sequence(problem) < kLeastTokens) {
      return Support::no(refused::kShape, str("fewer than ", kLeastTokens, " tokens a sequence"));
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttention::flops(problem), kFlopsPerTiledThread, device);
    Config config;
    // Where channels decay alike a chunk has little to do but products with the state, and one of
    // 32 tokens keeps nearly all of it in the first-level cache: 1.05 to 1.2 times as fast there.
    const bool is_small = problem.K <= 64 && problem.V <= 64;
    const bool decays_alike = (problem.gates & (ops::kGateGk | ops::kGateGv)) == 0;
    if (is_small && decays_alike && tokens_per_sequence(problem) > config.chunk) config.chunk = 32;
    config.stream = is_far(problem);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return tiled_task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    config.prefetch = tokens_per_sequence(problem) > config.chunk &&
                      ops::RecurrentAttention::bytes(problem) > kNearBytes * config.threads;
    return config;
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    Problem padded = problem;
    padded.K = round_up(problem.K, kTileDepth);
    padded.V = round_up(problem.V, kTileDepth);
    return simd::expected_us(kCosts, padded, by_head(padded, config.tile_v, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const ChunkTilesTiling tiling = tiling_of(problem, config);
    launch_forward(problem, args, workspace_of(problem, config), tiled_task_count(problem, config),
                   site.workspace,
                   [&](const RecurrentForwardParams& params, std::int64_t first, std::int64_t last,
                       std::byte* scratch) { chunk_tiles(tiling, params, first, last, scratch); });
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    if (config.prefetch && tokens_per_sequence(problem) <= config.chunk) return false;
    return full_or_half(config, &Config::tile_v, axis_value_for(&Config::tile_v, problem.V)) &&
           full_or_half(config, &Config::threads, threads_for(problem, config, device.cores));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_tiles() {
  return std::make_unique<ChunkTilesKernel>();
}

}  // namespace attune::cpu::simd
