// The decays of a chunk's key channels or value channels, summed up from the chunk's middle. For keys,
//
// With x_i = (G_i - G_mid) / ln 2, where G_mid is G before token 32,
//
//   q'_i = q_i 2^(x_i)    k'_j = k_j 2^(-x_j)    P_ij = scale q'_i k'_j
//
// and S' = exp(G_mid) S and D' = exp(G_last - G_mid) D take the place of S and D; for values do is in
// the place of q, and v of k. A chunk with an |x| over kMostLog2 is walked token by token
// (strong_chunk.cuh).
#pragma once

#include "cuda/chunk_mma/backward/chunk_block.cuh"
#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/chunk_mma/log2_sum.cuh"

namespace attune::cuda::chunk_mma::backward {

/// How the threads of a block divide some channels of a side and the tokens of a chunk among them.
template <int kThreads, int kBlockChannels>
class ChannelThread {
 public:
  static constexpr int kChannels = kBlockChannels;
  static constexpr int kGroups = kThreads / kChannels;
  static constexpr int kTokensOfGroup = kTokens / kGroups;

  /// The same thread, but not to the compiler: addresses that a late phase has in common with an
  /// early one would wait in registers.
  __device__ static ChannelThread again() {
    ChannelThread own;
    asm volatile("" : "+r"(own.thread_));
    return own;
  }
  __device__ int channel() const { return thread_ % kChannels; }
  __device__ int group() const { return thread_ / kChannels; }
  __device__ int token(int i) const { return group() * kTokensOfGroup + i; }

 private:
  int thread_ = static_cast<int>(threadIdx.x);
};
template <class Own, int kPanels>
using PanelThread = ChannelThread<Own::kThreads, kPanels * kPanelChannels>;

/// A number for every token and channel. Eight channels of four rows that follow each other lie
/// in different banks.
template <int kPanels>
class ChannelTile {
 public:
  __device__ float& at(int row, int channel) { return values_[row][place(row, channel)]; }
  __device__ const float& at(int row, int channel) const {
    return values_[row][place(row, channel)];
  }

 private:
  __device__ static int place(int row, int channel) { return channel ^ (row % 4 * 8); }
  float values_[kTokens][kPanels * kPanelChannels];
};

/// What a block has of the decays of one side's channels.
template <int kPanels>
struct alignas(16) ChannelMemory {
  ChannelTile<kPanels> logs;                  // x, or of a strong chunk the decay of each token
  float to_middle[kPanels * kPanelChannels];  // exp(G_mid)
  float products[kPanels * kPanelChannels];   // exp(G_last) <S, D>
  float diagonal[kTokens];                    // R_ii, P_ii

