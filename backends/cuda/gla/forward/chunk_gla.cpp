#include <cuda_bf16.h>

#include <algorithm>
#include <limits>
#include <optional>

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

/// Divides a workspace, or only counts its bytes where there is none.
struct OperandMemory {
  OperandMemory(const Problem& problem, const Config& config, std::byte* memory) {
    const std::int64_t chunks = chunk_slots(problem) * problem.H;
    const std::int64_t tile_bytes = std::int64_t{config.tile_k} / kPanelChannels * kPanelBytes;
    WorkspaceParts parts(memory);
    tiles = parts.take<std::byte>(2 * chunks * tile_bytes);
    scores = parts.take<std::byte>(chunks * kPanelBytes);
    decays = parts.take<float>(chunks * config.tile_k * static_cast<std::int64_t>(sizeof(float)));
    progress.taken =
        parts.take<int>(problem.sequences() * problem.H * static_cast<std::int64_t>(sizeof(int)));
    progress.is_made = parts.take<unsigned>(chunks * static_cast<std::int64_t>(sizeof(unsigned)));
    bytes = parts.used();
  }
  std::byte* tiles;
  std::byte* scores;
  float* decays;
  WalkProgress progress;
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
  params.x_from_start = memory.tiles;
  params.scores = memory.scores;
  params.total_decay = memory.decays;
  return params;
}

std::int64_t blocks_of(const Problem& problem) {
  return problem.sequences() * problem.H * ceil_div(problem.V, kValueTile);
}

/// About what cuda.gla_wgmma takes, in microseconds: of 64 value channels of each chunk, were it of 64
/// tokens, and more of segments, which few heads take. From the same problems.
double fused_walks_us(const Problem& problem, const DeviceInfo& device) {
  constexpr double kLaunch = 8, kOfTile = 0.0165, kOfWideTile = 0.029;
  constexpr double kInSegments = 1.6, kFewBlocks = 0.6;
  const auto tiles =
      static_cast<double>(chunk_slots(problem) * problem.H * ceil_div(problem.V, kValueTile));
  const bool is_cut = static_cast<double>(blocks_of(problem)) < kFewBlocks * device.cores;
  return kLaunch + tiles * (problem.K > 128 ? kOfWideTile : kOfTile) * (is_cut ? kInSegments : 1.0);
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
    if (chunk_slots(p) * p.H > kMostChunks || blocks_of(p) > kMostBlocks)
      return Support::no(refused::kShape, "over 2^30 chunks of all heads");
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    return has_narrowest_tile(problem, config);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo&) const override {
    return {.tile_k = axis_value_for(&Config::tile_k, problem.K)};
  }

  /// Where it is sooner done than cuda.gla_wgmma, whose blocks make operands themselves; else it is
  /// behind that one.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const double own = walks_us(problem, device);
    return own < kSooner * fused_walks_us(problem, device) ? std::optional(own) : std::nullopt;
  }
  /// Microseconds: of the first chunk's operands, then of blocks that make as many as they walk. From 24
  /// problems on an H200.
  double walks_us(const Problem& problem, const DeviceInfo& device) const {
    constexpr double kLaunches = 8, kOfPanel = 2.4, kOfPanelBehindGates = 3.0;
    const Config config = heuristic_config(problem, device);
    const bool is_wide = config.tile_k > 128;
    const bool waits_for_gates = is_wide && problem.gate_dtype == ops::GateDType::kF32;
    const double panels = config.tile_k / static_cast<double>(kPanelChannels);
    const double operands = panels * (waits_for_gates ? kOfPanelBehindGates : kOfPanel);
    const auto blocks_of_head = static_cast<double>(ceil_div(problem.V, kValueTile));
    const ExpectedWalk walk{
        .block = 2.5,
        .chunk = std::max(is_wide ? 1.45 : 1.3, operands / blocks_of_head),
        .chunk_tokens = kChunkTokens,
        .rounds = std::max(static_cast<double>(blocks_of(problem)) / device.cores, 1.0)};
    return kLaunches + operands + expected_walk_us(walk, LikelyLengths(problem));
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
        problem, args, {.tile_k = config.tile_k, .tile_v = kValueTile}, {});
    launch_walk<__nv_bfloat16>(config, walk, operand_params(problem, args, config, memory),
                               memory.progress, stream);
  }
};

}  // namespace
}  // namespace attune::cuda::gla::forward

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_chunk_gla() {
  return std::make_unique<WithStoredStates<WithPaddedRows<gla::forward::ChunkGlaKernel>>>();
}

}  // namespace attune::cuda
