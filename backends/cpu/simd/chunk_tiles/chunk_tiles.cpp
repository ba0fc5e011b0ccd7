// Chunked linear attention on the CPU's tile registers (AMX-BF16), for bf16 inputs and outputs.
//
//   S_t[i, j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i, j] + k_t[i] v_t[j]
//   o_t[j]    = scale * sum_i q_t[i] S_t[i, j]
//
// The state and all sums are fp32. Rounded to bf16, once each, are the operands of products: the
// state as a chunk reads it, q, k and v with their decays, the scores. Any decay is taken, and -inf
// resets exactly. A task is a sequence, a query head and a tile of V. Tasks write disjoint outputs
// and a sum over K is never split, so results do not depend on the number of threads, nor on
// tile_v, prefetch and stream. Denormals count as zero.
#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_tiles_config.hpp"
#include "chunk_tiles_params.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"

namespace attune::cpu::simd::chunk_tiles {
namespace {

using Problem = ops::RecurrentAttentionProblem;

/// Shorter sequences are left to the recurrent kernel: tokens advance by 32, and at 16 it takes 0.4
/// to 0.9 times as long.
constexpr std::int64_t kMinTokens = 32;

/// Narrower problems round as often and average less: q, k, scores and the state are rounded to
/// bf16.
constexpr std::int64_t kMinWidth = 16;

/// K and V are taken in whole ones of so many.
constexpr std::int64_t kTileDepth = 32;

/// Inputs and outputs of a thread that stay in its second-level cache from one call to the next.
/// Fetching rows that are there costs 5 to 10 %; it gains 20 to 30 where they are not.
constexpr double kCachedBytes = 1024 * 1024;

/// Nominal work that is worth a thread. T = 64, H = 16, D = 64, 17 MFLOP, takes 54 us on 4 cores of
/// a Sapphire Rapids and 19 us on 16.
constexpr double kFlopsPerThread = 1e6;

/// Fitted to 47 problems of bf16, T from 64 to 2048, K and V from 32 to 256, four of them at a time
/// on cores of their own: 9 % of the relative errors were left. g is 4 there, and 8 keeps narrower
/// problems with the recurrent kernel, which they are faster with.
constexpr TokenCosts kCosts{
    .step = 32, .token = 12, .product = 0.0123, .g = 8, .gk = 0.45, .gv = 1.65};

constexpr std::int64_t kTileFloats = 256;
constexpr std::int64_t kTileRows = 16;

void reserve_key_decays(ScratchLayout& layout, std::int64_t chunk, std::int64_t width,
                        Scratch& scratch) {
  scratch.key_magnitudes = layout.reserve(width);
  scratch.near_keys = layout.reserve(kTileRows * width / 2);
  scratch.key_gates = layout.reserve(kTileRows * width);
  scratch.key_token_decays = layout.reserve(kTileRows * width);
  scratch.key_relative = layout.reserve(kTileRows * width);
  scratch.key_ends = layout.reserve(chunk * width);
  scratch.key_inverses = layout.reserve(width);
  scratch.key_block_decays = layout.reserve(chunk / kTileRows * width);
}

void reserve_value_decays(ScratchLayout& layout, std::int64_t chunk, std::int64_t width,
                          Scratch& scratch) {
  scratch.value_gates = layout.reserve(kTileRows * width);
  scratch.value_token_decays = layout.reserve(chunk * width);
  scratch.value_reads = layout.reserve(chunk * width);
  scratch.value_ends = layout.reserve(chunk * width);
  scratch.value_blocks = layout.reserve(chunk / kTileRows * chunk * width / 2);
  scratch.value_starts = layout.reserve((chunk / kTileRows + 1) * width);
  scratch.value_inverses = layout.reserve(width);
  scratch.value_decays = layout.reserve(width);
  scratch.value_carries = layout.reserve(width);
}

Tiling tiling_of(const Problem& problem, const Config& config) {
  const bool has_gk = (problem.gates & ops::kGateGk) != 0;
  const bool has_gv = (problem.gates & ops::kGateGv) != 0;
  Tiling tiling;
  tiling.chunk = config.chunk;
  tiling.tile_v = round_up(std::min<std::int64_t>(config.tile_v, problem.V), kTileDepth);
  tiling.tiles = round_up(problem.V, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch = config.prefetch;
  tiling.stream = config.stream;

  const std::int64_t chunk = tiling.chunk;
  const std::int64_t keys = round_up(problem.K, kTileDepth);
  const std::int64_t values = tiling.tile_v;
  Scratch& scratch = tiling.scratch;
  ScratchLayout layout;
  scratch.state = layout.reserve(keys * values);
  scratch.state_pairs = layout.reserve(keys * kTileDepth / 2);
  scratch.queries = layout.reserve(chunk * keys / 2);
  scratch.keys = layout.reserve(chunk * keys / 2);
  scratch.writes = layout.reserve(chunk * keys / 2);
  scratch.values = layout.reserve(chunk * (has_gv ? values : 2 * kTileDepth) / 2);
  if (has_gk || has_gv) scratch.sums = layout.reserve(chunk * chunk);
  scratch.scores = layout.reserve(chunk * chunk / 2);
  scratch.outputs = layout.reserve(4 * kTileFloats);
  scratch.q_copies = layout.reserve(chunk * keys / 2);
  scratch.k_copies = layout.reserve(chunk * keys / 2);
  scratch.v_copies = layout.reserve(chunk * values / 2);
  scratch.key_decays = layout.reserve(keys);
  scratch.key_carries = layout.reserve(keys);
  scratch.key_pending = layout.reserve(keys);
  if (has_gk) reserve_key_decays(layout, chunk, keys, scratch);
  if (has_gv) reserve_value_decays(layout, chunk, values, scratch);
  scratch.staged = layout.reserve(staged_floats(problem, values));
  scratch.zeros = layout.reserve(std::max(keys, values));
  scratch.size = layout.size();
  return tiling;
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * tiling_of(problem, config).tiles;
}

Workspace workspace_of(const Problem& problem, const Config& config) {
  return workspace_for(problem, config.threads, task_count(problem, config),
                       tiling_of(problem, config).scratch.size, false);
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

class ChunkTilesKernel final : public SimdKernel<Config> {
 public:
  ChunkTilesKernel() : SimdKernel("simd.chunk_tiles", 1) {}

  std::vector<std::string_view> features() const override { return forward_features(); }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    const Support runs_here = SimdKernel::supports(problem, device);
    if (!runs_here) return runs_here;
    if (problem.dtype != DType::kBF16) return Support::no(refused::kDType, "takes bf16");
    if (problem.K < kMinWidth || problem.V < kMinWidth) {
      return Support::no(refused::kShape, str("takes K and V of at least ", kMinWidth));
    }
    if (tokens_per_sequence(problem) < kMinTokens) {
      return Support::no(refused::kShape, str("fewer than ", kMinTokens, " tokens a sequence"));
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttention::flops(problem), kFlopsPerThread, device);
    Config config;
    // Where channels decay alike a chunk has little to do but products with the state, and one of
    // 32 tokens keeps nearly all of it in the first-level cache: 1.05 to 1.2 times as fast there.
    const bool is_small = problem.K <= 64 && problem.V <= 64;
    const bool decays_alike = (problem.gates & (ops::kGateGk | ops::kGateGv)) == 0;
    if (is_small && decays_alike && tokens_per_sequence(problem) > config.chunk) config.chunk = 32;
    config.stream = exceeds_caches(problem);
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    config.prefetch = tokens_per_sequence(problem) > config.chunk &&
                      ops::RecurrentAttention::bytes(problem) > kCachedBytes * config.threads;
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
    const Tiling tiling = tiling_of(problem, config);
    const Instance compiled =
        instance_for<Config>(Config::kIsa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_forward(problem, args, workspace_of(problem, config), task_count(problem, config),
                   site.workspace,
                   [&](const ForwardParams& params, std::int64_t first, std::int64_t last,
                       float* scratch) { compiled.run(tiling, params, first, last, scratch); });
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
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<ChunkTilesKernel>(); }

}  // namespace attune::cpu::simd::chunk_tiles
