// What the walks of states take for q and k where key channels have gates, and for do and v where
// value channels have: in each chunk
//
//   q_i exp(G_i)    k_j exp(G_last - G_j)
//
// with G the sum of a channel's log decays from the chunk's start; and the decays exp(G_last) of the
// chunks. No exponent is positive where decays are decays, whatever their strength.
#include <algorithm>

#include "cuda/chunk_mma/backward/channel_scan.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace walk_operands_kernels {  // nvcc names an anonymous one anew in every build

template <int kPanels>
using OwnOf = Warps<2 * kPanels>;

/// One channel of a chunk's tokens, which a thread has some of.
template <class Thread>
class ChannelRows {
 public:
  /// Begins to load them.
  __device__ ChannelRows(const BackwardParams& p, const TokenRows& rows, const Chunk& chunk,
                         const Thread& own, int first_channel) {
    const PlacedRows from(p, rows, chunk.place, chunk.head,
                          min(first_channel + own.channel(), rows.channels - 1));
#pragma unroll
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      loaded_[i] = __ldg(from.first + min(own.token(i), chunk.place.rows - 1) * from.step);
    }
  }
  __device__ float operator[](int i) const { return loaded_[i]; }

 private:
  float loaded_[Thread::kTokensOfGroup];
};

/// Where the operands of the thread's tokens go, one after the other.
template <class Thread>
struct OperandRows {
  float* next;
  std::int64_t step;
  int exist;  // of the thread's tokens

  __device__ OperandRows(const BackwardParams& p, const TokenRows& rows, const Chunk& chunk,
                         const Thread& own, int first_channel, int first) {
    const int channel = first_channel + own.channel();
    exist = channel < operand_channels(rows.channels) ? chunk.place.rows - own.token(0) : 0;
    const PlacedRows to(p, rows, chunk.place, chunk.head, channel);
    step = to.step;
    next = const_cast<float*>(to.first) + own.token(first) * step;
  }
  /// Stores that of token i, which `next` is of, and goes on to the next one or the one before it.
  __device__ __forceinline__ void store(int i, float x, bool goes_back) {
    if (i < exist) *next = x;
    next += goes_back ? -step : step;
  }
};

/// grid: as many panels x heads x chunks. A multiprocessor's registers are shared out among 16 warps.
template <int kPanels>
__global__ __launch_bounds__(OwnOf<kPanels>::kThreads, 2 / kPanels) void make_walk_operands(
    const __grid_constant__ BackwardParams p, const __grid_constant__ ChannelSide side) {
  using Own = OwnOf<kPanels>;
  using Thread = ChannelThread<Own, kPanels>;
  const Thread own;
  __shared__ Log2Sum sums[Own::kThreads];
  __shared__ Chunk chunk;
  __shared__ bool has_work;
  const std::int64_t parts = ceil_div(side.channels, Thread::kChannels);
  const std::int64_t number = quotient(block_number(), parts);
  const int first_channel = static_cast<int>(block_number() - number * parts) * Thread::kChannels;
  if (threadIdx.x == 0) has_work = find_chunk(p, number, chunk);
  __syncthreads();  // the block's work is known
  if (!has_work) return;
  ChannelGates<Own, kPanels> gates(p, side, chunk, first_channel);
  const ChannelRows<Thread> reads(p, side.reads, chunk, own, first_channel);
  const ChannelRows<Thread> writes(p, side.writes, chunk, own, first_channel);
  sums[threadIdx.x] = gates.sum();
  __syncthreads();  // the sums of all groups are there

  Log2Sum before;  // the group
  Log2Sum behind;
#pragma unroll
  for (int group = 0; group < Thread::kGroups; ++group) {
    const Log2Sum& other = sums[group * Thread::kChannels + own.channel()];
    if (group < own.group()) before.add(other, 1.0F);
    if (group > own.group()) behind.add(other, 1.0F);
  }
  const int channel = first_channel + own.channel();
  const bool exists = channel < side.channels;
  OperandRows<Thread> read_operands(p, side.walked_reads, chunk, own, first_channel, 0);
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    before.add(gates.log(i));
    read_operands.store(i, exists ? reads[i] * before.exp2_of_any() : 0.0F, false);
  }
  constexpr int kLast = Thread::kTokensOfGroup - 1;
  OperandRows<Thread> write_operands(p, side.walked_writes, chunk, own, first_channel, kLast);
#pragma unroll
  for (int i = kLast; i >= 0; --i) {
    write_operands.store(i, exists ? writes[i] * behind.exp2_of_any() : 0.0F, true);
    behind.add(gates.log(i));
  }
  if (own.group() == 0 && exists) {
    const DecayFactor total = decay_factor(behind.value() / kLog2E);
    const std::int64_t at = chunk.number * p.heads + chunk.head;
    side.chunk_totals[at * side.channels + channel] = {total.high, total.low};
  }
}

}  // namespace walk_operands_kernels

void launch_walk_operands(const BackwardParams& p, const ChannelSide& side, cudaStream_t stream) {
  with_value<1, 2>(std::min(panels_of(side.channels), 2), [&]<int kPanels>() {
    const std::int64_t parts = ceil_div(side.channels, kPanels * kPanelChannels);
    launch<make_walk_operands<kPanels>>(
        {.grid = grid_of(parts * p.heads * p.walked_chunks()), .block = OwnOf<kPanels>::kThreads},
        stream, p, side);
  });
}

}  // namespace attune::cuda::chunk_mma::backward
