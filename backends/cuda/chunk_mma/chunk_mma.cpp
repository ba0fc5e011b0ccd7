#include "chunk_mma.hpp"

#include <algorithm>
#include <limits>

#include "cuda/runtime/handles.hpp"
#include "launch.hpp"

namespace attune::cuda {
namespace {

using Config = ChunkMmaConfig;
using Problem = ops::RecurrentAttentionProblem;

std::int64_t value_tiles(const Problem& problem, const Config& config) {
  const std::int64_t values = values_per_block(config);
  return (problem.V + values - 1) / values;
}

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;  // positions are 32 bits

/// Blocks of the kernel that makes the outputs.
std::int64_t block_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * value_tiles(problem, config) * config.segments;
}

/// The part of the workspace that has the segments' states: a block's registers each.
std::size_t state_bytes(const Problem& problem, const Config& config) {
  if (config.segments == 1) return 0;
  const std::int64_t elements = padded_keys(problem.K) * std::int64_t{values_per_block(config)};
  return static_cast<std::size_t>(block_count(problem, config) * elements) * sizeof(float);
}

/// Tokens of the longest sequence, as far as they are known: bounds are in device memory.
std::int64_t likely_length(const Problem& problem) {
  return problem.N > 0 ? problem.T / problem.N : problem.T;
}

/// The most segments, a power of two, that have at least `least` chunks each.
int segments_of(const Problem& problem, int chunk, std::int64_t least, int most) {
  int segments = 1;
  while (segments * 2 <= most && likely_length(problem) >= segments * 2 * least * chunk) {
    segments *= 2;
  }
  return segments;
}

ChunkMmaParams params_of(const Problem& problem, const ops::RecurrentAttentionArgs& args,
                         const Config& config, const LaunchSite& site) {
  ChunkMmaParams params;
  params.q = token_view(args.q);
  params.k = token_view(args.k);
  params.v = token_view(args.v);
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.initial_state = state_view(args.initial_state);
  params.o = token_view(args.o);
  params.final_state = state_view(args.final_state);
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.sequence_count = problem.sequences();
  params.heads = static_cast<int>(problem.H);
  params.heads_per_kv = static_cast<int>(problem.H / problem.Hkv);
  params.key_channels = static_cast<int>(problem.K);
  params.value_channels = static_cast<int>(problem.V);
  params.value_tiles = static_cast<int>(value_tiles(problem, config));
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  params.stages = config.stages;
  params.segments = config.segments;
  params.segment_states = reinterpret_cast<float4*>(site.workspace.data());
  params.segment_decays =
      reinterpret_cast<float*>(site.workspace.data() + state_bytes(problem, config));
  return params;
}

template <class T>
void launch_all(const ChunkMmaParams& params, const Config& config, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (config.segments > 1) launch_segment_states<T>(params, config, on);
  launch_chunk_mma<T>(params, config, on);
}

class ChunkMma final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "cuda.chunk_mma"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80")) return Support::no("needs sm_80");
    if (problem.dtype == DType::kF32) return Support::no("takes f16 and bf16");
    if ((problem.gates & ~(ops::kGateG | ops::kGateGamma)) != 0) {
      return Support::no("takes the gates g and gamma");
    }
    if (problem.K > kMostKeys) return Support::no(str("takes K <= ", kMostKeys));
    if (problem.K % kChannelsPerCopy != 0 || problem.V % kChannelsPerCopy != 0) {
      return Support::no(str("takes K and V that are multiples of ", kChannelsPerCopy));
    }
    if (problem.T > kMostTokens) return Support::no(str("takes T <= ", kMostTokens));
    if (!problem.aligned) return Support::no("takes rows that start at multiples of 16 bytes");
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.warps = 4}) > std::numeric_limits<int>::max()) {
      return Support::no("has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    const int keys = padded_keys(problem.K);
    if (!is_compiled(keys, config)) return Support::no(str("K > 128 takes chunk=32"));
    const auto bytes = static_cast<std::int64_t>(shared_bytes(keys, config));
    if (bytes > device.l1_bytes) {
      return Support::no(str("needs ", bytes,
                             " bytes of shared memory a block, of which there are ",
                             device.l1_bytes));
    }
    if (block_count(problem, config) > std::numeric_limits<int>::max()) {
      return Support::no("needs more blocks than a launch may have");
    }
    return Support::yes();
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config config;
    config.warps = problem.V > 64 ? 8 : 4;
    config.chunk = padded_keys(problem.K) > 128 ? 32 : 64;
    config.stages = 3;
    while (config.stages > 2 && !fits(problem, device, config)) --config.stages;
    if (!fits(problem, device, config)) config = {.warps = 4, .chunk = 32, .stages = 2};
    const std::int64_t blocks = block_count(problem, config);
    const std::int64_t wanted =
        std::max<std::int64_t>(1, 2 * device.cores / std::max<std::int64_t>(blocks, 1));
    config.segments =
        segments_of(problem, config.chunk, 8, static_cast<int>(std::min<std::int64_t>(wanted, 8)));
    return config;
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& c) { return !fits(problem, device, c); });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    if (config.segments == 1) return 0;
    return state_bytes(problem, config) +
           static_cast<std::size_t>(block_count(problem, config)) * sizeof(float);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const ChunkMmaParams params = params_of(problem, args, config, site);
    if (problem.dtype == DType::kF16) {
      launch_all<__half>(params, config, site.stream);
    } else {
      launch_all<__nv_bfloat16>(params, config, site.stream);
    }
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_mma() { return std::make_unique<ChunkMma>(); }

}  // namespace attune::cuda
