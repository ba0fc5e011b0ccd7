// Sums of single tokens' channels, of which warps, and the blocks of a cluster, have a share each.
#pragma once

#include "cuda/tiles/cluster.cuh"
#include "cuda/window/tokens.cuh"

namespace attune::cuda::window {

/// Sums x, y and m of single_token.cuh before what they have as a factor.
struct ChannelSums {
  float of[3] = {};
};

/// In shared memory: [shares][3][channels].
struct ShareSums {
  float* memory;
  int channels;
  int shares;

  __device__ float& at(int share, int of, int channel) const {
    return memory[(share * 3 + of) * channels + channel];
  }
  __device__ float* end() const { return memory + 3 * shares * channels; }
  __device__ ChannelSums sum(int channel) const {
    ChannelSums sum;
#pragma unroll 4
    for (int share = 0; share < shares; ++share) {
#pragma unroll
      for (int of = 0; of < 3; ++of) sum.of[of] += at(share, of, channel);
    }
    return sum;
  }
};

/// What the blocks of a cluster tell one another: each gets all blocks' sums of its own columns, and
/// the first one all blocks' gradients of shared gates. A block by itself keeps what it has.
class ClusterSums {
 public:
  /// `memory`: shared, a multiple of 16 bytes.
  __device__ ClusterSums(const TokenShares& shares, int rank, float* memory)
      : barriers_(reinterpret_cast<SharedBarrier*>(memory)),
        gates_(memory + TokenShares::kBarrierFloats),
        columns_{gates_ + kMostBlocksOfToken, shares.own_columns, shares.blocks},
        rank_(rank) {}

  __device__ float* end() const { return columns_.shares > 1 ? columns_.end() : columns_.memory; }

  /// Makes barriers, for the bytes of so many columns, and tells the others.
  __device__ void open(int own_columns) const {
    if constexpr (kHasClusters) {
      if (columns_.shares == 1) return;
      if (threadIdx.x == 0) {
        constexpr std::uint32_t kBytes = sizeof(float);
        const auto shares = static_cast<std::uint32_t>(columns_.shares);
        barrier_init(&barriers_[0], 1);
        barrier_init(&barriers_[1], 1);
        barrier_init_fence();
        barrier_arrive_expecting(&barriers_[0], shares * 3 * own_columns * kBytes);
        barrier_arrive_expecting(&barriers_[1], shares * kBytes);
      }
      cluster_arrive_relaxed();
    }
  }
  /// Sums of the block's own columns by block, for those of all columns by warp: sends each column's
  /// to the block that has it, and waits for the others.
  __device__ ShareSums exchange(const ShareSums& of_warps) const {
    if constexpr (kHasClusters) {
      if (columns_.shares == 1) return of_warps;
      cluster_wait();  // all barriers are there
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < of_warps.channels; i += threads()) {
        const ChannelSums sums = of_warps.sum(i);
        const int owner = i / columns_.channels;
        const int column = i - owner * columns_.channels;
        const std::uint32_t barrier = address_in_block(&barriers_[0], owner);
#pragma unroll
        for (int of = 0; of < 3; ++of) {
          store_async(address_in_block(&columns_.at(rank_, of, column), owner), sums.of[of],
                      barrier);
        }
      }
      barrier_wait_of_cluster(&barriers_[0]);
      return columns_;
    }
    return of_warps;
  }
  /// One thread of each block: the sum of all blocks' numbers, which the first one gets.
  __device__ float sum_in_first(float of_block) const {
    if constexpr (kHasClusters) {
      if (columns_.shares == 1) return of_block;
      store_async(address_in_block(&gates_[rank_], 0), of_block,
                  address_in_block(&barriers_[1], 0));
      if (rank_ != 0) return 0.0F;
      barrier_wait_of_cluster(&barriers_[1]);
      float sum = 0.0F;
      for (int block = 0; block < columns_.shares; ++block) sum += gates_[block];
      return sum;
    }
    return of_block;
  }

 private:
  SharedBarrier* barriers_;
  float* gates_;  // by block
  ShareSums columns_;
  int rank_;
};

}  // namespace attune::cuda::window
