#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/chunk_tf32/chunk_tf32_config.hpp"
#include "cuda/chunks/plane_sums.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/segment_fold.hpp"

namespace attune::cuda::chunk_tf32 {
namespace {

using Config = ChunkTf32Config;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

/// Tokens of a sequence, on average, from which on chunks are faster than single tokens.
constexpr std::int64_t kLeastTokens = 12;

WalkExtents extents_of(const Problem& problem) {
  return {.heads = problem.sequences() * problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .tokens = problem.T / std::max<std::int64_t>(problem.N, 1),
          .parts = operand_parts(problem),
          .column_gates = (problem.gates & ops::kGateGv) != 0};
}

Config config_of(const WalkChoice& choice) {
  return {.rows = choice.tile.rows,
          .column_warps = choice.tile.column_warps,
          .segments = choice.segments};
}

/// Blocks that run on the device at once.
std::int64_t room_for(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr std::int64_t kRegisters = 65536;  // of a multiprocessor
  constexpr std::int64_t kPerThread = 128;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  const auto bytes =
      static_cast<std::int64_t>(shared_bytes(tile, extents.parts, extents.column_gates));
  const std::int64_t blocks =
      std::min(kRegisters / (tile.threads() * kPerThread), device.l1_bytes / (bytes + kReserved));
  return device.cores * std::max<std::int64_t>(blocks, 1);
}

std::int64_t blocks_of(const WalkTile& tile, const WalkExtents& extents) {
  return std::max<std::int64_t>(extents.heads * tile_count(tile, extents.rows, extents.columns), 1);
}

}  // namespace

int operand_parts(const Problem& problem) {
  return problem.dtype == DType::kF32 && !problem.tf32 ? 2 : 1;
}

Support takes(const Problem& problem, const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  if (!device.has("sm_80")) {
    return Support::no(refused::kDevice, "needs compute capability 8.0");
  }
  if (problem.T < kLeastTokens * std::max<std::int64_t>(problem.N, 1)) {
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
  WalkTile tile;
  tile.rows = extents.rows <= 32 ? 32 : extents.rows <= 64 ? 64 : 128;
  tile.column_warps = 1;
  while (tile.column_warps < 8 && tile.columns() < extents.columns) tile.column_warps *= 2;
  while (!tile_fits(tile, extents, device)) tile.column_warps /= 2;
  return tile;
}

int heuristic_segments(const WalkTile& tile, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr std::int64_t kLeastSegment = 64;  // tokens; shorter ones do not pay for their states
  const std::int64_t blocks = blocks_of(tile, extents);
  const std::int64_t room = room_for(tile, extents, device);
  int segments = 1;
  while (segments < std::ranges::max(kSegments) && 2 * segments * blocks <= room &&
         2 * segments * kLeastSegment <= extents.tokens) {
    segments *= 2;
  }
  return segments;
}

std::vector<WalkChoice> candidate_walks(const WalkExtents& extents, const DeviceInfo& device) {
  const WalkTile first = heuristic_tile(extents, device);
  std::vector<WalkTile> tiles{first};
  if (first.column_warps > 2) tiles.push_back({first.rows, first.column_warps / 2});
  if (first.rows > 64) tiles.push_back({64, first.column_warps});
  std::vector<WalkChoice> choices;
  for (const WalkTile& tile : tiles) {
    if (!tile_fits(tile, extents, device)) continue;
    const int middle = heuristic_segments(tile, extents, device);
    for (const int segments : {middle, middle / 2, 2 * middle}) {
      const bool is_cut = segments >= 1 && segments <= std::ranges::max(kSegments) &&
                          segments * std::int64_t{kChunk} <= extents.tokens;
      if (segments == middle || is_cut) choices.push_back({tile, segments});
    }
  }
  return choices;
}

namespace {

std::int64_t plane_floats(const Problem& problem, const Config& config) {
  const std::int64_t blocks = row_blocks(config.tile(), problem.K);
  return blocks > 1 ? blocks * problem.B * problem.T * problem.H * problem.V : 0;
}

SegmentPlan segment_plan(const Problem& problem, const Config& config) {
  return {problem,
          config.segments,
          kChunk,
          problem.K,
          problem.V,
          (problem.gates & ops::kGateGk) != 0,
          (problem.gates & ops::kGateGv) != 0};
}

template <class T>
void launch_forward(const Problem& problem, const Args& args, const Config& config,
                    const LaunchSite& site) {
  auto* const stream = static_cast<cudaStream_t>(site.stream);
  const SegmentPlan plan = segment_plan(problem, config);
  auto* const memory = reinterpret_cast<float*>(site.workspace.data());
  const std::int64_t blocks = row_blocks(config.tile(), problem.K);
  float* const planes = blocks > 1 ? memory + plan.sizes.total() : nullptr;
  walk_in_segments<T>(forward_walk(problem, args, planes, plan.segments(memory)), stream,
                      [&](const WalkParams& walk) {
                        launch_chunk_walk<T>(config.tile(), operand_parts(problem), walk, stream);
                      });
  if (planes == nullptr) return;
  launch_plane_sums<T>({.planes = planes,
                        .plane_count = blocks,
                        .batches = problem.B,
                        .tokens = problem.T,
                        .heads = problem.H,
                        .columns = problem.V,
                        .group = 1,
                        .out = token_view(args.o)},
                       stream);
}

class ChunkTf32 final : public Kernel<Config> {
 public:
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
    return tile_fits(config.tile(), extents_of(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = extents_of(problem);
    const WalkTile tile = heuristic_tile(extents, device);
    return config_of({tile, heuristic_segments(tile, extents, device)});
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkChoice& choice : candidate_walks(extents_of(problem), device)) {
      configs.push_back(config_of(choice));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const std::int64_t floats =
        segment_plan(problem, config).sizes.total() + plane_floats(problem, config);
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    with_element<float, __half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_forward<T>(problem, args, config, site); });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_tf32

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_tf32() {
  return std::make_unique<chunk_tf32::ChunkTf32>();
}
