#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include <attune/core/axis_values.hpp>

#include "cuda/chunk_wgmma/parallel/expected_time.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/wgmma_walk/forward_kernel.hpp"

namespace attune::cuda::chunk_wgmma {
namespace {

constexpr std::int64_t kMostKeys = largest_value(&ParallelWgmmaConfig::tile_k);
constexpr std::int64_t kMostTokens = 8192;  // of all sequences of a batch: one may have them all

class ParallelWgmmaKernel : public ForwardKernel<ParallelWgmmaConfig> {
 public:
  std::string_view name() const noexcept override { return "cuda.parallel_wgmma"; }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    if (const Support taken = takes(p, device, kMostKeys); !taken) return taken;
    if (p.pool || p.snapshot_every > 0 || p.state_dtype != DType::kF32) {
      return Support::no(refused::kShape, "states of a pool, of 16 bits, or kept on the way");
    }
    if (p.T > kMostTokens) {
      return Support::no(refused::kShape, str("T=", p.T, ": at most ", kMostTokens));
    }
    constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
    const Config most{.tile_v = smallest_value(&Config::tile_v), .chunks = 1};
    if (std::max(p.B, 2 * parallel_blocks(p, most)) > kMostBlocks)
      return Support::no(refused::kShape, "over 2^31 of a kind");
    return Support::yes();
  }
  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    return has_narrowest_tile(problem, config);
  }

  Config heuristic_config(const Problem& called, const DeviceInfo& device) const override {
    const Problem problem = as_batch(called);
    const std::vector<Config> configs = candidate_configs(problem, device);
    return *std::ranges::min_element(
        configs, {}, [&](const Config& config) { return parallel_us(problem, device, config); });
  }
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    return parallel_us(problem, device, heuristic_config(problem, device));
  }
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& config) { return !fits(problem, device, config); });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config&) const override {
    return problem.ht ? segment_scratch_bytes(walk_extents(problem), sums_of(problem)) : 0;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    const ChunkWgmmaConfig sums = sums_of(problem);
    WalkParams walk = forward_walk(problem, args, sums, {});
    walk.sequences.most_left_out = 0;  // a short sequence takes a block no longer than a chunk
    WalkParams summed = walk;
    if (problem.ht) {
      summed.scratch = segment_scratch(site.workspace, summed.extents, sums);
      summed.scratch.sums_all = true;
    }
    walk.runs_beside_previous = problem.ht;
    const ParallelParams params{.walk = walk,
                                .slots = static_cast<unsigned>(parallel_slots(problem, config)),
                                .blocks = static_cast<unsigned>(parallel_blocks(problem, config))};
    with_element<__half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      if (problem.ht) launch_segment_states<T>(sums, summed, stream);
      launch_parallel<T>(config, params, stream);
    });
    // Behind both: final states may overwrite initial ones.
    if (!problem.ht) return;
    launch_segment_join(
        sums, summed, {.final_state = walk.final, .key_sums = {}, .initial = walk.initial}, stream);
  }

 private:
  /// Of the walk that sums up final states.
  static ChunkWgmmaConfig sums_of(const Problem& problem) {
    return {.tile_k = axis_value_for(&ChunkWgmmaConfig::tile_k, problem.K), .tile_v = kSumValues};
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_wgmma

namespace attune::cuda {

std::unique_ptr<const ErasedKernel> make_parallel_wgmma() {
  return std::make_unique<WithPaddedRows<chunk_wgmma::ParallelWgmmaKernel>>();
}

}  // namespace attune::cuda
