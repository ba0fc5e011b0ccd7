// The decays of a chunk, from its gates.
//
// Sums of log decays are taken in the order of the walk and in base 2.
#pragma once

#include "cuda/chunk_mma/chunk_mma.hpp"
#include "cuda/chunks/segment_walk.cuh"

namespace attune::cuda::chunk_mma {

/// Done by the first warp of a block. Gates are fetched a chunk before they are summed, which hides
/// the latency of loading them.
template <class T, int kChunk>
class DecayScan {
 public:
  __device__ DecayScan(const SegmentWalkParams& p, const Walk& walk)
      : gate_(p.g),
        first_(row_offset(p.g.rows, walk.span.batch, walk.first_token(), walk.head)),
        constant_(constant_decay(p.gamma, walk.sequence, walk.head)) {}

  __device__ static bool is_mine() { return threadIdx.x < kWarpSize; }

  /// Begins to load the gates of a chunk.
  __device__ void fetch(const Walk& walk, int chunk) {
    rows_ = walk.rows(chunk);
    if (gate_.rows.data == nullptr) return;
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      if (token(e) >= rows_) continue;
      const std::int64_t at =
          first_ + walk.token(walk.position(chunk) + token(e)) * gate_.rows.token;
      bits_[e] = gate_.is_f32 ? static_cast<const std::uint32_t*>(gate_.rows.data)[at]
                              : static_cast<const std::uint16_t*>(gate_.rows.data)[at];
    }
  }

  /// The decays of what was fetched. Tokens that do not exist decay nothing.
  __device__ void sum(ChunkDecays<kChunk>& to) const {
    float sums[kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const float loaded = gate_.is_f32 ? __uint_as_float(bits_[e]) : unpack<T>(bits_[e]).x;
      const float gate = (loaded + constant_) * kLog2E;
      const float own = token(e) >= rows_ ? 0.0F : gate < kReset ? kReset : gate;  // keeps a NaN
      sums[e] = e == 0 ? own : sums[e - 1] + own;
    }
    const float before = exclusive_sum(sums[kPerLane - 1]);
    const float last = __shfl_sync(kFullWarp, before + sums[kPerLane - 1], kWarpSize - 1);
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      const float sum = before + sums[e];
      to.log2[token(e)] = sum;
      to.from_start[token(e)] = exp2_approx(sum);
      to.to_end[token(e)] = exp2_approx(last - sum);
    }
    if (token(0) == 0) to.total = exp2_approx(last);
  }

 private:
  static constexpr int kPerLane = kChunk / kWarpSize;

  __device__ static int token(int e) {
    return static_cast<int>(threadIdx.x) % kWarpSize * kPerLane + e;
  }
  __device__ static float exclusive_sum(float own) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    float inclusive = own;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const float other = __shfl_up_sync(kFullWarp, inclusive, distance);
      if (lane >= distance) inclusive += other;
    }
    const float before = __shfl_up_sync(kFullWarp, inclusive, 1);
    return lane == 0 ? 0.0F : before;
  }

  const GateView& gate_;
  const std::int64_t first_;
  const float constant_;
  int rows_ = 0;                       // of the fetched chunk and after it
  std::uint32_t bits_[kPerLane] = {};  // as they came: reading them would be waiting for them
};

// For f32, with sums as exact as their exponentials need.

/// exp(b_i - b_j)
__device__ __forceinline__ float decay_between(const SplitDecays& decays, int i, int j) {
  return exp2_approx((decays.log2[i] - decays.log2[j]) +
                     (decays.log2_rest[i] - decays.log2_rest[j]));
}

/// Done by one warp, one token a lane.
class SplitDecayScan {
 public:
  using Decays = SplitDecays;

  __device__ SplitDecayScan(const SplitWalkParams& p, const Walk& walk)
      : gates_(rows_of<const float>(p.g.rows, walk, walk.head, 0)),
        constant_(constant_decay(p.gamma, walk.sequence, walk.head)) {}

  /// Of so many threads that may do it: the last warp, which makes no scores.
  __device__ static bool is_done_by(int thread, int threads) {
    return thread >= threads - kWarpSize;
  }

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
    if (token() == 0) to.total = exp2_approx(static_cast<float>(last));
  }

 private:
  static_assert(kSplitChunk == kWarpSize);
  __device__ static int token() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  const Rows<const float> gates_;
  const float constant_;
  float gate_ = 0.0F;
  bool exists_ = false;
};

}  // namespace attune::cuda::chunk_mma
