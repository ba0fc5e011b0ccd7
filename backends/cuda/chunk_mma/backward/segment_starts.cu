// From what each segment of a sequence makes of a state of zeros to the state that it starts from.
#include "cuda/chunk_mma/backward/chunk_place.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace segment_starts_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr int kElements = 4;  // of a row, a thread

/// Neighbours in a row of a head's state, in the segments of a sequence in the order of their walk.
template <bool kOfValues>
struct SegmentElements {
  float* states = nullptr;
  const float* key_decays = nullptr;
  const float* value_decays = nullptr;  // only where these have gates
  int values = 0;                       // that there are decays of
  std::int64_t state_step = 0;
  std::int64_t key_step = 0;
  std::int64_t value_step = 0;
  std::int64_t count = 0;

  /// Each segment's start in the place of what it adds; leaves what the last one ends with. No branch
  /// stands between loads.
  __device__ __forceinline__ void pass(float (&state)[kElements]) const {
    constexpr int kTogether = 8;  // segments whose loads are under way together
    for (std::int64_t first = 0; first < count; first += kTogether) {
      float4 added[kTogether];
      float of_key[kTogether];
      float of_values[kTogether][kElements];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const std::int64_t at = min(first + i, count - 1);
        added[i] = *reinterpret_cast<const float4*>(&states[at * state_step]);
        of_key[i] = key_decays[at * key_step];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          of_values[i][e] = kOfValues ? value_decays[at * value_step + min(e, values - 1)] : 1.0F;
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= count) break;
        auto* const start = reinterpret_cast<float4*>(&states[(first + i) * state_step]);
        *start = {state[0], state[1], state[2], state[3]};
        const float of[] = {added[i].x, added[i].y, added[i].z, added[i].w};
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          state[e] = fmaf(state[e], of_key[i] * of_values[i][e], of[e]);
        }
      }
    }
  }
};

/// A channel's decay of the at-th segment; null where its side has none.
__device__ __forceinline__ const float* decays_of(const KeptDecays& decays, std::int64_t at,
                                                  std::int64_t channel) {
  if (decays.of_segments == nullptr) return nullptr;
  return decays.of_segments + at * decays.width + min(channel, decays.width - 1);
}

/// grid: S and D x elements x heads x sequences. A sequence of one segment starts from zero.
template <bool kOfValues>
__global__ __launch_bounds__(kThreads, kOfValues ? 2 : 3) void find_segment_starts(
    const __grid_constant__ BackwardParams p) {
  const std::int64_t columns = state_columns(p.values.channels);
  const std::int64_t size = p.keys.channels * columns;
  const std::int64_t tiles = ceil_div(size, kThreads * kElements);
  const bool is_back = block_number() % 2 != 0;
  const std::int64_t number = quotient(block_number(), 2);
  const std::int64_t of_all = quotient(number, tiles);
  const std::int64_t sequence = quotient(of_all, p.heads);
  const std::int64_t head = of_all - sequence * p.heads;
  const std::int64_t element =
      ((number - of_all * tiles) * kThreads + threadIdx.x) * std::int64_t{kElements};
  if (sequence >= p.sequence_count || element >= size) return;
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (span.length <= p.segment_tokens) return;

  const StateSide& side = is_back ? p.back : p.forward;
  const std::int64_t count = quotient(span.length - 1, p.segment_tokens) + 1;
  const std::int64_t part = first_part(p.sequences, sequence, span, p.segment_tokens);
  const std::int64_t first = (part + (is_back ? count - 1 : 0)) * p.heads + head;
  const std::int64_t step = is_back ? -p.heads : p.heads;
  const std::int64_t key = quotient(element, columns);
  const std::int64_t value = element - key * columns;
  const SegmentElements<kOfValues> own{
      .states = side.segment_states + first * size + element,
      .key_decays = decays_of(side.keys, first, key),
      .value_decays = decays_of(side.values, first, value),
      .values = static_cast<int>(max(p.values.channels - value, std::int64_t{1})),
      .state_step = step * size,
      .key_step = step * side.keys.width,
      .value_step = step * side.values.width,
      .count = count};
  float end[kElements]{};
  own.pass(end);

  const StateView to = state_of(side.final, sequence);
  if (to.data == nullptr) return;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (value + e < p.values.channels) {
      to.data[head * to.head + key * to.k + (value + e) * to.v] = end[e];
    }
  }
}

}  // namespace segment_starts_kernels

void launch_segment_starts(const BackwardParams& p, cudaStream_t stream) {
  const std::int64_t size = p.keys.channels * state_columns(p.values.channels);
  const std::int64_t blocks = 2 * p.sequence_count * p.heads * ceil_div(size, kThreads * kElements);
  with_value<false, true>(p.values.gates.exist, [&]<bool kOfValues>() {
    launch<find_segment_starts<kOfValues>>({.grid = grid_of(blocks), .block = kThreads}, stream, p);
  });
}

}  // namespace attune::cuda::chunk_mma::backward
