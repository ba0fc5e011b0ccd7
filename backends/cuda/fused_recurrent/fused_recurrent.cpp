#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <optional>

#include <attune/core/kernel.hpp>

#include "cuda/chunks/few_tokens.hpp"
#include "cuda/chunks/likely_lengths.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/fused_recurrent/short_walks.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/walks/forward_walk.hpp"

namespace attune::cuda::fused_recurrent {
namespace {

using Config = FusedRecurrentConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

class FusedRecurrentKernel : public Kernel<FusedRecurrentConfig> {
 public:
  using Config = FusedRecurrentConfig;

  std::string_view name() const noexcept override { return "cuda.fused_recurrent"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (problem.snapshot_every > 0) {
      return Support::no(refused::kShape, "keeps no snapshots: cuda.chunk_tf32 does");
    }
    return needs_gpu(device);
  }
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    return walk_fits(config.shape(), forward_extents(problem), device);
  }
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const WalkExtents extents = forward_extents(problem);
    const WalkShape shape = heuristic_shape(extents, device);
    return Config::of(shape, heuristic_segments(shape, extents, device));
  }
  /// Of a few tokens; of more the other kernels are faster. Walks take 1.02 times what short_walk_us()
  /// says on average, but more where it says little less than another kernel expects: of ten such
  /// problems of an H200 that kernel was the faster one for eight.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    constexpr double kBesideOthers = 1.2;
    WalkExtents extents = forward_extents(problem);
    if (!is_short(extents) || leaves_to_chunks(problem)) return std::nullopt;
    const WalkShape shape = heuristic_shape(extents, device);
    return LikelyLengths(problem).average([&](double longest) {
      extents.longest = static_cast<std::int64_t>(std::ceil(longest));
      return kBesideOthers * short_walk_us(shape, extents, device);
    });
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs;
    for (const auto& [shape, segments] : candidate_walks(forward_extents(problem), device)) {
      configs.push_back(Config::of(shape, segments));
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
}  // namespace attune::cuda::fused_recurrent

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_fused_recurrent() {
  return std::make_unique<WithStoredStates<fused_recurrent::FusedRecurrentKernel>>();
}
