// The decays of a chunk's key channels, summed up from the chunk's middle.
//
// With x_i = (G_i - G_mid) / ln 2, where G_mid is G before token 32,
//
//   q'_i = q_i 2^(x_i)    k'_j = k_j 2^(-x_j)    P_ij = scale q'_i k'_j
//
// and S' = exp(G_mid) S and D' = exp(G_last - G_mid) D take the place of S and D. A chunk with an
// |x| over kMostLog2 is walked token by token (strong_chunk.cuh).
#pragma once

#include "cuda/chunk_mma/backward/chunk_block.cuh"
#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/chunk_mma/log2_sum.cuh"

namespace attune::cuda::chunk_mma::backward {

/// How the threads of a block divide the key channels and tokens of a chunk among them.
template <class Own, int kKeyPanels>
struct ChannelThreads {
  static constexpr int kChannels = kKeyPanels * kPanelChannels;
  static constexpr int kGroups = Own::kThreads / kChannels;
  static constexpr int kTokensOfGroup = kTokens / kGroups;

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kChannels; }
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kChannels; }
  __device__ static int token(int i) { return group() * kTokensOfGroup + i; }
};

/// A number for every token and key channel. Eight channels of four rows that follow each other lie
/// in different banks.
template <int kKeyPanels>
class ChannelTile {
 public:
  __device__ float& at(int row, int channel) { return values_[row][place(row, channel)]; }
  __device__ const float& at(int row, int channel) const {
    return values_[row][place(row, channel)];
  }

 private:
  __device__ static int place(int row, int channel) { return channel ^ (row % 4 * 8); }
  float values_[kTokens][kKeyPanels * kPanelChannels];
};

/// What a block has in shared memory behind its panels.
template <int kKeyPanels>
struct alignas(16) ChannelMemory {
  ChannelTile<kKeyPanels> logs;                  // x, or of a strong chunk the decay of each token
  float to_middle[kKeyPanels * kPanelChannels];  // exp(G_mid)
  float products[kKeyPanels * kPanelChannels];   // exp(G_last) <S, D>
  float diagonal[kTokens];                       // R_ii

  /// exp(G_last - G_mid)
  __device__ float to_end(int channel) const { return exp2_approx(logs.at(kTokens - 1, channel)); }
};

/// The gates of a thread's tokens of its key channel.
template <class Own, int kKeyPanels>
class ChannelGates {
 public:
  using Threads = ChannelThreads<Own, kKeyPanels>;

  /// Begins to load them.
  __device__ __forceinline__ ChannelGates(const BackwardParams& p, const Chunk& chunk)
      : p_(p), chunk_(chunk) {
    const int channel = Threads::channel() < p.key_channels ? Threads::channel() : 0;
    const PlacedRows gates(p, {.view = p.gk.rows}, chunk.place, chunk.head, channel);
#pragma unroll
    for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
      logs_[i] = __ldg(gates.first + min(Threads::token(i), chunk.place.rows - 1) * gates.step);
    }
  }
  /// Waits for them, and adds what all channels share. Tokens that do not exist decay nothing.
  __device__ __forceinline__ Log2Sum sum() {
    const int last = chunk_.place.rows - 1;
    const float gamma = constant_decay(p_.gamma, chunk_.place.sequence, chunk_.head);
    if (p_.g.given()) {
      const PlacedRows shared(p_, {.view = p_.g.rows}, chunk_.place, chunk_.head, 0);
#pragma unroll
      for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
        logs_[i] += __ldg(shared.first + min(Threads::token(i), last) * shared.step);
      }
    }
    const int exist = Threads::channel() < p_.key_channels ? chunk_.place.rows : 0;
    Log2Sum sum;
#pragma unroll
    for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
      logs_[i] = Threads::token(i) < exist ? logs_[i] + gamma : 0.0F;
      sum.add(logs_[i]);
    }
    return sum;
  }
  /// Of token i of the thread's, after sum().
  __device__ float log(int i) const { return logs_[i]; }

 private:
  const BackwardParams& p_;
  const Chunk& chunk_;
  float logs_[Threads::kTokensOfGroup];
};

/// Makes logs and to_middle of gates; returns whether the chunk is strong. `sums` is scratch: one a
/// thread.
template <class Own, int kKeyPanels>
__device__ __forceinline__ bool scan_channels(ChannelMemory<kKeyPanels>& to, Log2Sum* sums,
                                              ChannelGates<Own, kKeyPanels>& gates) {
  using Threads = ChannelThreads<Own, kKeyPanels>;
  sums[threadIdx.x] = gates.sum();
  __syncthreads();  // the sums of all groups are there
  Log2Sum sum;      // from the middle to the group
  Log2Sum middle;   // from the start
#pragma unroll
  for (int group = 0; group < Threads::kGroups; ++group) {
    const Log2Sum other = sums[group * Threads::kChannels + Threads::channel()];
    const bool is_early = group < Threads::kGroups / 2;
    if (is_early) middle.add(other, 1.0F);
    if (!is_early && group < Threads::group()) sum.add(other, 1.0F);
    if (is_early && group >= Threads::group()) sum.add(other, -1.0F);
  }
  bool strong = false;
#pragma unroll
  for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
    sum.add(gates.log(i));
    to.logs.at(Threads::token(i), Threads::channel()) = sum.value();
    strong = strong || sum.exceeds(kMostLog2);
  }
  if (Threads::group() == 0) {
    to.to_middle[Threads::channel()] = middle.exp2_of_any();
    to.products[Threads::channel()] = 0.0F;
  }
  if (__syncthreads_or(strong ? 1 : 0) == 0) return false;
#pragma unroll
  for (int i = 0; i < Threads::kTokensOfGroup; ++i) {
    to.logs.at(Threads::token(i), Threads::channel()) = decay_factor(gates.log(i)).high;
  }
  __syncthreads();  // each token's decays are there
  return true;
}

}  // namespace attune::cuda::chunk_mma::backward
