#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <attune/core/kernel.hpp>

#include "cuda/chunk_tf32/chunk_tf32_config.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/forward_walk.hpp"

namespace attune::cuda::chunk_tf32 {
namespace {

using Config = ChunkTf32Config;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

/// Tokens of a sequence, on average, from which on chunks are faster than single tokens.
constexpr std::int64_t kLeastTokens = 24;

/// Blocks that run on a multiprocessor at once.
std::int64_t resident_blocks(const WalkTile& tile, const WalkExtents& extents,
                             const DeviceInfo& device) {
  constexpr std::int64_t kRegisters = 65536;  // of a multiprocessor
  constexpr std::int64_t kPerThread = 128;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  const auto bytes =
      static_cast<std::int64_t>(shared_bytes(tile, extents.parts, extents.column_gates));
  const std::int64_t blocks =
      std::min(kRegisters / (tile.threads() * kPerThread), device.l1_bytes / (bytes + kReserved));
  return std::max<std::int64_t>(blocks, 1);
}

/// Microseconds of one chunk where `blocks` of them share a multiprocessor: either its instructions
/// are what it takes, or how long one warp takes for its own. Fitted to an H200, as what follows.
double chunk_us(const WalkTile& tile, int parts, std::int64_t blocks) {
  constexpr double kInstructionsPerUs = 3400;
  const double share = parts > 1 ? 1.0 : 0.7;
  const double of_state = tile.column_warps * (200.0 + 14.0 * tile.rows) * share;
  const double of_staging = tile.staging_threads() / 32 * 730.0 * share;
  const double alone = (1.3 + 0.03 * tile.rows) * share;
  return std::max(alone,
                  static_cast<double>(blocks) * (of_state + of_staging) / kInstructionsPerUs);
}

}  // namespace

double walk_us(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device,
               std::int64_t segments) {
  constexpr double kOfBothWalks = 1.6;  // the first one reads nothing
  constexpr double kOfLaunches = 4;     // each
  constexpr double kBytesPerUs = 2.5e6;
  const std::int64_t blocks =
      extents.heads * tile_count(tile, extents.rows, extents.columns) * segments;
  const std::int64_t resident = resident_blocks(tile, extents, device);
  const std::int64_t in_a_wave = device.cores * resident;
  const std::int64_t left = ceil_div(blocks % in_a_wave, device.cores);
  double of_chunk =
      static_cast<double>(blocks / in_a_wave) * chunk_us(tile, extents.parts, resident);
  if (left > 0) of_chunk += chunk_us(tile, extents.parts, left);
  const std::int64_t chunks = ceil_div(ceil_div(extents.tokens, segments), kChunk);
  const double together = of_chunk * static_cast<double>(chunks);
  double us = together;
  if (segments == 1) {  // else a longer sequence has more of them
    us = 0;
    for (const double tokens : extents.longest) {
      us += std::max(together, chunk_us(tile, extents.parts, 1) * std::ceil(tokens / kChunk));
    }
    us /= static_cast<double>(extents.longest.size());
  }
  if (segments > 1) {  // states are written, folded and read
    const double elements = static_cast<double>(segments * extents.heads) *
                            static_cast<double>(extents.rows * extents.columns);
    if (!extents.final_only) us *= kOfBothWalks;
    us += 3 * kOfLaunches + 16 * elements / kBytesPerUs;
  }
  const std::int64_t planes = row_blocks(tile, extents.rows);
  if (planes > 1 && !extents.final_only) {
    const double elements = static_cast<double>(planes * extents.heads) *
                            static_cast<double>(extents.tokens * extents.columns);
    us += kOfLaunches + 8 * elements / kBytesPerUs;
  }
  return us;
}

int operand_parts(const Problem& problem) {
  return problem.dtype == DType::kF32 && !problem.tf32 ? 2 : 1;
}

WalkExtents forward_extents(const Problem& problem) {
  return {.heads = problem.sequences() * problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .tokens = problem.T / std::max<std::int64_t>(problem.N, 1),
          .longest = LikelyLengths(problem).longest,
          .parts = operand_parts(problem),
          .column_gates = (problem.gates & ops::kGateGv) != 0};
}

Support takes(const Problem& problem, const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  if (!device.has("sm_80")) {
    return Support::no(refused::kDevice, "needs compute capability 8.0");
  }
  // Snapshots are kept by chunks alone.
  if (problem.snapshot_every == 0 &&
      problem.T < kLeastTokens * std::max<std::int64_t>(problem.N, 1)) {
    return Support::no(refused::kShape,
                       str("takes sequences of ", kLeastTokens, " tokens or more"));
  }
  return Support::yes();
}

Support tile_fits(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device) {
  if (tile.threads() > kMaxThreads) {
    return Support::no(refused::kConfig,
                       str("needs ", tile.threads(), " threads a block, at most ", kMaxThreads));
  }
  const std::size_t bytes = shared_bytes(tile, extents.parts, extents.column_gates);
  if (bytes <= static_cast<std::size_t>(device.l1_bytes)) return Support::yes();
  return Support::no(refused::kMemory, str("needs ", bytes, " bytes of shared memory, a block has ",
                                           device.l1_bytes));
}

WalkTile heuristic_tile(const WalkExtents& extents, const DeviceInfo& device) {
  WalkTile best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const int rows : kAxisValues<&Config::rows>) {
    if (rows >= 2 * extents.rows && rows > kAxisValues<&Config::rows>[0]) break;
    for (const int column_warps : kAxisValues<&Config::column_warps>) {
      const WalkTile tile{rows, column_warps};
      if (!tile_fits(tile, extents, device)) continue;
      const double cost = walk_us(tile, extents, device, heuristic_segments(tile, extents, device));
      if (cost < best_cost) {
        best = tile;
        best_cost = cost;
      }
    }
  }
  return best;
}

