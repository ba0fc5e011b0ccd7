// Summaries of states by the walk of walks/summary_walk.hpp, token by token.
#include "cuda/fused_recurrent/fused_recurrent_config.hpp"
#include "cuda/kernels.hpp"
#include "cuda/walks/summary_walk.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

class FusedRecurrentSummaryKernel final
    : public SummaryKernel<FusedRecurrentSummaryConfig, ForwardWalker> {
 public:
  std::string_view name() const noexcept override { return "cuda.fused_recurrent.summary"; }
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

 private:
  static WalkExtents extents_of(const Problem& problem) {
    return summary_extents(forward_extents(problem.walk()));
  }
};

}  // namespace
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent_summary() {
  return std::make_unique<fused_recurrent::FusedRecurrentSummaryKernel>();
}