  /// exp(G_last - G_mid)
  __device__ float to_end(int channel) const { return exp2_approx(logs.at(kTokens - 1, channel)); }
};

/// The log decays of a thread's tokens of its channel.
template <class Thread>
class ChannelGates {
 public:
  /// Begins to load them, of channels from the first one on.
  __device__ __forceinline__ ChannelGates(const BackwardParams& p, const ChannelSide& side,
                                          const Chunk& chunk, int first_channel)
      : ChannelGates(p, side, chunk, first_channel + Thread().channel() < side.channels,
                     HeadRows::of(p, side.gates, chunk.place, chunk.head,
                                  min(first_channel + Thread().channel(), side.channels - 1))) {}
  /// The same of rows that have been found: the thread's channel's, or any where there is none.
  template <class Rows>
  __device__ __forceinline__ ChannelGates(const BackwardParams& p, const ChannelSide& side,
                                          const Chunk& chunk, bool exists, const Rows& gates)
      : p_(p), side_(side), chunk_(chunk), exists_(exists) {
    const Thread own;
    const int last = chunk.place.rows - 1;
#pragma unroll
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      logs_[i] = __ldg(gates.at(min(own.token(i), last)));
    }
  }
  /// Waits for them, and adds what all channels share. Tokens that do not exist decay nothing, nor do
  /// channels without gates.
  __device__ __forceinline__ Log2Sum sum() {
    Log2Sum sum;
    for_each_sum(sum, [](int) {});
    return sum;
  }
  /// The same, but calls visit(i) behind token i of the thread's, when `sum` has it, too.
  template <class Visit>
  __device__ __forceinline__ void for_each_sum(Log2Sum& sum, Visit&& visit) {
    const Thread own;
    float gamma = 0.0F;
    if (side_.has_shared_gates) {
      gamma = constant_decay(p_.gamma, chunk_.place.sequence, chunk_.head);
      if (p_.g.given()) add_shared_gate();
    }
    const int exist = exists_ && side_.gates.exist ? chunk_.place.rows : 0;
#pragma unroll
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      logs_[i] = own.token(i) < exist ? logs_[i] + gamma : 0.0F;
      sum.add(logs_[i]);
      visit(i);
    }
  }
  /// Of token i of the thread's, after sum().
  __device__ float log(int i) const { return logs_[i]; }

 private:
  /// A warp's threads have the same tokens: a lane loads what one of them has.
  __device__ __forceinline__ void add_shared_gate() {
    static_assert(Thread::kChannels % kWarpSize == 0 && Thread::kTokensOfGroup <= kWarpSize);
    const Thread own;
    const PlacedRows shared(p_, p_.shared_gates, chunk_.place, chunk_.head, 0);
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int token = own.token(lane % Thread::kTokensOfGroup);
    const float gate = __ldg(shared.first + min(token, chunk_.place.rows - 1) * shared.step);
#pragma unroll
    for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
      logs_[i] += __shfl_sync(kFullWarp, gate, i);
    }
  }

  const BackwardParams& p_;
  const ChannelSide& side_;
  const Chunk& chunk_;
  const bool exists_;  // the channel
  float logs_[Thread::kTokensOfGroup];
};

template <class Own, int kPanels>
using PanelGates = ChannelGates<PanelThread<Own, kPanels>>;

/// Makes logs and to_middle of gates; returns whether the chunk is strong. `sums` is scratch: one a
/// thread.
template <class Own, int kPanels>
__device__ __forceinline__ bool scan_channels(ChannelMemory<kPanels>& to, Log2Sum* sums,
                                              PanelGates<Own, kPanels>& gates) {
  using Thread = PanelThread<Own, kPanels>;
  const Thread own;
  sums[threadIdx.x] = gates.sum();
  __syncthreads();  // the sums of all groups are there
  Log2Sum sum;      // from the middle to the group
  Log2Sum middle;   // from the start
#pragma unroll
  for (int group = 0; group < Thread::kGroups; ++group) {
    const Log2Sum other = sums[group * Thread::kChannels + own.channel()];
    const bool is_early = group < Thread::kGroups / 2;
    if (is_early) middle.add(other);
    if (!is_early && group < own.group()) sum.add(other);
    if (is_early && group >= own.group()) sum.subtract(other);
  }
  bool strong = false;
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    sum.add(gates.log(i));
    to.logs.at(own.token(i), own.channel()) = sum.value();
    strong = strong || sum.exceeds(kMostLog2);
  }
  if (own.group() == 0) {
    to.to_middle[own.channel()] = middle.exp2_of_any();
    to.products[own.channel()] = 0.0F;
  }
  return __syncthreads_or(strong ? 1 : 0) != 0;
}

/// Makes logs the decay of each token, as a strong chunk has it. Gates are loaded again: those of
/// other chunks need not wait in registers until it is known that theirs is none.
template <class Own, int kPanels>
__device__ __forceinline__ void keep_token_decays(ChannelMemory<kPanels>& to,
                                                  const BackwardParams& p, const ChannelSide& side,
                                                  const Chunk& chunk, int first_channel) {
  using Thread = PanelThread<Own, kPanels>;
  const Thread own;
  PanelGates<Own, kPanels> gates(p, side, chunk, first_channel);
  gates.sum();
#pragma unroll
  for (int i = 0; i < Thread::kTokensOfGroup; ++i) {
    to.logs.at(own.token(i), own.channel()) = decay_factor(gates.log(i)).high;
  }
}

}  // namespace attune::cuda::chunk_mma::backward
