// Summaries of states by the walk of walks/summary_walk.hpp, token by token.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <attune/core/kernel.hpp>

#include "cuda/fused_recurrent/forward_walker.hpp"
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/summary_walk.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

using Problem = ops::StateSummaryProblem;
using Args = ops::StateSummaryArgs;

WalkExtents extents_of(const Problem& problem) {
  WalkExtents extents = forward_extents(problem.walk());
  extents.final_only = true;
  return extents;
}

class FusedRecurrentSummaryKernel final : public Kernel<FusedRecurrentSummaryConfig> {
 public:
  using Config = FusedRecurrentSummaryConfig;

  std::string_view name() const noexcept override { return "cuda.fused_recurrent.summary"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "reverse", "inclusive"};
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
    return Config::of(shape, heuristic_segments(shape, extents, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const auto& [shape, segments] : candidate_walks(extents_of(problem), device)) {
      configs.push_back(Config::of(shape, segments));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return summary_workspace_bytes(problem, ForwardWalker(config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.k.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      run_summary_walk<T>(problem, args, ForwardWalker(config), site.workspace, stream);
    });
  }
};

}  // namespace
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent_summary() {
  return std::make_unique<fused_recurrent::FusedRecurrentSummaryKernel>();
}
