// The gradients of recurrent linear attention on the CPU, a few tokens at a time.
//
// A task is a sequence and a kv head: the query heads that share it add to dk and dv one after the
// other, so results do not depend on the number of threads. Denormals count as zero.
#include <algorithm>

#include <attune/ops/recurrent_attention_op.hpp>

#include "backward_config.hpp"
#include "backward_params.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd/kernel/expected_time.hpp"
#include "cpu/simd/kernel/launch.hpp"
#include "cpu/simd/kernel/simd_kernel.hpp"

namespace attune::cpu::simd::recurrent_attention::backward {
namespace {

using Problem = ops::RecurrentAttentionProblem;

constexpr double kFlopsPerThread = 1e6;

/// By what 120 problems took beside simd.chunk.backward on one thread, not fitted.
constexpr TokenCosts kCosts{
    .step = 4, .token = 55, .channel = 0.15, .product = 0.0785, .g = 4, .gk = 1.5, .gv = 3.2};

/// What a constant decay costs: more states, and an error in its gradient that is half as large
/// again as that of simd.chunk.backward, which is therefore taken where the two are close.
constexpr double kConstantDecay = 45;

/// What a channel costs besides where its rows are made into floats in either sweep.
constexpr double kWidenedChannel = 0.6;

TokenCosts costs_of(const Problem& problem) {
  TokenCosts costs = kCosts;
  if ((problem.gates & ops::kGateGamma) != 0) costs.g = kConstantDecay;
  if (problem.dtype != DType::kF32) costs.channel += kWidenedChannel;
  return costs;
}

/// Gate gradients are summed up over no more tokens than this, or than checkpoints are kept; those
/// of constant decays, which add them up once more, over fewer. Passes of any number of tokens fill
/// a segment.
constexpr std::int64_t kSegmentTokens = 128;
constexpr std::int64_t kSegmentTokensOfLongSums = 32;

std::int64_t segment_tokens(const Problem& problem) {
  const bool has_long_sums = (problem.gates & ops::kGateGamma) != 0;
  return tokens_between_states(has_long_sums ? kSegmentTokensOfLongSums : kSegmentTokens,
                               problem.T);
}

Scratch::Side side_layout(ScratchLayout& layout, const Problem& problem, int tokens,
                          std::int64_t width, std::int64_t gate_width) {
  Scratch::Side side;
  side.coefficients = layout.reserve((2 * tokens + 1) * width);
  for (std::int64_t* rows : {&side.reads, &side.writes, &side.decays}) {
    *rows = layout.reserve(tokens * width);
  }
  for (std::int64_t& rows : side.sums) rows = layout.reserve(tokens * width);
  for (std::int64_t* row : {&side.totals, &side.carries, &side.gate}) *row = layout.reserve(width);
  side.terms = layout.reserve(problem.T * gate_width);
  side.group_sum = layout.reserve(problem.H > problem.Hkv ? problem.T * width : 0);
  return side;
}

Scratch scratch_layout(const Problem& problem, const Config& config) {
  const std::int64_t key_width = round_up(problem.K, lanes(config.isa));
  const std::int64_t value_width = round_up(problem.V, lanes(config.isa));
  const std::int64_t state = problem.V * key_width;
  const std::int64_t shared = (problem.gates & ~ops::kGateGv) != 0 ? lanes(config.isa) : 0;
  const std::int64_t key_gates = (problem.gates & ops::kGateGk) != 0 ? key_width : shared;
  const std::int64_t value_gates = (problem.gates & ops::kGateGv) != 0 ? value_width : 0;
  const std::int64_t segments = problem.gates != 0 ? problem.T / segment_tokens(problem) + 1 : 1;
  ScratchLayout layout;
  Scratch scratch;
  scratch.keys = side_layout(layout, problem, config.tokens_per_pass, key_width, key_gates);
  scratch.values = side_layout(layout, problem, config.tokens_per_pass, value_width, value_gates);
  scratch.state = layout.reserve(state);
  scratch.dstate = layout.reserve(state);
  scratch.value_pairs = layout.reserve(problem.T * Scratch::kPairsPerToken + lanes(config.isa));
  scratch.checkpoints = layout.reserve((segments - 1) * state);
  scratch.zeros = layout.reserve(value_width);
  scratch.size = layout.size();
  return scratch;
}

std::int64_t task_count(const Problem& problem) { return problem.sequences() * problem.Hkv; }

Workspace workspace_of(const Problem& problem, const Config& config) {
  return workspace_for(problem, config.threads, task_count(problem),
                       scratch_layout(problem, config).size, true);
}

int threads_for(const Problem& problem, std::int64_t useful) {
  return axis_value_for(&Config::threads, std::min(useful, task_count(problem)));
}

/// For at most `useful` threads.
Config default_config(const Problem& problem, const DeviceInfo& device, std::int64_t useful) {
  const int threads = threads_for(problem, useful);
  return {.stream = streams_gradients(problem, device, threads),
          .threads = threads,
          .isa = widest_isa(device)};
}

class RecurrentAttentionBackwardKernel final : public SimdKernel<Config> {
 public:
  RecurrentAttentionBackwardKernel() : SimdKernel("simd.recurrent_attention.backward", 2) {}

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }

  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    const std::int64_t useful =
        useful_threads(ops::RecurrentAttentionBackward::flops(problem), kFlopsPerThread, device);
    return default_config(problem, device, useful);
  }

  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    const Config config = heuristic_config(problem, device);
    return simd::expected_us(costs_of(problem), problem, by_group(problem, 1, config.threads));
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return workspace_of(problem, config).size;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const Workspace layout = workspace_of(problem, config);
    Params params;
    static_cast<BackwardParams&>(params) =
        backward_params(problem, args, layout.arguments, site.workspace.data());
    params.tokens_per_pass = config.tokens_per_pass;
    params.segment_tokens = segment_tokens(problem);
    params.stream = config.stream;
    params.scratch = scratch_layout(problem, config);
    const Instance compiled =
        instance_for<Config>(config.isa, []<Isa kIsa>() { return instance<kIsa>(); });
    launch_backward(params, layout, task_count(problem), site.workspace, compiled.run);
    finish_backward(problem, args, params);
  }

 private:
  bool is_candidate(const Problem& problem, const DeviceInfo& device,
                    const Config& config) const override {
    // What is seldom best is tried without all combinations of the rest.
    const Config defaults = default_config(problem, device, device.cores);
    const bool narrower = config.isa == Isa::kAvx2 && defaults.isa == Isa::kAvx512;
    if (config.tokens_per_pass == 1 || !full_or_half(config, &Config::threads, defaults.threads)) {
      return false;
    }
    if (config.isa != defaults.isa && !narrower) return false;
    const int changes =
        narrower + (config.threads != defaults.threads) + (config.stream != defaults.stream);
    return changes <= 1;
  }
};

}  // namespace
std::unique_ptr<const ErasedKernel> make() {
  return std::make_unique<RecurrentAttentionBackwardKernel>();
}

}  // namespace attune::cpu::simd::recurrent_attention::backward
