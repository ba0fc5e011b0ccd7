#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/segment_fold.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

/// Calls visit(shape) for every split of a block's rows over lanes and warps, those of the most
/// rows a lane first.
template <class Visit>
void for_each_row_split(Visit&& visit) {
  constexpr auto kRowsPerLane = kAxisValues<&FusedRecurrentConfig::rows_per_lane>;
  for (auto rows = kRowsPerLane.rbegin(); rows != kRowsPerLane.rend(); ++rows) {
    for (const int row_warps : kAxisValues<&FusedRecurrentConfig::row_warps>) {
      if (row_warps <= max_state_warps(*rows)) visit(WalkShape{*rows, row_warps, 1, 1});
    }
  }
}

/// The fewest rows a block may have to hold all `rows`, or as many as it can.
int rows_for(std::int64_t rows) {
  int best = 0;
  for_each_row_split([&](const WalkShape& split) {
    const bool holds = split.rows() >= rows;
    const bool best_holds = best >= rows;
    if (holds ? (!best_holds || split.rows() < best) : (!best_holds && split.rows() > best)) {
      best = split.rows();
    }
  });
  return best;
}

/// 32 columns a warp, no more than there are.
int max_column_warps(const WalkExtents& extents) {
  constexpr int kMax = std::ranges::max(kAxisValues<&FusedRecurrentConfig::column_warps>);
  int warps = 1;
  while (warps < kMax && warps * kColumnsPerWarp < extents.columns) warps *= 2;
  return warps;
}

bool fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  return static_cast<bool>(walk_fits(shape, extents, device));
}

/// With as many staged tokens as leave room for two blocks on a multiprocessor.
WalkShape with_tokens(WalkShape shape, const WalkExtents& extents, const DeviceInfo& device) {
  constexpr auto kTokens = kAxisValues<&FusedRecurrentConfig::tokens>;
  constexpr std::int64_t kReserved = 1024;  // bytes of shared memory that a block takes besides
  shape.tokens = std::ranges::max(kTokens);
  const auto bytes = [&] {
    return static_cast<std::int64_t>(walk_shared_bytes(shape, extents.gates, extents.exact));
  };
  while (shape.tokens > std::ranges::min(kTokens) && bytes() > device.l1_bytes / 2 - kReserved) {
    shape.tokens /= 2;
  }
  return shape;
}

std::int64_t blocks_of(const WalkShape& shape, const WalkExtents& extents) {
  return extents.heads * row_blocks(shape, extents.rows) * column_blocks(shape, extents.columns);
}

/// Blocks that run on the device at once.
std::int64_t room_for(const WalkShape& shape, const WalkExtents& extents,
                      const DeviceInfo& device) {
  constexpr std::int64_t kRegisters = 65536;  // of a multiprocessor
  constexpr std::int64_t kReserved = 1024;    // bytes of shared memory that a block takes besides
  const std::int64_t threads = (shape.state_warps() + kStagingWarps) * std::int64_t{32};
  const std::int64_t registers = threads * (shape.rows_per_lane > 16 ? 255 : 128);
  const auto bytes =
      static_cast<std::int64_t>(walk_shared_bytes(shape, extents.gates, extents.exact));
  const std::int64_t blocks =
      std::min(kRegisters / registers, device.l1_bytes / (bytes + kReserved));
  return device.cores * std::max<std::int64_t>(blocks, 1);
}

}  // namespace

int channel_gates(const ops::RecurrentAttentionProblem& problem) {
  return ((problem.gates & ops::kGateGk) != 0 ? kRowGates : 0) |
         ((problem.gates & ops::kGateGv) != 0 ? kColumnGates : 0);
}

Support needs_gpu(const DeviceInfo& device) {
  if (device.id.backend != "gpu") return Support::no(refused::kDevice, "needs a gpu");
  return device.has("sm_80") ? Support::yes()
                             : Support::no(refused::kDevice, "needs compute capability 8.0");
}

Support walk_fits(const WalkShape& shape, const WalkExtents& extents, const DeviceInfo& device) {
  if (shape.state_warps() > max_state_warps(shape.rows_per_lane)) {
    return Support::no(refused::kConfig, str("row_warps * column_warps is ", shape.state_warps(),
                                             ", at most ", max_state_warps(shape.rows_per_lane),
                                             " with rows_per_lane=", shape.rows_per_lane));
  }
  const std::size_t bytes = walk_shared_bytes(shape, extents.gates, extents.exact);
  if (bytes <= static_cast<std::size_t>(device.l1_bytes)) return Support::yes();
  return Support::no(refused::kMemory, str("needs ", bytes, " bytes of shared memory, a block has ",
                                           device.l1_bytes));
}

