// Sums of log decays in base 2, by the makers of operands.
//
// With G the sum of a channel's log decays since the sequence's start and R = rint(G) at the
// chunk's start, what is needed is y_i = G_i - R of each token i and the step r = R' - R to the
// next chunk's. A thread keeps G - R of its channels, so no sum grows with the sequence.
#pragma once

#include "cuda/device/exchange.cuh"
#include "launch.hpp"

namespace attune::cuda::gla_mma {

inline constexpr float kReset = -192.0F;  // 2^kReset is 0 in fp32: what -inf is raised to
/// Steps over a chunk up to which 2^-r and what it is multiplied with stay in range.
inline constexpr float kMostStep = 100.0F;

__device__ __forceinline__ int operand_thread() {
  return static_cast<int>(threadIdx.x) % kRoleThreads;
}

__device__ __forceinline__ float log2_decay(float gate) {
  const float log2 = gate * kLog2E;
  return log2 < kReset ? kReset : log2;  // keeps a NaN
}

/// Two neighbouring channels over a part of the chunk's tokens.
template <int kChannels, int kChunk>
class GateSums {
 public:
  static constexpr int kPairs = kChannels / 2;
  static constexpr int kParts = parts_of(kChannels);
  static constexpr int kRun = kChunk / kParts;

  __device__ static bool is_mine() { return operand_thread() < kPairs * kParts; }
  __device__ static int channel() { return operand_thread() % kPairs * 2; }
  __device__ static int row(int i) { return operand_thread() / kPairs * kRun + i; }

  /// Sums this thread's gates; T is their type. `common` is of all channels, null for none.
  template <class T>
  __device__ __forceinline__ void read(const std::byte* gates, int row_bytes, const float* common) {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const std::byte* const at =
          gates + row(i) * row_bytes + channel() * static_cast<int>(sizeof(T));
      float2 gate;
      if constexpr (sizeof(T) == sizeof(float)) {
        gate = *reinterpret_cast<const float2*>(at);
      } else {
        gate = unpack<T>(*reinterpret_cast<const std::uint32_t*>(at));
      }
      const float shared = common == nullptr ? 0.0F : common[row(i)];
      sum.x += log2_decay(gate.x + shared);
      sum.y += log2_decay(gate.y + shared);
      log2_[i] = sum;
    }
  }
  /// Lets the other parts' threads know; returns whether the step may be too large.
  __device__ __forceinline__ bool publish(float (&totals)[kParts][kChannels]) const {
    const float2 total = log2_[kRun - 1];
    *reinterpret_cast<float2*>(&totals[part()][channel()]) = total;
    constexpr float kMostOfPart = kMostStep / kParts;
    return fabsf(total.x) > kMostOfPart || fabsf(total.y) > kMostOfPart;
  }
  /// From this part's start to the reference, when all parts have published.
  __device__ __forceinline__ void anchor(const float (&totals)[kParts][kChannels]) {
    float2 before = rest_;
    float2 all = rest_;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const float2 total = *reinterpret_cast<const float2*>(&totals[i][channel()]);
      if (i < part()) before = {before.x + total.x, before.y + total.y};
      all = {all.x + total.x, all.y + total.y};
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) log2_[i] = {log2_[i].x + before.x, log2_[i].y + before.y};
    step_ = {rintf(all.x), rintf(all.y)};
    rest_ = {all.x - step_.x, all.y - step_.y};
    walked_ = {walked_.x + step_.x, walked_.y + step_.y};
  }

  __device__ int part() const { return operand_thread() / kPairs; }
  __device__ float2 at(int i) const { return log2_[i]; }  // y of row(i)
  __device__ float2 step() const { return step_; }        // r
  __device__ float2 rest() const { return rest_; }        // G - R after the chunk
  /// Of all chunks so far.
  __device__ float2 decay() const {
    return {exp2_approx(walked_.x + rest_.x), exp2_approx(walked_.y + rest_.y)};
  }

 private:
  float2 log2_[kRun];
  float2 step_{0.0F, 0.0F};
  float2 rest_{0.0F, 0.0F};
  float2 walked_{0.0F, 0.0F};
};

}  // namespace attune::cuda::gla_mma
