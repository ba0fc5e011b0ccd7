#include "backward_launch.hpp"

#include <algorithm>

#include "backward_params.hpp"
#include "backward_workspace.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "cpu/simd/task_queue.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;

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

BackwardScratch::Side side_layout(ScratchLayout& layout, const Problem& problem, int tokens,
                                  std::int64_t width, std::int64_t gate_width) {
  BackwardScratch::Side side;
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

BackwardScratch scratch_layout(const Problem& problem, const RecurrentBackwardConfig& config) {
  const std::int64_t key_width = round_up(problem.K, lanes(config.isa));
  const std::int64_t value_width = round_up(problem.V, lanes(config.isa));
  const std::int64_t state = problem.V * key_width;
  const std::int64_t shared = (problem.gates & ~ops::kGateGv) != 0 ? lanes(config.isa) : 0;
  const std::int64_t key_gates = (problem.gates & ops::kGateGk) != 0 ? key_width : shared;
  const std::int64_t value_gates = (problem.gates & ops::kGateGv) != 0 ? value_width : 0;
  const std::int64_t segments = problem.gates != 0 ? problem.T / segment_tokens(problem) + 1 : 1;
  ScratchLayout layout;
  BackwardScratch scratch;
  scratch.keys = side_layout(layout, problem, config.tokens_per_pass, key_width, key_gates);
  scratch.values = side_layout(layout, problem, config.tokens_per_pass, value_width, value_gates);
  scratch.state = layout.reserve(state);
  scratch.dstate = layout.reserve(state);
  scratch.value_pairs =
      layout.reserve(problem.T * BackwardScratch::kPairsPerToken + lanes(config.isa));
  scratch.checkpoints = layout.reserve((segments - 1) * state);
  scratch.zeros = layout.reserve(value_width);
  scratch.size = layout.size();
  return scratch;
}

using Workspace = BackwardWorkspace<BackwardScratch>;

Workspace workspace_of(const Problem& problem, const RecurrentBackwardConfig& config) {
  const std::int64_t threads = std::min<std::int64_t>(config.threads, backward_task_count(problem));
  return backward_workspace(problem, threads, scratch_layout(problem, config));
}

RecurrentBackwardParams params_of(const Problem& problem, const Args& args,
                                  const RecurrentBackwardConfig& config, const Workspace& layout,
                                  std::byte* memory) {
  RecurrentBackwardParams params;
  static_cast<BackwardTensors&>(params) = backward_tensors(problem, args, layout.arguments, memory);
  params.tokens_per_pass = config.tokens_per_pass;
  params.segment_tokens = segment_tokens(problem);
  params.stream = config.stream;
  params.scratch = layout.scratch;
  return params;
}

auto* backward_for([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &recurrent_backward_avx512;
  if (isa == Isa::kAvx2) return &recurrent_backward_avx2;
#endif
  return &recurrent_backward_baseline;
}

}  // namespace

std::int64_t backward_task_count(const Problem& problem) {
  return problem.sequences() * problem.Hkv;
}

std::size_t backward_workspace_bytes(const Problem& problem,
                                     const RecurrentBackwardConfig& config) {
  return workspace_of(problem, config).size;
}

void launch_backward(const Problem& problem, const Args& args,
                     const RecurrentBackwardConfig& config, std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  const RecurrentBackwardParams params = params_of(problem, args, config, layout, workspace.data());
  auto* const memory = reinterpret_cast<float*>(workspace.data());  // aligned by contract
  auto* const backward = backward_for(config.isa);
  if (layout.threads > 0) {
    run_task_queue(backward_task_count(problem), layout.threads,
                   [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                     const FlushDenormals flush_denormals;
                     backward(params, first, last, memory + thread * params.scratch.size);
                   });
  }
  store_dgamma(problem, args, params);
}

}  // namespace attune::cpu::simd
