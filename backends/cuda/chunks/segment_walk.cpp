#include "cuda/chunks/segment_walk.hpp"

#include <algorithm>

#include "cuda/chunks/walked_list.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/walks/sequence_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

std::int64_t value_tiles(const ops::RecurrentAttentionProblem& problem, int values) {
  return (problem.V + values - 1) / values;
}

SegmentWalkParams walk_params(const ops::RecurrentAttentionProblem& problem,
                              const ops::RecurrentAttentionArgs& args, int values, int stages,
                              int segments) {
  SegmentWalkParams params;
  params.q = token_view(args.q);
  params.k = token_view(args.k);
  params.v = token_view(args.v);
  params.g = gate_view(args.g);
  params.gamma = decay_view(args.gamma, problem.H);
  params.initial_state = initial_states(args);
  params.o = token_view(args.o);
  params.final_state = final_states(args);
  params.snapshots = snapshots_view(args);
  params.sequences = pairs::chunked_sequences(problem, args);
  params.sequence_count = problem.sequences();
  params.heads = static_cast<int>(problem.H);
  params.heads_per_kv = static_cast<int>(problem.H / problem.Hkv);
  params.key_channels = static_cast<int>(problem.K);
  params.value_channels = static_cast<int>(problem.V);
  params.value_tiles = static_cast<int>(value_tiles(problem, values));
  params.scale = static_cast<float>(args.scale);
  params.reverse = problem.reverse;
  params.stages = stages;
  params.segments = segments;
  return params;
}

std::int64_t room_for_blocks(const DeviceInfo& device, std::int64_t block_bytes, int by_registers) {
  const std::int64_t by_memory = device.l1_bytes / block_bytes;
  return device.cores * std::clamp<std::int64_t>(by_memory, 1, by_registers);
}

SequenceParts parts_by_length(const ops::RecurrentAttentionProblem& problem, std::int64_t tiles,
                              int segments, std::int64_t least_tokens) {
  constexpr std::int64_t kMostTiles = 64;
  constexpr std::int64_t kLeastSegments = 8;  // of all tokens, for launches to pay
  constexpr std::int64_t kLeastOfChunk = 16;  // half of a chunk: a segment each, the last short
  const bool may_be_cut = problem.N > 1 && !problem.pool && problem.snapshot_every == 0;
  if (!may_be_cut || problem.H * tiles > kMostTiles) return {};
  if (problem.T < kLeastSegments * least_tokens) return {};
  const std::int64_t least = segments > 1 ? kLeastOfChunk : least_tokens;
  // A third of a segment less than they have: one of average length has as many, and not one more.
  const std::int64_t of_average = 3 * problem.T / (problem.N * (3 * segments + 1));
  // Where blocks are many rounds of a device's, a longer one is hidden by the others.
  constexpr std::int64_t kBlocks = 4 * 132;
  const std::int64_t of_rounds = problem.T * problem.H * tiles / kBlocks;
  const std::int64_t tokens = std::max({of_average, of_rounds, least});
  if (problem.T < 2 * tokens) return {};
  return {.tokens = tokens, .count = part_count(problem.N, problem.T, true, tokens)};
}

SequenceParts walked_parts(const ops::RecurrentAttentionProblem& problem, std::int64_t tiles,
                           int segments, std::int64_t least_tokens) {
  const SequenceParts cut = parts_by_length(problem, tiles, segments, least_tokens);
  SequencesView sequences{.tokens = problem.T};
  sequences.most_left_out = pairs::most_left_out(problem);
  if (cut.tokens > 0 || segments > 1 || sequences.most_left_out == 0) return cut;
  return {.tokens = problem.T + 1, .count = most_walked(sequences, problem.N), .are_whole = true};
}

}  // namespace attune::cuda
