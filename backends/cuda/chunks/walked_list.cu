#include "cuda/chunks/views.cuh"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace walked_list_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;

__device__ __forceinline__ void put(const WalkedList& list, std::int64_t at, int number) {
  list.numbers[at] = number;
}
__device__ __forceinline__ void put(const SequenceParts& parts, std::int64_t at, int number) {
  parts.places[at] = {.sequence = max(number, 0), .segment = 0, .segments = number < 0 ? 0 : 1};
}

/// One block, a thread a sequence at a time.
template <class List>
__global__ __launch_bounds__(kThreads) void list_walked(
    const __grid_constant__ SequencesView sequences, std::int64_t count,
    const __grid_constant__ List list, std::int64_t most, std::int64_t chunk_tokens) {
  __shared__ int of_warps[kWarps];
  take_over_from_previous_launch();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  std::int64_t before = 0;  // numbers of the sequences that were looked at
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const std::int64_t own = first + thread;
    int numbers = 0;  // of the thread's sequence, from `number` on
    std::int64_t number = own;
    if (own < count) {
      const SequenceSpan span = span_of(sequences, own);
      const bool is_walked = span.length > sequences.most_left_out;
      numbers = is_walked ? 1 : 0;
      if (chunk_tokens > 0 && is_walked) {
        number = first_part(sequences, own, span, chunk_tokens);
        numbers = static_cast<int>(ceil_div(span.length, chunk_tokens));
      }
    }
    int place = numbers;  // behind the thread's, among its warp's
#pragma unroll
    for (int apart = 1; apart < kWarpSize; apart *= 2) {
      const int others = __shfl_up_sync(kFullWarp, place, apart);
      if (lane >= apart) place += others;
    }
    if (lane == kWarpSize - 1) of_warps[warp] = place;
    __syncthreads();  // all warps' counts are there
    std::int64_t at = before + place - numbers;
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) at += of_warps[i];
      before += of_warps[i];
    }
    for (int i = 0; i < numbers && at + i < most; ++i) {
      put(list, at + i, static_cast<int>(number + i));
    }
    __syncthreads();  // all have read the counts
  }
  for (std::int64_t place = before + thread; place < most; place += kThreads) put(list, place, -1);
}

template <class List>
void launch_list(const SequencesView& sequences, std::int64_t count, const List& list,
                 std::int64_t most, std::int64_t chunk_tokens, cudaStream_t stream) {
  launch<list_walked<List>>({.grid = dim3(1), .block = dim3(kThreads), .overlaps_previous = true},
                            stream, sequences, count, list, most, chunk_tokens);
}

}  // namespace walked_list_kernels

void launch_walked_list(const SequencesView& sequences, std::int64_t count, const WalkedList& list,
                        std::int64_t chunk_tokens, cudaStream_t stream) {
  if (list.numbers == nullptr) return;
  launch_list(sequences, count, list, list.most, chunk_tokens, stream);
}

void launch_walked_places(const SequencesView& sequences, std::int64_t count,
                          const SequenceParts& parts, cudaStream_t stream) {
  launch_list(sequences, count, parts, parts.count, 0, stream);
}

}  // namespace attune::cuda
