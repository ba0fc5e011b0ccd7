#include <algorithm>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "chunk_forward_config.hpp"
#include "chunk_launch.hpp"
#include "chunk_work.hpp"
#include "cpu/simd/axis_values.hpp"
#include "cpu/simd/device_isa.hpp"
#include "cpu/simd/simd.hpp"

namespace attune::cpu::simd {
namespace {

using Config = ChunkForwardConfig;
using Problem = ops::RecurrentAttentionProblem;

/// Fewer tokens a sequence than this and the recurrent kernel is faster: most of a chunk would be
/// padding, or the state is read and written for one chunk alone.
constexpr std::int64_t kLeastTokens = 16;

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

/// Whether products of bf16 pairs may be used: q, k and v are bf16, and the CPU has the
/// instruction.
bool takes_pairs(const Problem& problem, const DeviceInfo& device) {
  return problem.dtype == DType::kBF16 && has_isa(device, Isa::kAvx512Bf16);
}

/// Whether `config` may be the best one, and is not another way to write one that is tried besides.
bool is_candidate(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const int full_tile = axis_value_for(&Config::tile_v, problem.V);
  const int all_threads = threads_for(problem, config, device.cores);
  const bool moves_rows = config.prefetch || config.stream;
  const bool half_tile = config.tile_v == half_of(&Config::tile_v, full_tile);
  const bool half_threads = config.threads == half_of(&Config::threads, all_threads);
  if (config.prefetch && tokens_per_sequence(problem) <= config.chunk) return false;
  if (config.isa == Isa::kAvx512Bf16) {
    return takes_pairs(problem, device) && config.tile_v == full_tile &&
           config.threads == all_threads && config.prefetch == config.stream;
  }
  return config.isa == widest_isa(device) && (config.tile_v == full_tile || half_tile) &&
         (config.threads == all_threads || (half_threads && !moves_rows));
}

class ChunkAttentionKernel final : public Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "simd.chunk"; }
  int version() const noexcept override { return 1; }

  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "cpu") return Support::no("needs host memory");
    if (tokens_per_sequence(problem) < kLeastTokens) {
      return Support::no(str("fewer than ", kLeastTokens, " tokens a sequence"));
    }
    return Support::yes();
  }

  /// More threads than cores or tasks, tiles wider than V and chunks longer than T do no harm. So a
  /// config found for a neighbour in the same bucket fits.
  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    if (config.isa == Isa::kAvx512Bf16 && problem.dtype != DType::kBF16) {
      return Support::no("isa=avx512_bf16 takes bf16");
    }
    const std::string_view missing = missing_feature(device, config.isa);
    if (missing.empty()) return Support::yes();
    return Support::no(
        str("isa=", to_string(config.isa), " needs ", missing, ", which this CPU has not"));
  }

  /// The whole width of V in one task, as the key side is then prepared once; narrower tiles only
  /// where there are too few heads for the cores.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful = useful_threads(problem, device, kFlopsPerThread);
    Config config;
    config.isa = widest_isa(device);
    config.chunk = config.isa == Isa::kAvx512 ? 16 : 8;
    config.prefetch = config.stream = is_far(problem);
    config.tile_v = axis_value_for(&Config::tile_v, problem.V);
    while (task_count(problem, config) < useful) {
      const int narrower = half_of(&Config::tile_v, config.tile_v);
      if (narrower == config.tile_v) break;
      config.tile_v = narrower;
    }
    config.threads = threads_for(problem, config, useful);
    return config;
  }

  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    std::vector<Config> configs = all_configs<Config>();
    std::erase_if(configs, [&](const Config& c) { return !is_candidate(problem, device, c); });
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return launch_workspace_bytes(problem, config);
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    launch(problem, args, config, site.workspace);
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make_chunk_attention() {
  return std::make_unique<ChunkAttentionKernel>();
}

}  // namespace attune::cpu::simd
