// Summaries of states by the walk of walks/summary_walk.hpp, in chunks on tensor cores.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <attune/core/kernel.hpp>

#include "cuda/chunk_tf32/chunk_tf32_config.hpp"
#include "cuda/chunk_tf32/forward_walker.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/summary_walk.hpp"

namespace attune::cuda::chunk_tf32 {
namespace {

using Problem = ops::StateSummaryProblem;
using Args = ops::StateSummaryArgs;

WalkExtents extents_of(const Problem& problem) {
  WalkExtents extents = forward_extents(problem.walk());
  extents.final_only = true;
  return extents;
}

class ChunkTf32Summary final : public Kernel<ChunkTf32SummaryConfig> {
 public:
  using Config = ChunkTf32SummaryConfig;

  std::string_view name() const noexcept override { return "cuda.chunk_tf32.summary"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "reverse", "inclusive"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    return takes(problem.walk(), device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return tile_fits(config.tile(), extents_of(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = extents_of(problem);
    const WalkTile tile = heuristic_tile(extents, device);
    return Config::of({tile, heuristic_segments(tile, extents, device)});
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const WalkChoice& choice : candidate_walks(extents_of(problem), device)) {
      configs.push_back(Config::of(choice));
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return summary_workspace_bytes(problem, ForwardWalker(problem.walk(), config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.k.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const ForwardWalker walker(problem.walk(), config);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      run_summary_walk<T>(problem, args, walker, site.workspace, stream);
    });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_tf32

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_tf32_summary() {
  return std::make_unique<chunk_tf32::ChunkTf32Summary>();
}
