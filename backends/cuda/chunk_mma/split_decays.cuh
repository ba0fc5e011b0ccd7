// The decays of a chunk for f32: as decays.cuh, with sums as exact as their exponentials need.
#pragma once

#include "cuda/chunks/views.cuh"
#include "decays.cuh"
#include "split_launch.hpp"

namespace attune::cuda {

/// exp(b_i - b_j)
__device__ __forceinline__ float decay_between(const SplitDecays& decays, int i, int j) {
  return exp2_approx((decays.log2[i] - decays.log2[j]) +
                     (decays.log2_rest[i] - decays.log2_rest[j]));
}

/// The first warp's work, one token a lane.
class SplitDecayScan {
 public:
  __device__ SplitDecayScan(const SegmentWalkParams& p, const Walk& walk)
      : gates_(rows_of<const float>(p.g.rows, walk, walk.head, 0)),
        constant_(constant_decay(p.gamma, walk.sequence, walk.head)) {}

  __device__ static bool is_mine() { return threadIdx.x < kWarpSize; }

  /// Begins to load the gates of a chunk.
  __device__ void fetch(const Walk& walk, int chunk) {
    exists_ = token() < walk.rows(chunk);
    if (gates_.first != nullptr && exists_) {
      gate_ = *gates_.at(walk.token(walk.position(chunk) + token()));
    }
  }
  /// The decays of what was fetched. Tokens that do not exist decay nothing.
  __device__ void sum(SplitDecays& to) const {
    constexpr double kLog2OfE = 1.4426950408889634;
    const double log2 = (static_cast<double>(gate_) + static_cast<double>(constant_)) * kLog2OfE;
    double sum = !exists_ ? 0.0 : log2 < kReset ? kReset : log2;  // keeps a NaN
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const double other = __shfl_up_sync(kFullWarp, sum, distance);
      if (token() >= distance) sum += other;
    }
    const double last = __shfl_sync(kFullWarp, sum, kWarpSize - 1);
    const auto rounded = static_cast<float>(sum);
    to.log2[token()] = rounded;
    to.log2_rest[token()] = static_cast<float>(sum - rounded);
    to.from_start[token()] = exp2_approx(rounded);
    to.to_end[token()] = exp2_approx(static_cast<float>(last - sum));
    if (token() == 0) to.whole = exp2_approx(static_cast<float>(last));
  }

 private:
  static_assert(kSplitChunk == kWarpSize);
  __device__ static int token() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  const Rows<const float> gates_;
  const float constant_;
  float gate_ = 0.0F;
  bool exists_ = false;
};

}  // namespace attune::cuda
