#include "cuda/chunks/long_sequences.hpp"
#include "cuda/chunks/views.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda {
inline namespace long_sequences_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;

/// One block, a thread a sequence at a time.
__global__ __launch_bounds__(kThreads) void find_long_sequences(
    const __grid_constant__ SequencesView sequences, std::int64_t count,
    const __grid_constant__ LongSequences found) {
  __shared__ int of_warps[kWarps];
  take_over_from_previous_launch();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const unsigned earlier = (1U << (thread % kWarpSize)) - 1U;
  std::int64_t before = 0;  // long ones, of the sequences that were looked at
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const std::int64_t own = first + thread;
    const bool is_long = own < count && !found.leaves_out(span_of(sequences, own).length);
    const unsigned those = __ballot_sync(kFullWarp, is_long);
    if (thread % kWarpSize == 0) of_warps[warp] = __popc(those);
    __syncthreads();  // all warps' counts are there
    std::int64_t place = before + __popc(those & earlier);
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) place += of_warps[i];
      before += of_warps[i];
    }
    if (is_long && place < found.most) found.numbers[place] = static_cast<int>(own);
    __syncthreads();  // all have read the counts
  }
  for (std::int64_t place = before + thread; place < found.most; place += kThreads) {
    found.numbers[place] = -1;
  }
}

}  // namespace long_sequences_kernels

void launch_long_sequences(const SequencesView& sequences, std::int64_t count,
                           const LongSequences& found, cudaStream_t stream) {
  launch<find_long_sequences>({.grid = dim3(1), .block = dim3(kThreads), .overlaps_previous = true},
                              stream, sequences, count, found);
}

}  // namespace attune::cuda
