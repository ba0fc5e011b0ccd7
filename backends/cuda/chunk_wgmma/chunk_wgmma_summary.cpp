// Summaries of states by the first launch of the walk in segments (segment_states.cuh), which has
// all tokens, and a join of what the segments add.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include <attune/core/axis_values.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/tiles/tensor_map.hpp"
#include "cuda/walks/decay_sums.hpp"
#include "cuda/wgmma_walk/walk.hpp"

namespace attune::cuda::chunk_wgmma {
namespace {

struct ChunkWgmmaSummaryConfig {
  using Op = ops::StateSummary;
  int tile_v = 128;  // value channels of a block
  int segments = 1;  // of a sequence, summed up at the same time
  friend constexpr bool operator==(const ChunkWgmmaSummaryConfig&,
                                   const ChunkWgmmaSummaryConfig&) = default;

  static constexpr auto axes() {
    using Self = ChunkWgmmaSummaryConfig;
    return std::tuple{launch_axis("tile_v", &Self::tile_v, {64, 128}),
                      launch_axis("segments", &Self::segments, {1, 2, 4, 8, 16, 32})};
  }
};

using Config = ChunkWgmmaSummaryConfig;
using Problem = ops::StateSummaryProblem;
using Args = ops::StateSummaryArgs;

constexpr int kNarrowest = smallest_value(&Config::tile_v);
constexpr int kMostSegments = largest_value(&Config::segments);
constexpr std::int64_t kMostKeys = largest_value(&ChunkWgmmaConfig::tile_k);
/// Coordinates of panels and indices of items are 32-bit integers.
constexpr std::int64_t kMostOfAKind = std::numeric_limits<std::int32_t>::max();

/// As the walk is asked for it.
ChunkWgmmaConfig walk_config(const Problem& problem, const Config& config) {
  const int tile_k = axis_value_for(&ChunkWgmmaConfig::tile_k, problem.K);
  return {.tile_k = tile_k, .tile_v = config.tile_v, .stages = 3, .segments = config.segments};
}

std::int64_t items_of(const Problem& problem, const Config& config) {
  const std::int64_t tiles = (problem.V + config.tile_v - 1) / config.tile_v;
  return problem.sequences() * problem.H * tiles * config.segments;
}

/// Divides a workspace, or only counts its bytes where there is none.
struct SummaryMemory {
  SummaryMemory(const Problem& problem, const Config& config, std::byte* memory) : parts(memory) {
    const WalkExtents extents = walk_extents(problem.walk());
    const ChunkWgmmaConfig walk = walk_config(problem, config);
    const std::size_t bytes = segment_scratch_bytes(extents, walk);
    auto* const states = parts.take<std::byte>(static_cast<std::int64_t>(bytes));
    sums = parts.take<double>(decay_sum_bytes(problem));
    if (states != nullptr) scratch = segment_scratch({states, bytes}, extents, walk);
  }
  WorkspaceParts parts;
  SegmentScratch scratch;
  double* sums = nullptr;
};

WalkParams summed_walk(const Problem& problem, const Args& args, const Config& config,
                       const SegmentScratch& scratch) {
  const WalkExtents extents = walk_extents(problem.walk());
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  WalkParams params;
  params.k = {head_map(args.k, kChunkTokens), heads_per_kv};
  params.v = {head_map(args.v, kChunkTokens), heads_per_kv};
  params.extents = extents;
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.gates = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.scratch = scratch;
  params.scratch.sums_all = true;
  params.segments = config.segments;
  params.subsegments = subsegments_of_segment(extents, walk_config(problem, config));
  params.reverse = problem.reverse;
  params.inclusive = problem.inclusive;
  return params;
}

class ChunkWgmmaSummary final : public Kernel<ChunkWgmmaSummaryConfig> {
 public:
  using Config = ChunkWgmmaSummaryConfig;

  std::string_view name() const noexcept override { return "cuda.chunk_wgmma.summary"; }
  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "packed", "h0", "reverse", "inclusive"};
  }

  Support supports(const Problem& p, const DeviceInfo& device) const override {
    constexpr std::int64_t kFewestTokens = 16;  // fewer are sooner done one by one
    if (device.id.backend != "gpu" || !device.has("sm_90a")) {
      return Support::no(refused::kDevice, "needs a GPU with sm_90a code");
    }
    if (p.dtype == DType::kF32) return Support::no(refused::kDType, "takes f16 and bf16");
    if (p.K > kMostKeys) return Support::no(refused::kShape, str("takes K <= ", kMostKeys));
    if (!p.aligned) {
      return Support::no(refused::kAlignment, "takes rows that start at multiples of 16 bytes");
    }
    if (p.layout == ops::Layout::kStrided) {
      return Support::no(refused::kLayout, "strided rows: strides of 0 or less have no tensor map");
    }
    if (p.B == 0 || p.T < kFewestTokens * std::max<std::int64_t>(p.N, 1)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kFewestTokens, " tokens or more"));
    }
    const std::int64_t most = items_of(p, {.tile_v = kNarrowest, .segments = kMostSegments});
    if (std::max({p.T, p.B, p.H, most}) > kMostOfAKind / kMostKeys) {
      return Support::no(refused::kShape, "takes up to 2^23 of a kind");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo&, const Config& config) const override {
    if (problem.K <= 128 || config.tile_v == kNarrowest) return Support::yes();
    return Support::no(refused::kInstance, str("tile_v=", config.tile_v, " is for K <= 128"));
  }

  /// As many segments as there are multiprocessors for, of a few chunks or more.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    constexpr std::int64_t kFewestChunks = 4;
    Config config{.tile_v = axis_value_for(&Config::tile_v, problem.V)};
    if (!fits(problem, device, config)) config.tile_v = kNarrowest;
    const std::int64_t chunks = walk_extents(problem.walk()).chunks;
    for (Config more = config; more.segments < kMostSegments; config = more) {
      more.segments *= 2;
      if (items_of(problem, more) > device.cores || chunks < kFewestChunks * more.segments) break;
    }
    return config;
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    constexpr std::int64_t kMostRounds = 4;
    std::vector<Config> configs;
    for (const Config& config : all_configs<Config>()) {
      if (!fits(problem, device, config)) continue;
      if (config.tile_v > kNarrowest && problem.V <= kNarrowest) continue;
      if (config.segments > 1 && (config.segments > walk_extents(problem.walk()).chunks ||
                                  items_of(problem, config) > kMostRounds * device.cores)) {
        continue;
      }
      configs.push_back(config);
    }
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return SummaryMemory(problem, config, nullptr).parts.used();
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.k.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const SummaryMemory memory(problem, config, site.workspace.data());
    const WalkParams params = summed_walk(problem, args, config, memory.scratch);
    const ChunkWgmmaConfig walk = walk_config(problem, config);
    const SummaryViews to{.final_state = state_view(std::optional(args.final_state)),
                          .key_sums = {},
                          .initial = state_view(args.initial_state),
                          .scale = static_cast<float>(args.scale)};
    DecaySumParams sums = decay_sums(problem, args);
    sums.parts = memory.sums;
    with_element<__half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      launch_decay_sums<T>(sums, stream);
      launch_segment_states<T>(walk, params, stream);
    });
    launch_segment_join(walk, params, to, stream);
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_wgmma

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_wgmma_summary() {
  return std::make_unique<chunk_wgmma::ChunkWgmmaSummary>();
}
