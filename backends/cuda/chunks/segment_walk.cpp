#include "cuda/chunks/segment_walk.hpp"

#include <algorithm>

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
  params.sequences = walked_sequences(args, problem.T);
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

int segments_for(const ops::RecurrentAttentionProblem& problem, std::int64_t blocks,
                 std::int64_t room, std::int64_t least_tokens) {
  const std::int64_t length = problem.T / std::max<std::int64_t>(problem.N, 1);
  blocks = std::max<std::int64_t>(blocks, 1);
  int segments = 1;
  while (segments < kMostSegments && 2 * segments * blocks <= room &&
         2 * segments * least_tokens <= length) {
    segments *= 2;
  }
  return segments;
}

}  // namespace attune::cuda
