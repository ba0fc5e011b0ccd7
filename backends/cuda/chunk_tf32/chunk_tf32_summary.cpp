// Summaries of states by the walk of walks/summary_walk.hpp, in chunks on tensor cores.
#include "cuda/chunk_tf32/chunk_tf32_config.hpp"
#include "cuda/kernels.hpp"
#include "cuda/walks/summary_walk.hpp"

namespace attune::cuda::chunk_tf32 {
namespace {

class ChunkTf32Summary final : public SummaryKernel<ChunkTf32SummaryConfig, ForwardWalker> {
 public:
  std::string_view name() const noexcept override { return "cuda.chunk_tf32.summary"; }
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

 private:
  static WalkExtents extents_of(const Problem& problem) {
    return summary_extents(forward_extents(problem.walk()));
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_tf32

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_tf32_summary() {
  return std::make_unique<chunk_tf32::ChunkTf32Summary>();
}
