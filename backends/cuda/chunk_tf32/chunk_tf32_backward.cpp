// The backward pass of walks/backward_walks.hpp in chunks on tensor cores.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/chunk_tf32/chunk_tf32_config.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/rows_behind.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/backward_walks.hpp"

namespace attune::cuda::chunk_tf32 {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;
using Config = ChunkTf32BackwardConfig;

/// How this kernel walks.
struct Walker {
  Walker(const Config& config, int operand_parts)
      : tile(config.tile()),
        parts(operand_parts),
        interval(config.interval),
        segments(config.segments) {}

  /// The config's tile, no larger than a walk's state.
  WalkTile tile_of(std::int64_t rows, std::int64_t columns) const {
    WalkTile fitted = tile;
    for (const int smaller : {64, 32}) {
      if (rows <= smaller) fitted.rows = std::min(fitted.rows, smaller);
    }
    while (fitted.column_warps > 1 && fitted.columns() >= 2 * columns) fitted.column_warps /= 2;
    return fitted;
  }
  std::int64_t row_blocks(std::int64_t rows) const {
    return chunk_tf32::row_blocks(tile_of(rows, 1), rows);
  }
  std::int64_t product_planes(std::int64_t rows) const { return row_blocks(rows); }
  std::int64_t checkpoint_floats(std::int64_t heads, std::int64_t rows,
                                 std::int64_t columns) const {
    const WalkTile fitted = tile_of(rows, columns);
    return heads * tile_count(fitted, rows, columns) * fitted.rows * fitted.columns();
  }
  template <class T>
  void launch(const WalkParams& params, cudaStream_t stream) const {
    launch_chunk_walk<T>(tile_of(params.rows, params.columns), parts, params, stream);
  }

  WalkTile tile;
  int parts;
  int interval;
  int segments;
  int tokens = kChunk;
};

/// A gradient of g or gamma is a sum over channels of sums that cancel: what TF32 alone leaves of
/// it is too little, as with bf16 and strong gates.
int backward_parts(const Problem& problem) {
  const bool is_shared = (problem.gates & (ops::kGateG | ops::kGateGamma)) != 0;
  return is_shared ? 2 : operand_parts(problem);
}

Walker walker_of(const Problem& problem, const Config& config) {
  return {config, backward_parts(problem)};
}

/// Of both sides' walks: of the one that has V's channels as rows, and the one that has K's.
WalkExtents extents_of(const Problem& problem) {
  const std::int64_t larger = std::max(problem.K, problem.V);
  return {.heads = problem.sequences() * problem.H,
          .rows = larger,
          .columns = larger,
          .tokens = problem.T / std::max<std::int64_t>(problem.N, 1),
          .longest = LikelyLengths(problem).longest,
          .parts = backward_parts(problem),
          .column_gates = (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0};
}

static_assert(std::ranges::max(kAxisValues<&Config::interval>) <= kMaxInterval);

/// A gate's gradient is a sum from the next checkpoint on, of terms that cancel, and that of gamma
/// the sum of those: over more tokens their error is more than their tolerance.
int longest_interval(const Problem& problem) {
  const bool gamma = (problem.gates & ops::kGateGamma) != 0;
  if (operand_parts(problem) == 1) return gamma ? 256 : 128;
  return gamma ? 16 : 64;
}

Config config_of(const Problem& problem, const WalkChoice& choice) {
  return {.rows = choice.tile.rows,
          .column_warps = choice.tile.column_warps,
          .segments = choice.segments,
          .interval = longest_interval(problem)};
}

/// Microseconds of all walks, and of the gradients of gates, which read what walks leave; what they
/// take besides, and times what is reckoned, was fitted to 239 problems on an H100.
double backward_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfCall = 30;
  constexpr double kMeasured = 1.05, kMeasuredWithGates = 1.35;
  constexpr double kOfLaunch = 4;
  constexpr double kBytesPerUs = 2.5e6;
  const Walker walker = walker_of(problem, config);
  const auto side_us = [&](std::int64_t rows, std::int64_t columns, bool gates, int walks) {
    WalkExtents extents = extents_of(problem);
    extents.rows = rows;
    extents.columns = columns;
    const double us =
        walks * walk_us(walker.tile_of(rows, columns), extents, device, config.segments);
    if (!gates) return us;
    const double tokens = static_cast<double>(problem.B * problem.T * problem.H);
    const double floats =
        static_cast<double>(columns) * (6.0 + 2.0 * static_cast<double>(rows) / config.interval);
    return us + kOfLaunch + sizeof(float) * tokens * floats / kBytesPerUs;
  };
  const bool key_gates = (problem.gates & kGatesOfKeySide) != 0;
  const bool value_gates = (problem.gates & ops::kGateGv) != 0;
  return kOfCall + (problem.gates != 0 ? kMeasuredWithGates : kMeasured) *
                       (side_us(problem.V, problem.K, key_gates, 2) +
                        side_us(problem.K, problem.V, value_gates, value_gates ? 2 : 1));
}

class ChunkTf32Backward : public Kernel<ChunkTf32BackwardConfig> {
 public:
  using Config = ChunkTf32BackwardConfig;

  std::string_view name() const noexcept override { return "cuda.chunk_tf32.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    return takes(problem, device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.interval > longest_interval(problem)) {
      return Support::no(refused::kConfig, str("interval=", config.interval, ": takes at most ",
                                               longest_interval(problem)));
    }
    return tile_fits(config.tile(), extents_of(problem), device);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = extents_of(problem);
    const WalkTile tile = heuristic_tile(extents, device);
    return config_of(problem, {tile, heuristic_segments(tile, extents, device)});
  }
  /// In 16 bits it comes after all others, whatever takes longer.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (problem.dtype != DType::kF32) return std::nullopt;
    return backward_us(problem, device, heuristic_config(problem, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkChoice& choice : candidate_walks(extents_of(problem), device)) {
      configs.push_back(config_of(problem, choice));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, walker_of(problem, config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      const BackwardWalks<T, Walker> walks(problem, args, walker_of(problem, config),
                                           site.workspace, stream);
      walks.key_side();
      walks.value_side();
    });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_tf32

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_tf32_backward() {
  return std::make_unique<WithRowsBehind<chunk_tf32::ChunkTf32Backward>>();
}
