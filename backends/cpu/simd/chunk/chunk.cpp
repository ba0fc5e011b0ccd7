// Chunked linear attention on the CPU: a chunk of tokens by a few matrix products.
//
//   S_t[i, j] = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) * S_{t-1}[i, j] + k_t[i] v_t[j]
//   o_t[j]    = scale * sum_i q_t[i] S_t[i, j]
//
// The state is fp32 whatever the storage type. Any decay is taken: decays of different tokens are
// multiplied, or their logs added, never divided or subtracted, and a log decay of -inf resets the
// state exactly. A task is a sequence, a query head and a tile of V: heads that share keys and
// values have gates and states of their own. Tasks write disjoint outputs and a sum over K is never
// split, so results do not depend on the number of threads, nor on tile_v, prefetch and stream.
// Denormals count as zero.
#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_config.hpp"
#include "chunk_params.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"

namespace attune::cpu::simd::chunk {
namespace {

using Problem = ops::RecurrentAttentionProblem;

/// Work that keeps a thread busy ten times longer than it takes to wake it.
constexpr double kFlopsPerThread = 2e6;

/// Fewer tokens a sequence than this and the recurrent kernel is faster: most of a chunk would be
/// padding, or the state is read and written for one chunk alone.
constexpr std::int64_t kMinTokens = 16;

constexpr TokenCosts kCosts{
    .step = 16, .token = 3.1, .channel = 0.64, .product = 0.0233, .g = 9.6, .gk = 0.59, .gv = 0.64};

constexpr std::int64_t kPanelWidth = 16;
constexpr std::int64_t kBlockTokens = 4;

Scratch scratch_layout(const Problem& problem, std::int64_t chunk, std::int64_t tile_v,
                       bool has_pairs) {
  const std::int64_t key_dim = problem.K;
  const std::int64_t padded = round_up(key_dim, kPanelWidth);
  ScratchLayout layout;
  Scratch scratch;
  scratch.state = layout.reserve((padded + chunk) * tile_v);
  scratch.reads = layout.reserve((padded + round_up(chunk, kPanelWidth)) * chunk);
  scratch.writes = layout.reserve(padded * chunk);
  scratch.relative = layout.reserve(padded * chunk);
  scratch.from_start = layout.reserve(chunk);
  scratch.to_end = layout.reserve(chunk);
  scratch.key_decays = layout.reserve(padded);
  scratch.key_carries = layout.reserve(padded);
  scratch.key_log_sums = layout.reserve(padded);
  scratch.key_from_start = layout.reserve(padded);
  scratch.block_decays = layout.reserve(padded * (chunk / kBlockTokens));
  scratch.q_rows = layout.reserve(padded * chunk);
  scratch.k_rows = layout.reserve(padded * chunk);
  scratch.gk_rows = layout.reserve(padded * chunk);
  scratch.v_rows = layout.reserve(tile_v * chunk);
  scratch.gv_rows = layout.reserve(tile_v * chunk);
  scratch.o_rows = layout.reserve(tile_v * chunk);
  scratch.value_decays = layout.reserve(tile_v);
  scratch.value_carries = layout.reserve(tile_v);
  if (has_pairs) {
    const std::int64_t paired = round_up(key_dim, 2 * kPanelWidth) / 2;
    scratch.state_pairs = layout.reserve((paired + chunk / 2) * tile_v);
    scratch.read_pairs = layout.reserve((paired + round_up(chunk, 2 * kPanelWidth) / 2) * chunk);
    scratch.write_pairs = layout.reserve(padded * chunk / 2);
  }
  scratch.staged = layout.reserve(staged_floats(problem, tile_v));
  scratch.zeros = layout.reserve(std::max(padded, tile_v));
  scratch.size = layout.size();
  return scratch;
}

Tiling tiling_of(const Problem& problem, const Config& config) {
  Tiling tiling;
  tiling.chunk = config.chunk;
  tiling.tile_v = round_up(std::min<std::int64_t>(config.tile_v, problem.V), lanes(config.isa));
  tiling.tiles = round_up(problem.V, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch = config.prefetch;
  tiling.stream = config.stream;
  tiling.scratch =
      scratch_layout(problem, tiling.chunk, tiling.tile_v, config.isa == Isa::kAvx512Bf16);
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

/// Whether products of bf16 pairs may be used: q, k and v are bf16, and the CPU has the
/// instruction.
bool takes_pairs(const Problem& problem, const DeviceInfo& device) {
  return problem.dtype == DType::kBF16 && has_isa(device, Isa::kAvx512Bf16);
}

class ChunkAttentionKernel final : public SimdKernel<Config> {
 public:
  ChunkAttentionKernel() : SimdKernel("simd.chunk", 1) {}

  std::vector<std::string_view> features() const override { return forward_features(); }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (tokens_per_sequence(problem) < kMinTokens) {
      return Support::no(refused::kShape, str("fewer than ", kMinTokens, " tokens a sequence"));
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
    config.prefetch = config.stream = exceeds_caches(problem);
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
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const Tiling tiling = tiling_of(problem, config);
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_forward(problem, args, workspace_of(problem, config), task_count(problem, config),
                   site.workspace,
                   [&](const ForwardParams& params, std::int64_t first, std::int64_t last,
                       float* scratch) { compiled.run(tiling, params, first, last, scratch); });
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
std::unique_ptr<const ErasedKernel> make() { return std::make_unique<ChunkAttentionKernel>(); }

}  // namespace attune::cpu::simd::chunk
