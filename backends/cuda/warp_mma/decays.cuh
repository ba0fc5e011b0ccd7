// The decays of a chunk: of a side's channels, or one that all of them share. Logs are in base 2.
//
// Tokens are taken in pieces over which no sum of log decays leaves a range in which its exponential
// and that of its negative can be factors of operands; nearly always a chunk is one. What a piece
// begins with is scaled by its first token's decay, so that a piece of one token is one whatever its
// gates are.
#pragma once

#include <utility>

#include "cuda/chunks/segment_walk.cuh"
#include "cuda/walks/decay.cuh"
#include "cuda/warp_mma/rows.cuh"

namespace attune::cuda::warp_mma {

/// Of sums over a piece: less in f32, as an ulp of a sum is an error of its exponential.
template <class T>
inline constexpr float kMostLog = sizeof(T) == sizeof(float) ? 24.0F : 44.0F;

inline constexpr float kLn2 = 0.6931471805599453F;

/// What states are multiplied by; in f32 as exact as DecayFactor.
template <class T>
struct Factor {
  float value;
  __device__ explicit Factor(float log2) : value(exp2_approx(log2)) {}
  __device__ __forceinline__ float times(float x) const { return x * value; }
  __device__ __forceinline__ Factor of_lane(int lane) const {
    Factor other = *this;
    other.value = __shfl_sync(kFullWarp, value, lane);
    return other;
  }
};
template <>
struct Factor<float> {
  DecayFactor value;
  __device__ explicit Factor(float log2) : value(decay_factor(log2 * kLn2)) {}
  __device__ __forceinline__ float times(float x) const {
    return fmaf(x, value.high, x * value.low);
  }
  __device__ __forceinline__ Factor of_lane(int lane) const {
    Factor other = *this;
    other.value.high = __shfl_sync(kFullWarp, value.high, lane);
    other.value.low = __shfl_sync(kFullWarp, value.low, lane);
    return other;
  }
};

/// Of several channels, or the one that all share.
template <class T, int kCount>
struct Factors {
  Factor<T> of[kCount];
};
/// log2(n): of the n-th.
template <class T, int kCount, class Log2>
__device__ __forceinline__ Factors<T, kCount> factors_of(Log2&& log2) {
  return [&]<int... n>(std::integer_sequence<int, n...>) {
    return Factors<T, kCount>{{Factor<T>(log2(n))...}};
  }
  (std::make_integer_sequence<int, kCount>{});
}

/// Tokens [first, end) of a chunk.
struct Piece {
  int first = 0;
  int end = kChunk;
  __device__ __forceinline__ bool has(int token) const { return token >= first && token < end; }
};

/// Of one side. kCount: of a lane's channels, 1 where all channels share them, 0 where none decays.
template <int kCount>
class SideDecays {
 public:
  static constexpr int kLogs = kCount;

  /// Sets the log decays of the lane's two tokens, none below kReset; keeps a NaN. log(i, n): natural.
  template <class Log>
  __device__ __forceinline__ void set(Log&& log) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int n = 0; n < kLogs; ++n) {
        logs_[i][n] = log(i, n) * kLog2E;
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(logs_[i][n]) : "f"(kReset));
      }
    }
  }

  /// Sums from behind the piece's first token.
  __device__ __forceinline__ void sum_behind(int first, const Lane& lane) {
#pragma unroll
    for (int n = 0; n < kLogs; ++n) {
      const float own = lane.token(0) > first ? logs_[0][n] : 0.0F;
      float sum = own + (lane.token(1) > first ? logs_[1][n] : 0.0F);
#pragma unroll
      for (int rows = 1; rows < 8; rows *= 2) {
        const float before = __shfl_up_sync(kFullWarp, sum, 4 * rows);
        if (lane.row >= rows) sum += before;
      }
      const float before = __shfl_up_sync(kFullWarp, sum, 4);
      sums_[0][n] = lane.row > 0 ? before + own : own;
      sums_[1][n] = sum;
    }
  }
  /// Whether those of the lane's token i are in range.
  __device__ __forceinline__ bool are_within(int i, float most) const {
    bool within = true;
#pragma unroll
    for (int n = 0; n < kLogs; ++n) within = within && fabsf(sums_[i][n]) <= most;
    return within;
  }
  /// Of the lane's token i and channel n.
  __device__ __forceinline__ float sum(int i, int n) const { return sums_[i][kLogs == 1 ? 0 : n]; }

  /// What the state is due to be decayed by before a piece: over what came before it, and by its first
  /// token.
  __device__ __forceinline__ float due(int n, int first, const Lane& lane) const {
    return due_[n] + of_token(logs_, n, first, lane);
  }
  __device__ __forceinline__ float due(int n) const { return due_[n]; }
  /// What the rest of a piece decays by is due behind it.
  __device__ __forceinline__ void end(const Piece& piece, const Lane& lane) {
#pragma unroll
    for (int n = 0; n < kLogs; ++n) due_[n] = of_token(sums_, n, piece.end - 1, lane);
  }
  __device__ __forceinline__ void clear_due() {
#pragma unroll
    for (int n = 0; n < kLogs; ++n) due_[n] = 0.0F;
  }

 private:
  static constexpr int kStored = kLogs > 0 ? kLogs : 1;
  using OfTokens = float[2][kStored];

  __device__ __forceinline__ static float of_token(const OfTokens& logs, int n, int token,
                                                   const Lane& lane) {
    const float own = token % 2 == 0 ? logs[0][n] : logs[1][n];
    return __shfl_sync(kFullWarp, own, token / 2 * 4 + lane.quarter);
  }

  OfTokens logs_;
  OfTokens sums_;
  float due_[kStored] = {};
};

}  // namespace attune::cuda::warp_mma
