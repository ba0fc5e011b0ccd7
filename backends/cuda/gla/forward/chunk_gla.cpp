#include <cuda_bf16.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <attune/core/axis_values.hpp>

#include "cuda/chunks/expected_walk.hpp"
#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/gla/forward/walk.hpp"
#include "cuda/kernels.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/wgmma_walk/forward_kernel.hpp"

namespace attune::cuda::gla::forward {
namespace {

using Config = ChunkGlaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

constexpr std::int64_t kMostKeys = largest_value(&Config::tile_k);
constexpr int kNarrowest = smallest_value(&Config::tile_v);

/// Divides a workspace, or only counts its bytes where there is none.
struct OperandMemory {
  OperandMemory(const Problem& problem, const Config& config, std::byte* memory) {
    const std::int64_t chunks = chunk_slots(problem) * problem.H;
    const std::int64_t tile_bytes = std::int64_t{config.tile_k} / kPanelChannels * kPanelBytes;
    WorkspaceParts parts(memory);
    tiles = parts.take<std::byte>(2 * chunks * tile_bytes);
    scores = parts.take<std::byte>(chunks * kPanelBytes);
    decays = parts.take<float>(chunks * config.tile_k * static_cast<std::int64_t>(sizeof(float)));
    bytes = parts.used();
  }
  std::byte* tiles;
  std::byte* scores;
  float* decays;
  std::size_t bytes;
};

GlaParams operand_params(const Problem& problem, const Args& args, const Config& config,
                         const OperandMemory& memory) {
  GlaParams params = side_of(problem, {}, false);
  params.tile_channels = config.tile_k;
  params.own_tiles = 1;
  params.x = token_view(args.q);
  params.y = token_view(args.k);
  params.channel_gate = gate_view(args.gk);
  params.gate_in_pairs = has_pairs(*args.gk);
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.sequences = pairs::chunked_sequences(problem, args);
  params.scale = static_cast<float>(args.scale);
  params.score_scale = params.scale;
  params.x_from_start = memory.tiles;
  params.scores = memory.scores;
  params.total_decay = memory.decays;
  return params;
}

std::int64_t blocks_of(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * ceil_div(problem.V, config.tile_v);
}

/// About what cuda.gla_wgmma takes, in microseconds: of 64 value channels of each chunk, were it of 64
/// tokens. From the same problems.
double fused_walks_us(const Problem& problem) {
  constexpr double kLaunch = 8, kOfTile = 0.0165, kOfWideTile = 0.029;
  const auto tiles =
      static_cast<double>(chunk_slots(problem) * problem.H * ceil_div(problem.V, kNarrowest));
  return kLaunch + tiles * (problem.K > 128 ? kOfWideTile : kOfTile);
}
constexpr double kSooner = 0.95;

class ChunkGlaKernel : public chunk_wgmma::ForwardKernel<ChunkGlaConfig> {
 public:
  using Problem = ops::RecurrentAttentionProblem;
  using Args = ops::RecurrentAttentionArgs;

  std::string_view name() const noexcept override { return "cuda.chunk_gla"; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "packed", "h0", "ht", "reverse"};
  }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    constexpr std::int64_t kMostChunks = std::int64_t{1} << 30;
    constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
    if (const Support taken = takes(p, device, kMostKeys); !taken) return taken;
    if (p.dtype != DType::kBF16) return Support::no(refused::kDType, "takes bf16");
    if (!keys_have_gates(p) || values_have_gates(p))
      return Support::no(refused::kFeature, "needs gk, and no gv");
    if (p.snapshot_every > 0) return Support::no(refused::kShape, "states kept on the way");
    if (const Support even = evens_out_roundings(p); !even) return even;
    if (chunk_slots(p) * p.H > kMostChunks || blocks_of(p, {.tile_v = kNarrowest}) > kMostBlocks)
      return Support::no(refused::kShape, "over 2^30 chunks of all heads");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    return has_narrowest_tile(problem, config);
  }

  /// Wide blocks load operands once for twice as many value channels, where they leave no
  /// multiprocessor without one.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const int tile_k = axis_value_for(&Config::tile_k, problem.K);
    const Config wide{.tile_k = tile_k, .tile_v = axis_value_for(&Config::tile_v, problem.V)};
    if (Config::compiles(wide) && blocks_of(problem, wide) >= device.cores) return wide;
    return {.tile_k = tile_k, .tile_v = kNarrowest};
  }

  /// Where it is sooner done than cuda.gla_wgmma, whose blocks make operands themselves; else it is
  /// behind that one.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const double own = walks_us(problem, device);
    return own < kSooner * fused_walks_us(problem) ? std::optional(own) : std::nullopt;
  }
  /// Microseconds: of operands, of blocks that walk, or of what these move. From 16 problems on an
  /// H200.
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    constexpr double kLaunch = 7.7, kOfChunk = 0.009, kOfPanel = 0.0105, kBytesPerUs = 4.2e6;
    const Config config = heuristic_config(problem, device);
    const double panels = config.tile_k / static_cast<double>(kPanelChannels);
    const auto chunks = static_cast<double>(chunk_slots(problem) * problem.H);
    const ExpectedWalk walk{
        .block = 2.5,
        .chunk = config.tile_k > 128          ? 1.27
                 : config.tile_v > kNarrowest ? 1.26
                                              : 0.88,
        .chunk_tokens = kChunkTokens,
        .rounds = std::max(static_cast<double>(blocks_of(problem, config)) / device.cores, 1.0)};
    const double bytes = chunks * kPanelBytes * (2 * panels + 1) +
                         4.0 * static_cast<double>(problem.B * problem.T * problem.H * problem.V);
    return kLaunch + chunks * (kOfChunk + kOfPanel * panels) +
           std::max(expected_walk_us(walk, LikelyLengths(problem)), bytes / kBytesPerUs);
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& config) {
      return !fits(problem, device, config) ||
             (config.tile_v > kNarrowest && problem.V <= kNarrowest);
    });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return OperandMemory(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    const OperandMemory memory(problem, config, site.workspace.data());
    const chunk_wgmma::WalkParams walk = chunk_wgmma::forward_walk(
        problem, args, {.tile_k = config.tile_k, .tile_v = config.tile_v}, {});
    launch_operands<__nv_bfloat16>(operand_params(problem, args, config, memory), stream);
    launch_walk<__nv_bfloat16>(config, walk,
                               {.tiles = memory.tiles,
                                .scores = memory.scores,
                                .decays = memory.decays,
                                .slots = chunk_slots(problem)},
                               stream);
  }
};

}  // namespace
}  // namespace attune::cuda::gla::forward

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_chunk_gla() {
  return std::make_unique<WithStoredStates<WithPaddedRows<gla::forward::ChunkGlaKernel>>>();
}

}  // namespace attune::cuda
