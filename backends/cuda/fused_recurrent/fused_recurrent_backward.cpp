// The backward pass of walks/backward_walks.hpp, token by token.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/rows_behind.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/backward_walks.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;
using Config = FusedRecurrentBackwardConfig;

/// How this kernel walks.
struct Walker : ForwardWalker {
  Walker(const Problem& problem, const Config& config)
      : ForwardWalker(problem, config), interval(config.interval) {}

  std::int64_t product_planes(std::int64_t rows) const {
    return row_blocks(rows) * shape.row_warps;
  }
  std::int64_t checkpoint_floats(std::int64_t heads, std::int64_t rows,
                                 std::int64_t columns) const {
    return fused_recurrent::checkpoint_floats(shape, heads, rows, columns);
  }

  int interval;
};

Config config_of(const WalkShape& shape, int segments, int interval) {
  return {.rows_per_lane = shape.rows_per_lane,
          .row_warps = shape.row_warps,
          .column_warps = shape.column_warps,
          .tokens = shape.tokens,
          .segments = segments,
          .interval = interval};
}

/// A gate's gradient is a sum from the next checkpoint on, of terms that cancel, and that of gamma
/// the sum of those: over more tokens f32 loses more than their tolerance allows.
int longest_interval(const Problem& problem) {
  if (problem.dtype != DType::kF32) return Config{}.interval;
  return (problem.gates & ops::kGateGamma) != 0 ? 16 : 64;
}

/// Each checkpoint costs a state: shorter ones only where precision asks for them.
int shortest_interval(const Problem& problem) { return std::min(longest_interval(problem), 64); }

/// Of both sides' walks: of the one that has V's channels as rows, and the one that has K's.
WalkExtents extents_of(const Problem& problem) {
  const int gates = channel_gates(problem);
  const bool one_sided = gates == kRowGates || gates == kColumnGates;
  const std::int64_t larger = std::max(problem.K, problem.V);
  return {.heads = problem.sequences() * problem.H,
          .rows = larger,
          .columns = larger,
          .gates = one_sided ? kRowGates : gates,  // of which there are more than of columns
          .exact = problem.dtype == DType::kF32,
          .tokens = mean_tokens(problem),
          .longest = longest_tokens(problem),
          .segment_multiple = shortest_interval(problem)};
}

static_assert(std::ranges::max(kAxisValues<&Config::interval>) <= kMaxInterval);

/// The longest, as each checkpoint costs a state; but no longer than the segments, which are
/// multiples of it, and the shortest where that leaves multiprocessors idle: a gate's gradient is
/// summed token after token within an interval.
int interval_for(const Problem& problem, const DeviceInfo& device, int segments) {
  constexpr std::int64_t kBlocksPerCore = 4;
  const int shortest = shortest_interval(problem);
  const int longest = longest_interval(problem);
  const std::int64_t intervals =
      part_count(problem.sequences(), problem.T, problem.N > 0, longest) * problem.H;
  if (intervals < kBlocksPerCore * device.cores) return shortest;
  const std::int64_t tokens = segment_tokens(problem.T, problem.N, segments, 1);
  return tokens > 0 && tokens < 2 * longest ? shortest : longest;
}

class FusedRecurrentBackwardKernel : public Kernel<FusedRecurrentBackwardConfig> {
 public:
  using Config = FusedRecurrentBackwardConfig;

  std::string_view name() const noexcept override { return "cuda.fused_recurrent.backward"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem&, const DeviceInfo& device) const override {
    return needs_gpu(device);
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.interval > longest_interval(problem)) {
      return Support::no(refused::kConfig, str("interval=", config.interval, ": f32 takes at most ",
                                               longest_interval(problem)));
    }
    const WalkExtents extents = extents_of(problem);
    if (extents.gates == kRowGates) {  // on one of the sides they are the columns'
      WalkExtents other_side = extents;
      other_side.gates = kColumnGates;
      if (const Support fit = walk_fits(config.shape(), other_side, device); !fit) return fit;
    }
    return walk_fits(config.shape(), extents, device);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = extents_of(problem);
    const WalkShape shape = heuristic_shape(extents, device);
    const int segments = heuristic_segments(shape, extents, device);
    return config_of(shape, segments, interval_for(problem, device, segments));
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const auto& [shape, segments] : candidate_walks(extents_of(problem), device)) {
      const Config config = config_of(shape, segments, interval_for(problem, device, segments));
      if (fits(problem, device, config)) configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, Walker(problem, config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      const BackwardWalks<T, Walker> walks(problem, args, Walker(problem, config), site.workspace,
                                           stream);
      walks.key_side();
      walks.value_side();
    });
  }
};

}  // namespace
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent_backward() {
  return std::make_unique<WithRowsBehind<fused_recurrent::FusedRecurrentBackwardKernel>>();
}
