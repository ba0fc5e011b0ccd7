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
  const std::int64_t part = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (part >= parts.count) return;
  const std::int64_t sequence = sequence_of_part(sequences, count, part, parts.tokens);
  const SequenceSpan span = span_of(sequences, sequence);
  const std::int64_t segment = part - first_part(sequences, sequence, span, parts.tokens);
  parts.places[part] = {.sequence = static_cast<int>(sequence),
                        .segment = static_cast<int>(max(segment, std::int64_t{0})),
                        .segments = segment < 0 || span.is_left_out
                                        ? 0
                                        : segments_of_length(span.length, parts.tokens)};
}

}  // namespace part_places_kernels

void launch_part_places(const SequencesView& sequences, std::int64_t sequence_count,
                        const SequenceParts& parts, cudaStream_t stream) {
  if (parts.tokens == 0) return;
  if (parts.are_whole) return launch_walked_places(sequences, sequence_count, parts, stream);
  const std::int64_t blocks = (parts.count + kThreads - 1) / kThreads;
  launch<part_places>({.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)},
                      stream, sequences, sequence_count, parts);
}

}  // namespace attune::cuda
