// Where the parts of packed sequences are, found once: a walk that looks for its own would do so
// with a state in its registers.
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace part_places_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;

/// A thread a part.
__global__ __launch_bounds__(kThreads) void part_places(
    const __grid_constant__ SequencesView sequences, std::int64_t count, SequenceParts parts) {
  constexpr std::int64_t kMost = 32;  // segments: each starts from what all before it add
  const std::int64_t part = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (part >= parts.count) return;
  const std::int64_t sequence = sequence_of_part(sequences, count, part, parts.tokens);
  const SequenceSpan span = span_of(sequences, sequence);
  const std::int64_t segment = part - first_part(sequences, sequence, span, parts.tokens);
  const std::int64_t fitting = max(span.length / parts.tokens, std::int64_t{1});
  parts.places[part] = {
      .sequence = static_cast<int>(sequence),
      .segment = static_cast<int>(max(segment, std::int64_t{0})),
      .segments = segment < 0 || span.is_left_out ? 0 : static_cast<int>(min(fitting, kMost))};
}

}  // namespace part_places_kernels

void launch_part_places(const SegmentWalkParams& params, cudaStream_t stream) {
  if (params.parts.tokens == 0) return;
  if (params.parts.are_whole) {
    return launch_walked_places(params.sequences, params.sequence_count, params.parts, stream);
  }
  const std::int64_t blocks = (params.parts.count + kThreads - 1) / kThreads;
  launch<part_places>({.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)},
                      stream, params.sequences, params.sequence_count, params.parts);
}

}  // namespace attune::cuda
