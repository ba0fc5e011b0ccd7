#include "cuda/chunk_mma/chunk_mma.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"

namespace attune::cuda::chunk_mma {
namespace {

using Config = ChunkMmaConfig;
using Problem = ops::RecurrentAttentionProblem;

constexpr std::int64_t kMinSplitTokens = 8;  // fewer are faster one by one

/// Blocks of the kernel that makes the outputs.
std::int64_t block_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * value_tiles(problem, values_per_block(config)) *
         config.segments;
}

/// Bytes of the workspace that hold the segments' states, as the registers of their blocks do.
std::size_t state_bytes(const Problem& problem, const Config& config) {
  if (config.segments == 1) return 0;
  const std::int64_t elements = padded_keys(problem.K) * std::int64_t{values_per_block(config)};
  return static_cast<std::size_t>(block_count(problem, config) * elements) * sizeof(float);
}

bool is_split(const Problem& problem) { return problem.dtype == DType::kF32; }

std::size_t shared_bytes(const Problem& problem, const Config& config) {
  const int keys = padded_keys(problem.K);
  return is_split(problem) ? split_shared_bytes(keys, config) : shared_bytes(keys, config);
}

/// As many as there is room for, of no fewer than four chunks.
int segments_for(const Problem& problem, const DeviceInfo& device, Config config) {
  constexpr int kMinChunks = 4;
  config.segments = 1;
  const int by_registers = is_split(problem) ? split_resident_blocks(config)
                                             : resident_blocks(padded_keys(problem.K), config);
  const auto bytes = static_cast<std::int64_t>(shared_bytes(problem, config));
  return cuda::segments_for(problem, block_count(problem, config),
                            room_for_blocks(device, bytes, by_registers),
                            kMinChunks * config.chunk);
}

SegmentWalkParams params_of(const Problem& problem, const ops::RecurrentAttentionArgs& args,
                            const Config& config, const LaunchSite& site) {
  SegmentWalkParams params =
      walk_params(problem, args, values_per_block(config), config.stages, config.segments);
  params.segment_states = reinterpret_cast<float4*>(site.workspace.data());
  params.segment_decays =
      reinterpret_cast<float*>(site.workspace.data() + state_bytes(problem, config));
  return params;
}

template <class T>
void launch_all(const SegmentWalkParams& params, const Config& config, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if constexpr (std::is_same_v<T, float>) {
    if (config.segments > 1) launch_split_segment_states<T>(params, config, on);
    launch_split_walk<T>(params, config, on);
  } else {
    if (config.segments > 1) launch_segment_states<T>(params, config, on);
    launch_chunk_mma<T>(params, config, on);
  }
}

class ChunkMma : public Kernel<ChunkMmaConfig> {
 public:
  using Config = ChunkMmaConfig;

  std::string_view name() const noexcept override { return "cuda.chunk_mma"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80"))
      return Support::no(refused::kDevice, "needs sm_80");
    const int most_keys = is_split(problem) ? kMaxSplitKeys : kMostKeys;
    if (problem.K > most_keys) return Support::no(refused::kShape, str("takes K <= ", most_keys));
    const int copied = is_split(problem) ? kChannelsPerSplitCopy : kChannelsPerCopy;
    if (problem.K % copied != 0 || problem.V % copied != 0) {
      return Support::no(refused::kShape, str("takes K and V that are multiples of ", copied));
    }
    if (is_split(problem) && problem.T < kMinSplitTokens * std::max<std::int64_t>(problem.N, 1)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", kMinSplitTokens, " tokens or more in f32"));
    }
    if (problem.T > kMostTokens)
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    if (!problem.aligned)
      return Support::no(refused::kAlignment, "takes rows that start at multiples of 16 bytes");
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.warps = 4}) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    const int keys = padded_keys(problem.K);
    if (is_split(problem) && !is_compiled_split(keys, config)) {
      return Support::no(refused::kInstance, "f32 takes chunk=32");
    }
    if (!is_compiled(keys, config))
      return Support::no(refused::kInstance, "K > 128 takes chunk=32");
    const auto bytes = static_cast<std::int64_t>(shared_bytes(problem, config));
    if (bytes > device.l1_bytes) {
      return Support::no(
          refused::kMemory,
          str("needs ", bytes, " bytes of shared memory a block, of which there are ",
              device.l1_bytes));
    }
    if (block_count(problem, config) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "needs more blocks than a launch may have");
    }
    return Support::yes();
  }

  /// Wide blocks read q and k the fewest times. Where there is one for every multiprocessor, short
  /// chunks do less; where sequences have to be cut for that, long ones keep their segments long.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config config{.warps = problem.V > 64 ? 8 : 4, .chunk = 32};
    if (!fits(problem, device, config)) config.stages = 2;
    if (!fits(problem, device, config)) config.warps = 4;
    config.segments = segments_for(problem, device, config);
    Config longer = config;
    longer.chunk = 64;
    longer.segments = segments_for(problem, device, longer);
    const bool is_better = config.warps == 8 && padded_keys(problem.K) == 128;
    return is_better && longer.segments > 1 && fits(problem, device, longer) ? longer : config;
  }

  /// Shapes of a block that measured best somewhere, each with about as many segments as there is
  /// room for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    constexpr Config kNarrow[] = {{.warps = 4, .chunk = 32, .stages = 3},
                                  {.warps = 4, .chunk = 32, .stages = 2},
                                  {.warps = 4, .chunk = 64, .stages = 2}};
    constexpr Config kWide[] = {{.warps = 8, .chunk = 64, .stages = 3},
                                {.warps = 8, .chunk = 64, .stages = 2},
                                {.warps = 8, .chunk = 32, .stages = 3}};
    std::vector<Config> configs;
    const auto add = [&](Config config) {
      if (!fits(problem, device, config)) return;
      const int segments = segments_for(problem, device, config);
      for (const int count : {segments / 2, segments, segments * 2}) {
        config.segments = count;
        if (count >= 1 && count <= kMostSegments && fits(problem, device, config)) {
          configs.push_back(config);
        }
      }
    };
    std::ranges::for_each(kNarrow, add);
    if (problem.V > 64) std::ranges::for_each(kWide, add);
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    if (config.segments == 1) return 0;
    return state_bytes(problem, config) +
           static_cast<std::size_t>(problem.sequences() * problem.H * config.segments) *
               sizeof(float);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const SegmentWalkParams params = params_of(problem, args, config, site);
    with_element<float, __half, __nv_bfloat16>(
        problem.dtype, [&]<class T>() { launch_all<T>(params, config, site.stream); });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_mma

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_mma() {
  return std::make_unique<WithStoredStates<chunk_mma::ChunkMma>>();
}
