// Summaries of states on the CPU: the walk of simd.chunk that writes and does not read, and the
// sums of the gates.
//
// As there, a task is a sequence, a head and a tile of V, decays of different tokens are multiplied
// or their logs added, never divided, and results do not depend on the number of threads or tile_v.
#include <algorithm>

#include <attune/ops/state_summary_op.hpp>

#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"
#include "summary_config.hpp"
#include "summary_params.hpp"

namespace attune::cpu::simd::chunk::summary {
namespace {

using Problem = ops::StateSummaryProblem;
using Args = ops::StateSummaryArgs;

/// Work that keeps a thread busy ten times longer than it takes to wake it.
constexpr double kFlopsPerThread = 2e6;
constexpr std::int64_t kPanelWidth = 16;

/// Of what the forward walk has in its scratch memory, the part that writes the state.
Scratch scratch_layout(const Problem& problem, std::int64_t chunk, std::int64_t tile_v) {
  const std::int64_t padded = round_up(problem.K, kPanelWidth);
  ScratchLayout layout;
  Scratch scratch;
  scratch.state = layout.reserve((padded + chunk) * tile_v);
  scratch.relative = layout.reserve(padded * chunk);
  scratch.writes = layout.reserve(padded * chunk);
  scratch.from_start = layout.reserve(chunk);
  scratch.to_end = layout.reserve(chunk);
  scratch.key_decays = layout.reserve(padded);
  scratch.key_carries = layout.reserve(padded);
  scratch.k_rows = layout.reserve(padded * chunk);
  scratch.gk_rows = layout.reserve(padded * chunk);
  scratch.v_rows = layout.reserve(tile_v * chunk);
  scratch.gv_rows = layout.reserve(tile_v * chunk);
  scratch.value_decays = layout.reserve(tile_v);
  scratch.value_carries = layout.reserve(tile_v);
  scratch.zeros = layout.reserve(std::max(padded, tile_v));
  scratch.size = layout.size();
  return scratch;
}

constexpr std::int64_t kFloatsOfDouble = 2;

/// Behind the walk's scratch memory. Returns its end in `end`.
SumScratch sum_scratch(const Problem& problem, const Tiling& tiling, std::int64_t& end) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t keys = round_up(problem.K, kPanelWidth);
  end = tiling.scratch.size;
  const auto reserve = [&](std::int64_t floats) {
    const std::int64_t first = end;
    end += round_up(floats, kLine);
    return first;
  };
  SumScratch sums;
  sums.keys = reserve(kFloatsOfDouble * keys);
  sums.values = reserve(kFloatsOfDouble * tiling.tile_v);
  sums.key_rows = reserve(2 * keys);
  sums.value_rows = reserve(2 * tiling.tile_v);
  return sums;
}

std::int64_t scratch_floats(const Problem& problem, const Tiling& tiling) {
  std::int64_t end = 0;
  sum_scratch(problem, tiling, end);
  return end;
}

Tiling tiling_of(const Problem& problem, const Config& config) {
  Tiling tiling;
  tiling.chunk = config.chunk;
  tiling.tile_v = round_up(std::min<std::int64_t>(config.tile_v, problem.V), lanes(config.isa));
  tiling.tiles = round_up(problem.V, tiling.tile_v) / tiling.tile_v;
  tiling.prefetch = config.prefetch;
  tiling.scratch = scratch_layout(problem, tiling.chunk, tiling.tile_v);
  return tiling;
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * tiling_of(problem, config).tiles;
}

Workspace workspace_of(const Problem& problem, const Config& config) {
  return workspace_for(problem.walk(), config.threads, task_count(problem, config),
                       scratch_floats(problem, tiling_of(problem, config)), false);
}

int threads_for(const Problem& problem, const Config& config, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem, config)));
}

/// The walk's arguments, without q and o.
ops::RecurrentAttentionArgs walk_args(const Args& args) {
  ops::RecurrentAttentionArgs walk;
  walk.q = ConstTensorView(nullptr, args.k.dtype, args.k.shape, args.k.strides);
  walk.k = args.k;
  walk.v = args.v;
  walk.g = args.g;
  walk.gamma = args.gamma;
  walk.gk = args.gk;
  walk.gv = args.gv;
  walk.initial_state = args.initial_state;
  walk.cu_seqlens = args.cu_seqlens;
  walk.scale = args.scale;
  walk.o = TensorView(nullptr, args.v.dtype, args.v.shape, args.v.strides);
  walk.final_state = args.final_state;
  return walk;
}

SumTensor sum_tensor(const TensorView& view) {
  return {static_cast<float*>(view.data), view.stride(0), view.stride(1), view.stride(2)};
}

// ---- the kernel ----

class StateSummaryKernel final : public SimdKernel<Config> {
 public:
  StateSummaryKernel() : SimdKernel("simd.chunk.summary", 1) {}

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "reverse", "inclusive"};
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::StateSummary::flops(problem), kFlopsPerThread, device);
    Config config;
    config.isa = widest_isa(device);
    config.prefetch = exceeds_caches(problem.walk());
    choose_tile_v(config, problem.V, useful,
                  [&](const Config& tiled) { return task_count(problem, tiled); });
    config.threads = threads_for(problem, config, useful);
    return config;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const Tiling tiling = tiling_of(problem, config);
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    std::int64_t end = 0;
    const SumScratch sums = sum_scratch(problem, tiling, end);
    launch_forward(
        problem.walk(), walk_args(args), workspace_of(problem, config), task_count(problem, config),
        site.workspace,
        [&](const ForwardParams& walk, std::int64_t first, std::int64_t last, float* scratch) {
          const Params params{walk, problem.inclusive, sum_tensor(args.gk_sum),
                              args.gv_sum ? sum_tensor(*args.gv_sum) : SumTensor{}};
          compiled.run(tiling, sums, params, first, last, scratch);
        });
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    if (config.prefetch && tokens_per_sequence(problem.walk()) <= config.chunk) return false;
    return config.isa == widest_isa(device) &&
           full_or_half(config, &Config::tile_v, axis_value_for(&Config::tile_v, problem.V)) &&
           full_or_half(config, &Config::threads, threads_for(problem, config, device.cores));
  }
};

}  // namespace

std::unique_ptr<const ErasedKernel> make() { return std::make_unique<StateSummaryKernel>(); }

}  // namespace attune::cpu::simd::chunk::summary
