// The decays that one thread needs: of two neighbouring channels over eight tokens.
//
// A block of 256 threads takes 64 tokens by 64 channels: each warp eight positions, each lane two
// channels of all of them.
#pragma once

#include "cuda/gla_backward/place.cuh"

namespace attune::cuda::gla_backward {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpSize;
inline constexpr int kRun = kChunkTokens / kBlockWarps;  // positions of a warp
static_assert(kBlockWarps * kRun == kChunkTokens && kWarpSize * 2 == kPanelChannels);

__device__ __forceinline__ float2 times(float2 a, float2 b) { return {a.x * b.x, a.y * b.y}; }

/// Where this thread's elements are.
struct ThreadPlace {
  int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  __device__ int position(int i) const { return warp * kRun + i; }
  /// The first of two, of the panel's.
  __device__ int channel() const { return 2 * lane; }
  /// Keeps what is computed from it, or loaded, from being kept, and later loads behind: else
  /// addresses and values of all of an unrolled loop would fill the registers at once.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(warp), "+r"(lane)::"memory"); }
};

/// Two neighbouring elements of a row; zeros past its end.
template <class T>
__device__ __forceinline__ float2 load_pair(const void* row, std::int64_t offset, bool valid) {
  if (!valid) return {0.0F, 0.0F};
  return unpack<T>(*reinterpret_cast<const std::uint32_t*>(static_cast<const T*>(row) + offset));
}

template <class T>
__device__ __forceinline__ float2 load_gate_pair(const GateView& gate, std::int64_t offset) {
  if (!gate.is_f32) return load_pair<T>(gate.rows.data, offset, true);
  return *reinterpret_cast<const float2*>(static_cast<const float*>(gate.rows.data) + offset);
}

/// The log decays of this thread's tokens (natural); 0 where there is no token or no channel.
template <class T>
__device__ __forceinline__ void load_log_decays(float2 (&logs)[kRun], const GlaBackwardParams& p,
                                                const ChunkPlace& chunk, const ThreadPlace& at,
                                                int channel) {
  const float constant = constant_decay(p.gamma, chunk.sequence, chunk.head);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    logs[i] = {0.0F, 0.0F};
    if (!chunk.has(at.position(i)) || channel >= p.own) continue;
    const std::int64_t token = chunk.token + chunk.row(at.position(i));
    float shared = constant;
    if (p.g.given()) {
      shared += gate_at<T>(p.g, row_offset(p.g.rows, chunk.batch, token, chunk.head));
    }
    const float2 own = load_gate_pair<T>(
        p.channel_gate, row_offset(p.channel_gate.rows, chunk.batch, token, chunk.head) + channel);
    logs[i] = {shared + own.x, shared + own.y};
  }
}

/// The decays over this warp's eight positions, and over the other warps'.
struct RunDecays {
  float2 since[kRun];  // from before the eight to each, that one's included
  float2 until[kRun];  // from each to after the eight, that one's excluded

  __device__ __forceinline__ explicit RunDecays(const float2 (&logs)[kRun]) {
    float2 product{1.0F, 1.0F};
    float2 decay[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      decay[i] = {exp2_approx(logs[i].x * kLog2E), exp2_approx(logs[i].y * kLog2E)};
      product = times(product, decay[i]);
      since[i] = product;
    }
    product = {1.0F, 1.0F};
#pragma unroll
    for (int i = kRun - 1; i >= 0; --i) {
      until[i] = product;
      product = times(product, decay[i]);
    }
  }
  __device__ __forceinline__ float2 over() const { return since[kRun - 1]; }
};

/// Products of the warps' decays over [first, last).
__device__ __forceinline__ float2 over_warps(const float2 (&decays)[kBlockWarps][kWarpSize],
                                             int first, int last, int lane) {
  float2 product{1.0F, 1.0F};
  for (int warp = first; warp < last; ++warp) product = times(product, decays[warp][lane]);
  return product;
}

}  // namespace attune::cuda::gla_backward
