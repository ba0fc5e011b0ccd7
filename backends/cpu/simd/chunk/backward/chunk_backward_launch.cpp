#include "chunk_backward_launch.hpp"

#include <algorithm>

#include "chunk_backward_params.hpp"
#include "cpu/simd/flush_denormals.hpp"
#include "cpu/simd/recurrent_attention/backward/backward_workspace.hpp"
#include "cpu/simd/scratch_layout.hpp"
#include "cpu/simd/task_queue.hpp"

namespace attune::cpu::simd {
namespace {

using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionBackwardArgs;
using Config = ChunkBackwardConfig;

constexpr std::int64_t kPanelChannels = 16;
constexpr std::int64_t kBlockTokens = 4;  // of which decays per channel are multiplied at a time

/// Ratios, three rows, and the total.
std::int64_t shared_decay_floats(std::int64_t chunk) { return chunk * chunk + 3 * chunk + 1; }

std::int64_t padded_tokens(const Problem& problem, const Config& config) {
  return round_up(problem.T, config.chunk);
}

std::int64_t task_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.Hkv * chunk_backward_parts(problem, config);
}

ChunkBackwardScratch::Side side_layout(ScratchLayout& layout, const Problem& problem,
                                       const Config& config, std::int64_t width, bool has_gates) {
  ChunkBackwardScratch::Side side;
  for (std::int64_t* rows : {&side.decayed_reads, &side.decayed_writes, &side.local_reads,
                             &side.local_writes, &side.sums, &side.transposed}) {
    *rows = layout.reserve(config.chunk * width);
  }
  for (std::int64_t* row : {&side.carries, &side.gate}) *row = layout.reserve(width);
  side.terms = layout.reserve(has_gates ? padded_tokens(problem, config) * width : 0);
  const std::int64_t parts = chunk_backward_parts(problem, config);
  const bool sums = parts == 1 && problem.H > problem.Hkv;
  side.group_sum = layout.reserve(sums ? padded_tokens(problem, config) * width : 0);
  return side;
}

std::int64_t kept_chunks(const Problem& problem, const Config& config) {
  return std::min<std::int64_t>(config.kept_tokens, padded_tokens(problem, config)) / config.chunk;
}

ChunkBackwardScratch::PackedSide packed_side_layout(ScratchLayout& layout, const Config& config,
                                                    std::int64_t width, bool has_gates) {
  ChunkBackwardScratch::PackedSide side;
  side.reads = layout.reserve(config.chunk * width);
  side.writes = layout.reserve(config.chunk * width);
  if (!has_gates) return side;
  side.decays = layout.reserve(config.chunk * width);
  side.block_decays = layout.reserve(config.chunk / kBlockTokens * width);
  side.totals = layout.reserve(width);
  return side;
}

ChunkBackwardScratch::Packed packed_layout(const Problem& problem, const Config& config,
                                           std::int64_t key_width, std::int64_t value_width) {
  ScratchLayout layout;
  ChunkBackwardScratch::Packed packed;
  packed.keys = packed_side_layout(layout, config, key_width, (problem.gates & ops::kGateGk) != 0);
  packed.values =
      packed_side_layout(layout, config, value_width, (problem.gates & ops::kGateGv) != 0);
  const bool has_shared =
      (problem.gates & (ops::kGateG | ops::kGateGamma)) != 0 && (problem.gates & ops::kGateGk) == 0;
  packed.shared_decays = layout.reserve(has_shared ? shared_decay_floats(config.chunk) : 0);
  packed.size = layout.size();
  return packed;
}

ChunkBackwardScratch scratch_layout(const Problem& problem, const Config& config) {
  const std::int64_t key_width = round_up(problem.K, kPanelChannels);
  const std::int64_t value_width = round_up(problem.V, kPanelChannels);
  const std::int64_t state = value_width * key_width;
  const std::int64_t tokens = padded_tokens(problem, config);
  const std::int64_t between = tokens_between_states(config.anchor_tokens, problem.T);
  ScratchLayout layout;
  ChunkBackwardScratch scratch;
  scratch.keys =
      side_layout(layout, problem, config, key_width, (problem.gates & ops::kGateGk) != 0);
  scratch.values =
      side_layout(layout, problem, config, value_width, (problem.gates & ops::kGateGv) != 0);
  scratch.packed_chunk = packed_layout(problem, config, key_width, value_width);
  scratch.packed = layout.reserve((kept_chunks(problem, config) + 1) * scratch.packed_chunk.size);
  scratch.row_totals = layout.reserve(value_width);
  scratch.state = layout.reserve(state);
  scratch.dstate = layout.reserve(state);
  scratch.anchors = layout.reserve(problem.gates != 0 ? problem.T / between * state : 0);
  scratch.pairs = layout.reserve(tokens * config.chunk);
  scratch.key_pairs = layout.reserve(config.chunk * config.chunk);
  scratch.ratios = layout.reserve(config.chunk * config.chunk);
  scratch.dots = layout.reserve(tokens);
  scratch.size = layout.size();
  return scratch;
}

struct Workspace : BackwardWorkspace<ChunkBackwardScratch> {
  std::int64_t partial_chunks = 0;
  std::size_t partial_sums = 0;  // float, of parts of groups; in bytes from the start
};

Workspace workspace_of(const Problem& problem, const Config& config) {
  const std::int64_t threads = std::min<std::int64_t>(config.threads, task_count(problem, config));
  Workspace layout{backward_workspace(problem, threads, scratch_layout(problem, config))};
  const std::int64_t parts = chunk_backward_parts(problem, config);
  if (parts == 1) return layout;
  const std::int64_t chunks = padded_tokens(problem, config) / config.chunk;
  layout.partial_chunks = problem.N > 0 ? chunks + problem.N : problem.B * chunks;
  const std::int64_t width =
      round_up(problem.K, kPanelChannels) + round_up(problem.V, kPanelChannels);
  const std::int64_t floats = problem.Hkv * parts * layout.partial_chunks * config.chunk * width;
  layout.partial_sums =
      reserve_aligned(layout.size, static_cast<std::size_t>(floats) * sizeof(float));
  return layout;
}

ChunkBackwardParams params_of(const Problem& problem, const Args& args, const Config& config,
                              const Workspace& layout, std::byte* memory) {
  ChunkBackwardParams params;
  static_cast<BackwardTensors&>(params) = backward_tensors(problem, args, layout.arguments, memory);
  params.chunk = config.chunk;
  params.segment_tokens = tokens_between_states(config.anchor_tokens, problem.T);
  params.stream = config.stream;
  params.kept_chunks = kept_chunks(problem, config);
  params.group_parts = chunk_backward_parts(problem, config);
  // Aligned by reserve_aligned().
  params.partial_sums = reinterpret_cast<float*>(memory + layout.partial_sums);
  params.partial_chunks = layout.partial_chunks;
  params.scratch = layout.scratch;
  return params;
}

struct Functions {
  ChunkBackwardRun* run;
  ChunkBackwardSum* sum;
};

Functions functions_for([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return {chunk_backward_avx512, sum_chunk_backward_avx512};
  if (isa == Isa::kAvx2) return {chunk_backward_avx2, sum_chunk_backward_avx2};
#endif
  return {chunk_backward_baseline, sum_chunk_backward_baseline};
}

void add_parts_up(const ChunkBackwardParams& params, std::int64_t threads, ChunkBackwardSum* sum) {
  const RecurrentForwardParams& f = params.forward;
  const std::int64_t tokens = params.chunk * kChunksOfSum;
  const std::int64_t tasks = f.sequences * f.kv_heads * ((f.tokens + tokens - 1) / tokens);
  if (tasks == 0) return;
  run_task_queue(tasks, std::min(threads, tasks),
                 [&](std::int64_t, std::int64_t first, std::int64_t last) {
                   const FlushDenormals flush_denormals;
                   sum(params, first, last);
                 });
}

}  // namespace

std::int64_t chunk_backward_parts(const Problem& problem, const Config& config) {
  return std::min<std::int64_t>(config.group_parts, problem.H / problem.Hkv);
}

std::size_t chunk_backward_workspace_bytes(const Problem& problem, const Config& config) {
  return workspace_of(problem, config).size;
}

void launch_chunk_backward(const Problem& problem, const Args& args, const Config& config,
                           std::span<std::byte> workspace) {
  const Workspace layout = workspace_of(problem, config);
  const ChunkBackwardParams params = params_of(problem, args, config, layout, workspace.data());
  auto* const memory = reinterpret_cast<float*>(workspace.data());  // aligned by contract
  const Functions functions = functions_for(config.isa);
  if (layout.threads > 0) {
    run_task_queue(task_count(problem, config), layout.threads,
                   [&](std::int64_t thread, std::int64_t first, std::int64_t last) {
                     const FlushDenormals flush_denormals;
                     functions.run(params, first, last, memory + thread * params.scratch.size);
                   });
    if (params.group_parts > 1) add_parts_up(params, config.threads, functions.sum);
  }
  store_dgamma(problem, args, params);
}

}  // namespace attune::cpu::simd