int heuristic_segments(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr std::int64_t kLeastSegment = 2 * kChunk;  // shorter ones do not pay for their states
  int best = 1;
  for (const int segments : kSegmentCounts) {
    if (segments > 1 && segments * kLeastSegment > extents.tokens) break;
    if (walk_us(tile, extents, device, segments) < walk_us(tile, extents, device, best)) {
      best = segments;
    }
  }
  return best;
}

std::vector<WalkChoice> candidate_walks(const WalkExtents& extents, const DeviceInfo& device) {
  const WalkTile first = heuristic_tile(extents, device);
  std::vector<WalkTile> tiles{first};
  for (const WalkTile& tile :
       {WalkTile{first.rows, first.column_warps / 2}, WalkTile{first.rows, first.column_warps * 2},
        WalkTile{first.rows / 2, first.column_warps},
        WalkTile{first.rows * 2, first.column_warps}}) {
    const bool exists =
        tile.rows >= 32 && tile.rows <= 128 && tile.column_warps >= 1 && tile.column_warps <= 8;
    if (exists) tiles.push_back(tile);
  }
  std::vector<WalkChoice> choices;
  for (const WalkTile& tile : tiles) {
    if (!tile_fits(tile, extents, device)) continue;
    const int middle = heuristic_segments(tile, extents, device);
    for (const int segments : {middle, middle / 2, 2 * middle}) {
      const bool is_cut = segments >= 1 && segments <= std::ranges::max(kSegmentCounts) &&
                          segments * std::int64_t{kChunk} <= extents.tokens;
      if (segments == middle || is_cut) choices.push_back({tile, segments});
    }
  }
  return choices;
}

namespace {

class ChunkTf32 : public Kernel<ChunkTf32Config> {
 public:
  using Config = ChunkTf32Config;

  std::string_view name() const noexcept override { return "cuda.chunk_tf32"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    return takes(problem, device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return tile_fits(config.tile(), forward_extents(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = forward_extents(problem);
    const WalkTile tile = heuristic_tile(extents, device);
    return Config::of({tile, heuristic_segments(tile, extents, device)});
  }
  /// In 16 bits it comes after all others, whatever takes longer.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (problem.dtype != DType::kF32) return std::nullopt;
    constexpr double kOfCall = 6.5;
    constexpr double kMeasured = 1.25;  // of what is reckoned, on 20 problems of an H100
    constexpr double kPacked = 1.5;     // of that, on six of an H200: 0.8 to 1.8
    const WalkExtents extents = forward_extents(problem);
    const WalkTile tile = heuristic_tile(extents, device);
    return kOfCall + (problem.N > 1 ? kPacked : 1.0) * kMeasured *
                         walk_us(tile, extents, device, heuristic_segments(tile, extents, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkChoice& choice : candidate_walks(forward_extents(problem), device)) {
      configs.push_back(Config::of(choice));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return forward_workspace_bytes(problem, ForwardWalker(problem, config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      run_forward_walk<T>(problem, args, ForwardWalker(problem, config), site.workspace, stream);
    });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_tf32

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_tf32() {
  return std::make_unique<WithStoredStates<chunk_tf32::ChunkTf32>>();
}