/// What measured best, or nearly, on an H200: 16 rows a lane and two warps of columns, fewer where
/// there would be fewer blocks than multiprocessors.
WalkShape heuristic_shape(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  WalkShape best;
  for (const int rows_per_lane : {16, 32, 8}) {
    const int row_warps = rows / (rows_per_lane * kRowLanes);
    if (row_warps < 1 || row_warps > max_state_warps(rows_per_lane)) continue;
    best.rows_per_lane = rows_per_lane;
    best.row_warps = row_warps;
    break;
  }
  constexpr int kColumnWarps = 2;
  best.column_warps = std::min({kColumnWarps, max_column_warps(extents),
                                max_state_warps(best.rows_per_lane) / best.row_warps});
  while (best.column_warps > 1 && blocks_of(best, extents) < device.cores) best.column_warps /= 2;
  return with_tokens(best, extents, device);
}

std::vector<WalkShape> candidate_shapes(const WalkExtents& extents, const DeviceInfo& device) {
  const int rows = rows_for(extents.rows);
  const int widest = max_column_warps(extents);
  std::vector<WalkShape> shapes{heuristic_shape(extents, device)};
  for_each_row_split([&](const WalkShape& split) {
    if (split.rows() != rows) return;
    for (int column_warps = widest; column_warps >= std::max(1, widest / 4); column_warps /= 2) {
      for (const int tokens : {8, 16}) {
        const WalkShape shape{split.rows_per_lane, split.row_warps, column_warps, tokens};
        const auto same = [&](const WalkShape& other) { return other == shape; };
        if (fits(shape, extents, device) && std::ranges::none_of(shapes, same)) {
          shapes.push_back(shape);
        }
      }
    }
  });
  return shapes;
}

int heuristic_segments(const WalkShape& shape, const WalkExtents& extents,
                       const DeviceInfo& device) {
  constexpr std::int64_t kLeastTokens = 64;  // shorter ones do not pay for their states
  constexpr int kLeastSegments = 4;  // two or three take as long as none: tokens count twice
  const std::int64_t blocks = std::max<std::int64_t>(blocks_of(shape, extents), 1);
  const std::int64_t room = room_for(shape, extents, device);
  int segments = 1;
  while (segments < std::ranges::max(kSegments) && 2 * segments * blocks <= room &&
         2 * segments * kLeastTokens <= extents.tokens) {
    segments *= 2;
  }
  return segments < kLeastSegments ? 1 : segments;
}

std::vector<int> candidate_segments(const WalkShape& shape, const WalkExtents& extents,
                                    const DeviceInfo& device) {
  const int middle = heuristic_segments(shape, extents, device);
  std::vector<int> candidates{1};
  for (const int segments : {middle / 2, middle, 2 * middle}) {
    if (middle > 1 && segments <= std::ranges::max(kSegments)) candidates.push_back(segments);
  }
  return candidates;
}

namespace {

using Config = FusedRecurrentConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

Config config_of(const WalkShape& shape, int segments) {
  return {.rows_per_lane = shape.rows_per_lane,
          .row_warps = shape.row_warps,
          .column_warps = shape.column_warps,
          .tokens = shape.tokens,
          .segments = segments};
}

WalkExtents extents_of(const Problem& problem) {
  return {.heads = problem.sequences() * problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .gates = channel_gates(problem),
          .exact = problem.dtype == DType::kF32,
          .tokens = problem.T / std::max<std::int64_t>(problem.N, 1)};
}

/// Floats of the planes that `o` is the sum of where a block does not hold all rows.
std::int64_t plane_floats(const Problem& problem, const Config& config) {
  const std::int64_t blocks = row_blocks(config.shape(), problem.K);
  return blocks > 1 ? blocks * problem.B * problem.T * problem.H * problem.V : 0;
}

SegmentPlan segment_plan(const Problem& problem, const Config& config) {
  const int gates = channel_gates(problem);
  return {problem,
          config.segments,
          config.tokens,
          problem.K,
          problem.V,
          (gates & kRowGates) != 0,
          (gates & kColumnGates) != 0};
}

template <class T>
void launch_forward(const Problem& problem, const Args& args, const Config& config,
                    const LaunchSite& site) {
  auto* const stream = static_cast<cudaStream_t>(site.stream);
  const WalkShape shape = config.shape();
  const std::int64_t blocks = row_blocks(shape, problem.K);
  const SegmentPlan plan = segment_plan(problem, config);
  auto* const segments = reinterpret_cast<float*>(site.workspace.data());
  float* const planes = blocks > 1 ? segments + plan.sizes.total() : nullptr;
  walk_in_segments<T>(forward_walk(problem, args, planes, plan.segments(segments)), stream,
                      [&](const WalkParams& walk) { launch_walk<T>(shape, walk, stream); });
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

class FusedRecurrentKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.fused_recurrent"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return needs_gpu(device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return walk_fits(config.shape(), extents_of(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = extents_of(problem);
    const WalkShape shape = heuristic_shape(extents, device);
    return config_of(shape, heuristic_segments(shape, extents, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    const WalkExtents extents = extents_of(problem);
    for (const WalkShape& shape : candidate_shapes(extents, device)) {
      for (const int segments : candidate_segments(shape, extents, device)) {
        configs.push_back(config_of(shape, segments));
      }
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
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent() {
  return std::make_unique<fused_recurrent::FusedRecurrentKernel>();
}
