#include "tiles_backward_launch.hpp"

#include <algorithm>

#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/recurrent_attention/backward/backward_workspace.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "cpu/simd/task_queue.hpp"
#include "tiles_backward_params.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;
using Config = TilesBackwardConfig;

constexpr std::int64_t kTileFloats = 256;
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileDepth = 32;
constexpr std::int64_t kVector = 16;

std::int64_t task_count(const Problem& problem) { return problem.sequences() * problem.Hkv; }

std::int64_t padded_tokens(const Problem& problem, const Config& config) {
  return round_up(problem.T, config.chunk);
}

// For constant decays twice as many states as for others, if the sequence is that long.
std::int64_t segment_tokens(const Problem& problem, const Config& config) {
  const bool has_gamma = (problem.gates & ops::kGateGamma) != 0;
  return tokens_between_states(config.anchor_tokens, has_gamma ? problem.T / 4 : problem.T);
}

// Rows are read where they lie, but for those that decay and those that do not fill tiles.
std::int64_t kept_chunks(const Problem& problem, const Config& config) {
  const bool has_gk = (problem.gates & ops::kGateGk) != 0;
  if (!has_gk && problem.K % kTileDepth == 0 && problem.V % kTileDepth == 0) return 0;
  return std::min<std::int64_t>(config.kept_tokens, padded_tokens(problem, config)) / config.chunk;
}

TilesBackwardScratch::Copies copies_layout(std::int64_t chunk, std::int64_t key_width,
                                           std::int64_t value_width, bool has_gk) {
  ScratchLayout layout;
  TilesBackwardScratch::Copies copies;
  copies.q = layout.reserve(chunk * key_width / 2);
  copies.k = layout.reserve(chunk * key_width / 2);
  copies.v = layout.reserve(chunk * value_width / 2);
  copies.d_o = layout.reserve(chunk * value_width / 2);
  if (has_gk) {
    copies.decays = layout.reserve(chunk * key_width);
    copies.first = layout.reserve(key_width);
    copies.total = layout.reserve(key_width);
    copies.kept_rows = layout.reserve(1);
  }
  copies.size = layout.size();
  return copies;
}

TilesBackwardScratch scratch_layout(const Problem& problem, const Config& config) {
  const std::int64_t key_width = round_up(problem.K, kTileDepth);
  const std::int64_t value_width = round_up(problem.V, kTileDepth);
  const std::int64_t width = std::max(key_width, value_width);
  const std::int64_t state_size = key_width * value_width;
  const std::int64_t chunk = config.chunk;
  ScratchLayout layout;
  TilesBackwardScratch scratch;
  for (TilesBackwardScratch::State& state : scratch.states) {
    state.floats = layout.reserve(state_size);
    state.carries = layout.reserve(kVector);
  }
  scratch.transposed_pairs = layout.reserve(state_size / 2);
  scratch.state_pairs = layout.reserve(2 * width / kTileDepth * kTileFloats);
  for (std::int64_t* operand : {&scratch.queries, &scratch.keys, &scratch.writes}) {
    *operand = layout.reserve(chunk * width / 2);
  }
  scratch.values = layout.reserve(4 * chunk / kTileDepth * kTileFloats);
  scratch.sums = layout.reserve(chunk * chunk);
  scratch.key_sums = layout.reserve(chunk * chunk);
  scratch.pairs = layout.reserve(chunk * chunk / 2);
  scratch.outputs = layout.reserve(8 * kTileFloats);
  scratch.decays = layout.reserve(width);
  scratch.partial = layout.reserve(chunk * kVector);
  scratch.zeros = layout.reserve(width);
  if (problem.H != problem.Hkv) {
    scratch.dk_sums = layout.reserve(problem.T * key_width);
    scratch.dv_sums = layout.reserve(problem.T * value_width);
  }
  const bool has_gates = problem.gates != 0;
  const std::int64_t between = segment_tokens(problem, config);
  const bool has_gk = (problem.gates & ops::kGateGk) != 0;
  scratch.dots = layout.reserve(has_gates && !has_gk ? padded_tokens(problem, config) : 0);
  scratch.anchors = layout.reserve(has_gates ? problem.T / between * state_size : 0);
  if (has_gk) {
    scratch.gate_rows = layout.reserve(chunk * key_width);
    scratch.q_rows = layout.reserve(chunk * key_width / 2);
    scratch.k_rows = layout.reserve(chunk * key_width / 2);
    scratch.centers = layout.reserve(key_width);
    scratch.exact_span = layout.reserve(3 * kTileRows * key_width);
    scratch.terms = layout.reserve(problem.T * key_width);
    scratch.gates = layout.reserve(key_width);
    scratch.state_decay = layout.reserve(key_width);
    scratch.gradient_decay = layout.reserve(key_width);
  }
  scratch.copies_of_chunk = copies_layout(chunk, key_width, value_width, has_gk);
  scratch.copies =
      layout.reserve((kept_chunks(problem, config) + 1) * scratch.copies_of_chunk.size);
  scratch.size = layout.size();
  return scratch;
}

using Workspace = BackwardWorkspace<TilesBackwardScratch>;

Workspace workspace_of(const Problem& problem, const Config& config) {
  return backward_workspace(problem, std::min<std::int64_t>(config.threads, task_count(problem)),
                            scratch_layout(problem, config));
}

}  // namespace

std::size_t tiles_backward_workspace_bytes(const Problem& problem, const Config& config) {
  return workspace_of(problem, config).size;
}

void launch_tiles_backward(const Problem& problem, const Args& args, const Config& config,
                           std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  TilesBackwardParams params;
  static_cast<BackwardTensors&>(params) =
      backward_tensors(problem, args, layout.arguments, workspace.data());
  params.chunk = config.chunk;
  params.segment_tokens = segment_tokens(problem, config);
  params.kept_chunks = kept_chunks(problem, config);
  params.stream = config.stream;
  params.scratch = layout.scratch;
  [[maybe_unused]] auto* const memory =
      reinterpret_cast<float*>(workspace.data());  // aligned by contract
  if (layout.threads > 0) {
    run_task_queue(task_count(problem), layout.threads,
                   [&]([[maybe_unused]] std::int64_t thread, [[maybe_unused]] std::int64_t first,
                       [[maybe_unused]] std::int64_t last) {
#if defined(__x86_64__)  // no other device has amx_bf16
                     const FlushDenormals flush_denormals;
                     tiles_backward_amx_bf16(params, first, last,
                                             memory + thread * params.scratch.size);
#endif
                   });
  }
  store_dgamma(problem, args, params);
}

}  // namespace attune::cpu::simd
