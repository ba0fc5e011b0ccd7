#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include <attune/core/kernel.hpp>

#include "cuda/fused_recurrent/backward_passes.hpp"
#include "cuda/fused_recurrent/walk_choice.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda {
namespace {

using Config = FusedRecurrentBackwardConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

Config config_of(const WalkShape& shape, int interval) {
  return {.rows_per_lane = shape.rows_per_lane,
          .row_warps = shape.row_warps,
          .column_warps = shape.column_warps,
          .tokens = shape.tokens,
          .interval = interval};
}

/// Of both sides' walks: of the one that has V's channels as rows, and the one that has K's.
WalkExtents extents_of(const Problem& problem) {
  const int gates = channel_gates(problem);
  const bool one_sided = gates == kRowGates || gates == kColumnGates;
  const std::int64_t larger = std::max(problem.K, problem.V);
  return {.heads = problem.sequences() * problem.H,
          .rows = larger,
          .columns = larger,
          .gates = one_sided ? kRowGates : gates,  // of which there are more than of columns
          .exact = problem.dtype == DType::kF32};
}

/// A gate's gradient is a sum from the next kept state on, of terms that cancel: over 256 tokens
/// f32 loses more than its tolerance allows.
int longest_interval(const Problem& problem) {
  return problem.dtype == DType::kF32 ? 64 : Config{}.interval;
}

class FusedRecurrentBackwardKernel final : public Kernel<Config> {
 public:
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
    WalkExtents extents = extents_of(problem);
    if (extents.gates == kRowGates) {
      // On one of the sides they are the columns'.
      const Support other = walk_fits(config.shape(), with_gates(extents, kColumnGates), device);
      if (!other) return other;
    }
    return walk_fits(config.shape(), extents, device);
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    return config_of(heuristic_shape(extents_of(problem), device), longest_interval(problem));
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkShape& shape : candidate_shapes(extents_of(problem), device)) {
      const Config config = config_of(shape, longest_interval(problem));
      if (fits(problem, device, config)) configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return backward_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    switch (problem.dtype) {
      case DType::kF16:
        return launch_backward<__half>(problem, args, config, site.workspace, stream);
      case DType::kBF16:
        return launch_backward<__nv_bfloat16>(problem, args, config, site.workspace, stream);
      default:
        return launch_backward<float>(problem, args, config, site.workspace, stream);
    }
  }

 private:
  static WalkExtents with_gates(WalkExtents extents, int gates) {
    extents.gates = gates;
    return extents;
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_fused_recurrent_backward() {
  return std::make_unique<FusedRecurrentBackwardKernel>();
}

}  // namespace attune::cuda
