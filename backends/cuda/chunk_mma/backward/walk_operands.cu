// What the walks of states take for q and k where key channels have gates, and for do and v where
// value channels have: in each chunk
//
//   q_i exp(G_i)    k_j exp(G_last - G_j)
//
// with G the sum of a channel's log decays from the chunk's start; and the decays exp(G_last) of the
// chunks. No exponent is positive where decays are decays, whatever their strength.
#include "cuda/chunk_mma/backward/channel_scan.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_mma::backward {
inline namespace walk_operands_kernels {  // nvcc names an anonymous one anew in every build

/// A warp for 16 of a chunk's tokens of 32 channels.
using Thread = ChannelThread<4 * kWarpSize, kWarpSize>;
constexpr int kThreads = Thread::kGroups * Thread::kChannels;
/// Of a multiprocessor: a third of a block's time is loads.
template <class Rows>
constexpr int kBlocks = 4;
template <>
constexpr int kBlocks<NearRows> = 5;

enum OperandTensor { kGates, kReads, kWrites, kReadOperands, kWriteOperands, kOperandTensors };

/// What a block works on.
struct OperandWork {
  Chunk chunk;
  bool exists = false;
  int first_channel = 0;
  HeadRows rows[kOperandTensors];  // from the first channel on
};

/// Done by the first warp, a lane a tensor: its divisions take longer than what a token does.
__device__ __forceinline__ void find_work(const BackwardParams& p, const ChannelSide& side,
                                          OperandWork& work) {
  const std::int64_t parts = ceil_div(side.channels, Thread::kChannels);
  const std::int64_t number = quotient(block_number(), parts);
  const int first_channel = static_cast<int>(block_number() - number * parts) * Thread::kChannels;
  Chunk chunk;
  const bool exists = find_chunk(p, number, chunk);
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane == 0) {
    work.chunk = chunk;
    work.exists = exists;
    work.first_channel = first_channel;
  }
  if (!exists || lane >= kOperandTensors) return;
  const TokenRows& rows = lane == kGates          ? side.gates
                          : lane == kReads        ? side.reads
                          : lane == kWrites       ? side.writes
                          : lane == kReadOperands ? side.walked_reads
                                                  : side.walked_writes;
  work.rows[lane] = HeadRows::of(p, rows, chunk.place, chunk.head, first_channel);
}

/// One channel of the thread's tokens.
class ChannelRows {
 public:
  /// Begins to load them; in the place of tokens that do not exist, the last one.
  template <class Rows>
  __device__ __forceinline__ ChannelRows(const Rows& rows, int last, const Thread& own) {
#pragma unroll
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      loaded_[i] = __ldg(rows.at(min(own.token(i), last)));
    }
  }
  __device__ float operator[](int i) const { return loaded_[i]; }

 private:
  float loaded_[Thread::kTokensOfGroup];
};

__device__ __forceinline__ void store(const float* to, float x) {
  __builtin_assume(__isGlobal(to));
  *const_cast<float*>(to) = x;
}

/// grid: blocks of channels x heads x chunks. Rows: HeadRows, or NearRows.
template <class Rows>
__global__ __launch_bounds__(kThreads, kBlocks<Rows>) void make_walk_operands(
    const __grid_constant__ BackwardParams p, const __grid_constant__ ChannelSide side) {
  const Thread own;
  __shared__ Log2Sum sums[Thread::kGroups][Thread::kChannels];
  __shared__ OperandWork work;
  if (threadIdx.x < kWarpSize) find_work(p, side, work);
  __syncthreads();  // the block's work is known
  if (!work.exists) return;
  const int channel = work.first_channel + own.channel();
  const bool exists = channel < side.channels;
  const int last = work.chunk.place.rows - 1;
  const auto rows_of = [&](OperandTensor tensor, int from) {
    return Rows(work.rows[tensor].from_channel(from));
  };
  const int loaded = exists ? own.channel() : 0;
  ChannelGates<Thread> gates(p, side, work.chunk, exists, rows_of(kGates, loaded));
  const ChannelRows reads(rows_of(kReads, loaded), last, own);
  const ChannelRows writes(rows_of(kWrites, loaded), last, own);
  Log2Sum upto[Thread::kTokensOfGroup];  // from the group's start, with token i
  Log2Sum sum;
  gates.for_each_sum(sum, [&](int i) { upto[i] = sum; });
  sums[own.group()][own.channel()] = sum;
  __syncthreads();  // the sums of all groups are there

  Log2Sum before;  // the group
  Log2Sum all;
#pragma unroll
  for (int group = 0; group < Thread::kGroups; ++group) {
    const Log2Sum& other = sums[group][own.channel()];
    if (group < own.group()) before.add(other);
    all.add(other);
  }
  if (own.group() == 0 && exists) {
    const DecayFactor total = decay_factor(all.value() / kLog2E);
    const std::int64_t at = work.chunk.number * p.heads + work.chunk.head;
    side.chunk_totals[at * side.channels + channel] = {total.high, total.low};
  }
  if (channel >= operand_channels(side.channels)) return;
  all.subtract(before);
  const Rows read_operands = rows_of(kReadOperands, own.channel());
  const Rows write_operands = rows_of(kWriteOperands, own.channel());
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    const int token = own.token(i);
    if (token > last) return;
    Log2Sum behind = all;
    behind.subtract(upto[i]);
    upto[i].add(before);
    store(read_operands.at(token), exists ? reads[i] * upto[i].exp2_of_any() : 0.0F);
    store(write_operands.at(token), exists ? writes[i] * behind.exp2_of_any() : 0.0F);
  }
}

}  // namespace walk_operands_kernels

void launch_walk_operands(const BackwardParams& p, const ChannelSide& side, cudaStream_t stream) {
  const std::int64_t parts = ceil_div(side.channels, Thread::kChannels);
  const LaunchShape shape{.grid = grid_of(parts * p.heads * p.walked_chunks()), .block = kThreads};
  if (p.short_steps) {
    launch<make_walk_operands<NearRows>>(shape, stream, p, side);
  } else {
    launch<make_walk_operands<HeadRows>>(shape, stream, p, side);
  }
}

}  // namespace attune::cuda::chunk_mma::backward
