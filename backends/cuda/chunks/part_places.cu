// Where the parts of packed sequences are, found once: a walk that looks for its own would do so
// with a state in its registers.
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace part_places_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 128;

/// The last of `count` sequences that begin at or before a token.
__device__ std::int64_t sequence_of_token(const SequencesView& sequences, std::int64_t count,
                                          std::int64_t token) {
  std::int64_t low = 0;
  std::int64_t high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    const bool starts_later = bound_of(sequences, middle) > token;
    (starts_later ? high : low) = starts_later ? middle - 1 : middle;
  }
  return low;
}

/// Of a number of what segments add: a sequence in several has the last token of each of its own.
__device__ PartPlace place_of_sum(const SequencesView& sequences, std::int64_t count,
                                  std::int64_t number, std::int64_t part_tokens) {
  const std::int64_t sequence = sequence_of_token(sequences, count, (number + 1) * part_tokens - 1);
  const SequenceSpan span = span_of(sequences, sequence);
  const std::int64_t segment = number - span.begin / part_tokens;
  const int segments = segments_of_length(span.length, part_tokens);
  if (segments == 1 || segment < 0 || segment >= segments) return {};
  return {static_cast<int>(sequence), static_cast<int>(segment), segments};
}

/// A thread a part, or what a segment adds.
__global__ __launch_bounds__(kThreads) void part_places(
    const __grid_constant__ SequencesView sequences, std::int64_t count, SequenceParts parts) {
  const std::int64_t part = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (part >= parts.count) {
    const std::int64_t number = part - parts.count;
    if (parts.sum_places == nullptr || number >= parts.sums(sequences.tokens)) return;
    parts.sum_places[number] = place_of_sum(sequences, count, number, parts.tokens);
    return;
  }
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
  const std::int64_t sums = parts.sum_places == nullptr ? 0 : parts.sums(sequences.tokens);
  const std::int64_t blocks = (parts.count + sums + kThreads - 1) / kThreads;
  launch<part_places>({.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)},
                      stream, sequences, sequence_count, parts);
}

}  // namespace attune::cuda
