// The gradient of the log decay, without cancellation over long distances.
//
// The loss depends on the decay of token t through the pairs (write at j, read at i) with
// j < t <= i. Within chunk c, with S the state before it and D the gradient of the state after it:
//
//   dg_t = through + sum_{i >= t} inflow_i + sum_{j < t} outflow_j + sum_{j < t <= i} M_ij
//
//   inflow_i  = scale e^{b_i} q_i . (S do_i)        from before the chunk to i   (the dq walk)
//   outflow_j = e^{bl - b_j} v_j . (D^T k_j)        from j to after the chunk
//   M_ij      = scale e^{b_i - b_j} (q_i . k_j)(do_i . v_j)
//   through   = e^{bl} <S, D>
//
// The last sum is that of M's row sums from t on less that of its column sums, where M is rounded
// the same in both. `through` comes from a recursion over chunks, against time, of G = <state,
// gradient> between chunks: through = G - sum outflow, and the next G = through + sum inflow. Its
// error grows with the chunks, and is G's where `through` may be much smaller: so at anchors it is
// computed from S, which the dq walk leaves there, and D in registers. Anchors are every second
// chunk over which the state decays much, and every so many of the others.
#pragma once

#include "cuda/chunk_wgmma/backward/gates.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::chunk_backward {

/// Decays over a chunk: below the first, `through` is less than the rounding of the other terms in
/// 16-bit products; below the second, a difference of rounded terms is not good enough for it.
inline constexpr float kVanishingDecay = 0x1p-12F;
inline constexpr float kAnchoredDecay = 0.7F;

/// Whether any of what comes before the chunk gets through it.
__device__ __forceinline__ bool lets_through(const ChunkBackwardParams& p, const Walk& walk, int n,
                                             float decay) {
  const bool any_before = walk.order_of(n) > 0 || p.initial_state.data != nullptr;
  return any_before && !(decay < kVanishingDecay);
}
/// Whether the chunk visited n-th is an anchor. Both walks decide alike.
__device__ __forceinline__ bool is_anchor(const ChunkBackwardParams& p, const Walk& walk, int n,
                                          float decay) {
  const int order = walk.order_of(n);
  const int last = decay < kAnchoredDecay ? 1 : kAnchorChunks - 1;  // of as many, a power of two
  const bool due = (order & last) == last || order == walk.chunks - 1;
  return due && lets_through(p, walk, n, decay);
}

/// What the dk, dv walk's warpgroups hand to the warp that makes dg of it; by row of the tile.
struct alignas(16) ChunkFlows {
  static constexpr int kWarps = kWarpgroupSize / kWarpSize;
  float inward[kWarps][kChunkTokens];       // parts of M summed over j
  float outward[kChunkTokens];              // M summed over i
  float outflow[2 * kWarps][kChunkTokens];  // parts
  float anchor[2 * kWarps];                 // parts of <S, D>, at anchors
};

/// The sum over this lane and those after it.
__device__ __forceinline__ float warp_suffix_sum(float x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const float after = __shfl_down_sync(kFullWarp, x, distance);
    if (lane + distance < kWarpSize) x += after;
  }
  return x;
}
__device__ __forceinline__ float warp_total(float x) {
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kFullWarp, x, mask);
  return x;
}

/// One warp's walk over the chunks, against time. Lane l has the tokens that are processed 2 l-th
/// and 2 l + 1-th.
class GateGradientWarp {
 public:
  __device__ GateGradientWarp(const ChunkBackwardParams& p, const Walk& walk)
      : p_(p), walk_(walk) {}

  /// The inflows of the chunk visited n-th, which the dq walk has left.
  __device__ float2 load_inflow(int n) const {
    const int rows = walk_.rows(n);
    const float* const from = p_.inflow + walk_.owner * p_.rows + batch_row(n);
    const int row0 = row_of(0);
    const int row1 = row_of(1);
    return {row0 < rows ? from[row0] : 0.0F, row1 < rows ? from[row1] : 0.0F};
  }

  template <int kStateWarps>
  __device__ void take(const ChunkFlows& flows, const ChunkGates& gates, float2 inflow, int n) {
    const int row0 = row_of(0);
    const int row1 = row_of(1);
    const float out0 = sum_parts<kStateWarps>(flows.outflow, row0);
    const float out1 = sum_parts<kStateWarps>(flows.outflow, row1);
    const float left = warp_inclusive_sum(out0 + out1);
    const float all_left = __shfl_sync(kFullWarp, left, kWarpSize - 1);
    const float through = through_of<kStateWarps>(flows, gates.through, all_left, n);

    const float later0 =
        inflow.x + sum_parts<ChunkFlows::kWarps>(flows.inward, row0) - flows.outward[row0];
    const float later1 =
        inflow.y + sum_parts<ChunkFlows::kWarps>(flows.inward, row1) - flows.outward[row1];
    const float later = warp_suffix_sum(later0 + later1);
    const float before0 = left - out0 - out1;
    const unsigned bit = 1U << (threadIdx.x % kWarpSize);
    write(n, row0, (gates.resets[0] & bit) != 0 ? 0.0F : through + before0 + later);
    write(n, row1,
          (gates.resets[1] & bit) != 0 ? 0.0F : through + (before0 + out0) + (later - later0));
    between_ = through + warp_total(inflow.x + inflow.y);
  }

  /// Leaves the sum of what was written.
  __device__ void finish() const {
    const float total = warp_total(total_);
    if (p_.dgamma_parts != nullptr && threadIdx.x % kWarpSize == 0) {
      p_.dgamma_parts[blockIdx.x] = total;
    }
  }

 private:
  template <int kStateWarps>
  __device__ float through_of(const ChunkFlows& flows, float decay, float all_left, int n) const {
    if (!lets_through(p_, walk_, n, decay)) return 0.0F;
    if (!is_anchor(p_, walk_, n, decay)) return between_ - all_left;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kStateWarps; ++i) sum += flows.anchor[i];
    return decay * sum;
  }
  __device__ int row_of(int which) const {
    return row_at(2 * static_cast<int>(threadIdx.x % kWarpSize) + which, walk_.reverse);
  }
  __device__ std::int64_t batch_row(int n) const {
    return walk_.batch * p_.sequences.tokens + walk_.token(n);
  }
  template <int kParts, int kStored>
  __device__ static float sum_parts(const float (&parts)[kStored][kChunkTokens], int row) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kParts; ++i) sum += parts[i][row];
    return sum;
  }
  __device__ void write(int n, int row, float value) {
    if (row >= walk_.rows(n)) return;
    total_ += value;
    if (p_.dg.data == nullptr) return;
    static_cast<float*>(
        p_.dg.data)[row_offset(p_.dg, walk_.batch, walk_.token(n) + row, walk_.owner)] = value;
  }

  const ChunkBackwardParams& p_;
  const Walk& walk_;
  float between_ = 0.0F;  // G after the next chunk in time
  float total_ = 0.0F;
};

}  // namespace attune::cuda::chunk_backward
