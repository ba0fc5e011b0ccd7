// From what each segment of a sequence makes of a state of zeros to the state that it starts from.
#include "cuda/chunk_mma/backward/chunk_place.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace segment_starts_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;

/// One element of a head's state in the segments of a sequence, in the order of their walk.
struct SegmentElement {
  float* states = nullptr;
  const float* key_decays = nullptr;
  const float* value_decays = nullptr;  // or none
  std::int64_t state_step = 0;
  std::int64_t key_step = 0;
  std::int64_t value_step = 0;
  std::int64_t count = 0;

  /// Each segment's start in the place of what it adds; returns what the last one ends with.
  __device__ float pass() const {
    constexpr int kTogether = 8;  // segments whose loads are under way together
    float state = 0.0F;
    for (std::int64_t first = 0; first < count; first += kTogether) {
      float added[kTogether];
      float factors[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t at = min(first + i, count - 1);
        added[i] = states[at * state_step];
        factors[i] = key_decays[at * key_step];
        if (value_decays != nullptr) factors[i] *= value_decays[at * value_step];
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= count) break;
        states[(first + i) * state_step] = state;
        state = fmaf(state, factors[i], added[i]);
      }
    }
    return state;
  }
};

/// A channel's decay of the at-th segment; null where its side has none.
__device__ __forceinline__ const float* decays_of(const KeptDecays& decays, std::int64_t at,
                                                  std::int64_t channel) {
  if (decays.of_segments == nullptr) return nullptr;
  return decays.of_segments + at * decays.width + min(channel, decays.width - 1);
}

/// grid: S and D x elements x heads x sequences.
__global__ __launch_bounds__(kThreads) void find_segment_starts(
    const __grid_constant__ BackwardParams p) {
  const std::int64_t columns = state_columns(p.values.channels);
  const std::int64_t size = p.keys.channels * columns;
  const std::int64_t tiles = ceil_div(size, kThreads);
  const bool is_back = block_number() % 2 != 0;
  const std::int64_t number = quotient(block_number(), 2);
  const std::int64_t of_all = quotient(number, tiles);
  const std::int64_t sequence = quotient(of_all, p.heads);
  const std::int64_t head = of_all - sequence * p.heads;
  const std::int64_t element = (number - of_all * tiles) * kThreads + threadIdx.x;
  if (sequence >= p.sequence_count || element >= size) return;

  const SequenceSpan span = span_of(p.sequences, sequence);
  const StateSide& side = is_back ? p.back : p.forward;
  const std::int64_t count = max(ceil_div(span.length, p.segment_tokens), std::int64_t{1});
  const std::int64_t part = first_part(p.sequences, sequence, span, p.segment_tokens);
  const std::int64_t first = (part + (is_back ? count - 1 : 0)) * p.heads + head;
  const std::int64_t step = is_back ? -p.heads : p.heads;
  const std::int64_t key = quotient(element, columns);
  const std::int64_t value = element - key * columns;
  const SegmentElement own{.states = side.segment_states + first * size + element,
                           .key_decays = decays_of(side.keys, first, key),
                           .value_decays = decays_of(side.values, first, value),
                           .state_step = step * size,
                           .key_step = step * side.keys.width,
                           .value_step = step * side.values.width,
                           .count = count};
  const float end = own.pass();

  const StateView to = state_of(side.final, sequence);
  if (to.data == nullptr || value >= p.values.channels) return;
  to.data[head * to.head + key * to.k + value * to.v] = end;
}

}  // namespace segment_starts_kernels

void launch_segment_starts(const BackwardParams& p, cudaStream_t stream) {
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  const std::int64_t blocks = 2 * p.sequence_count * p.heads * ceil_div(size, kThreads);
  launch<find_segment_starts>({.grid = grid_of(blocks), .block = kThreads}, stream, p);
}

}  // namespace attune::cuda::chunk_mma::backward
