// How the two roles of a block tell each other where they are.
#pragma once

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::channels {

/// What one role waits for and the other tells, for every chunk. The role that waits is then all
/// there, too.
enum class Signal : std::uint8_t {
  kMade,  // operands are there
  kRead,  // operands of two chunks before were read, and copies are there
  kDone,  // once, as of chunk 0: what the operand warps leave is there
};

/// Barriers for even chunks and for odd ones: named ones, or, as racecheck does not follow
/// bar.arrive, in shared memory.
template <class Shape>
class RoleSignals {
 public:
  /// Called by all threads of the block, first.
  __device__ explicit RoleSignals(Shared<Shape>& shared) {
    if constexpr (kSharedRoleBarriers) {
      barriers_ = shared.role_barriers[0].of;
      if (threadIdx.x == 0) {
        for (int i = 0; i < kMostSubsegments * RoleBarriers::kCount; ++i)
          barrier_init(&barriers_[i], Shape::kBlockThreads);
      }
      __syncthreads();
    }
  }

  /// Those of another of the block's walks: the phases of barriers in shared memory run on.
  __device__ RoleSignals of_subsegment(int subsegment) const {
    RoleSignals signals = *this;
    if constexpr (kSharedRoleBarriers) signals.barriers_ += subsegment * RoleBarriers::kCount;
    return signals;
  }

  template <Signal kSignal>
  __device__ __forceinline__ void wait(int chunk) const {
    if constexpr (kSharedRoleBarriers) {
      barrier_arrive(barrier<kSignal>(chunk));
      barrier_wait(barrier<kSignal>(chunk), static_cast<std::uint32_t>(chunk / 2 % 2));
    } else if (chunk % 2 == 0) {
      named_barrier_sync<kId<kSignal>>(Shape::kBlockThreads);
    } else {
      named_barrier_sync<kId<kSignal> + 1>(Shape::kBlockThreads);
    }
  }
  template <Signal kSignal>
  __device__ __forceinline__ void tell(int chunk) const {
    if constexpr (kSharedRoleBarriers) {
      barrier_arrive(barrier<kSignal>(chunk));
    } else if (chunk % 2 == 0) {
      named_barrier_arrive<kId<kSignal>>(Shape::kBlockThreads);
    } else {
      named_barrier_arrive<kId<kSignal> + 1>(Shape::kBlockThreads);
    }
  }

 private:
  template <Signal kSignal>
  static constexpr int kId = 2 + 2 * static_cast<int>(kSignal);  // and the next

  template <Signal kSignal>
  __device__ __forceinline__ SharedBarrier* barrier(int chunk) const {
    return &barriers_[2 * static_cast<int>(kSignal) + chunk % 2];
  }

  SharedBarrier* barriers_ = nullptr;
};

}  // namespace attune::cuda::channels
