// The gradient of the log decay, without cancellation over long distances.
//
// The loss depends on the decay of token t through the pairs (write at j, read at i) with
// j < t <= i. Within chunk c, with S the state before it and D the gradient of the state after it:
//
//   dg_t = carried + sum_{i >= t} inflow_i + sum_{j < t} outflow_j + sum_{j < t <= i} M_ij
//
//   inflow_i  = scale e^{b_i} q_i . (S do_i)        from before the chunk to i   (the dq walk)
//   outflow_j = e^{bl - b_j} v_j . (D^T k_j)        from j to after the chunk
//   M_ij      = scale e^{b_i - b_j} (q_i . k_j)(do_i . v_j)
//   carried   = e^{bl} <S, D>
//
// The last sum is that of M's row sums from t on less that of its column sums, of the same rounded
// factors in both. `carried` comes from a recursion over chunks, against time, of G = <state,
// gradient> between chunks: carried = G - sum outflow, and the next G = carried + sum inflow. Its
// error grows with the chunks, and is G's where `carried` may be much smaller: so at checkpoints it
// is computed from S, which the dq walk leaves there, and D in registers. Checkpoints are at every
// second chunk over which the state decays much, at every so many of the others, and at the last
// chunk of a segment, where the recursion begins.
#pragma once

#include "cuda/chunk_wgmma/backward/gates.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::chunk_wgmma::backward {

/// Below this decay over a chunk a difference of rounded terms is not good enough for `carried`.
inline constexpr float kCheckpointDecay = 0.7F;

/// Whether any of the state before the chunk survives it.
__device__ __forceinline__ bool state_survives(const BackwardParams& p, const ChunkWalk& walk,
                                               int n, float decay) {
  const bool any_before = walk.order_of(n) > 0 || p.initial_state.data != nullptr;
  return any_before && !(decay < kVanishingDecay);
}
/// Whether the chunk visited n-th is a checkpoint. Both walks decide alike.
__device__ __forceinline__ bool is_checkpoint(const BackwardParams& p, const ChunkWalk& walk, int n,
                                              float decay) {
  const int last =
      decay < kCheckpointDecay ? 1 : kCheckpointChunks - 1;  // of as many, a power of two
  const int order = walk.order_of(n);
  const bool due = (order & last) == last || order == walk.last_order;
  return due && state_survives(p, walk, n, decay);
}

/// What the dk, dv walk's warpgroups hand to the warp that makes dg of it; by row of the tile.
template <int kStateWarps>
struct alignas(16) ChunkFlows {
  static constexpr int kScoreWarps = kWarpgroupSize / kWarpSize;
  float inward[kScoreWarps][kChunkTokens];   // M summed over j, of warps
  float outward[kChunkTokens];               // M summed over i
  float outflow[kStateWarps][kChunkTokens];  // of warps
  float checkpoint[kStateWarps];             // <S, D> at checkpoints, of warps
};

/// One warp's walk over the chunks, against time. Lane l has the tokens that are processed 2 l-th
/// and 2 l + 1-th.
class GateGradientWarp {
 public:
  __device__ GateGradientWarp(const BackwardParams& p, const ChunkWalk& walk)
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
  __device__ void take(const ChunkFlows<kStateWarps>& flows, const ChunkGates& gates, float2 inflow,
                       int n) {
    const int row0 = row_of(0);
    const int row1 = row_of(1);
    const float out0 = sum_warps(flows.outflow, row0);
    const float out1 = sum_warps(flows.outflow, row1);
    const float left = warp_inclusive_sum(out0 + out1);
    const float all_left = __shfl_sync(kFullWarp, left, kWarpSize - 1);
    const float carried = carried_of(flows, gates.total_decay, all_left, n);

    const float later0 = inflow.x + sum_warps(flows.inward, row0) - flows.outward[row0];
    const float later1 = inflow.y + sum_warps(flows.inward, row1) - flows.outward[row1];
    const float later = warp_suffix_sum(later0 + later1);
    const float before0 = left - out0 - out1;
    const unsigned bit = 1U << (threadIdx.x % kWarpSize);
    write(n, row0, (gates.resets[0] & bit) != 0 ? 0.0F : carried + before0 + later);
    write(n, row1,
          (gates.resets[1] & bit) != 0 ? 0.0F : carried + (before0 + out0) + (later - later0));
    between_ = carried + warp_sum(inflow.x + inflow.y);
  }

  /// Leaves the sum of what was written.
  __device__ void finish() const {
    const float total = warp_sum(total_);
    if (p_.dgamma_terms == nullptr || threadIdx.x % kWarpSize != 0) return;
    p_.dgamma_terms[number_of_block(p_, walk_.sequence)] = total;
  }

 private:
  template <int kStateWarps>
  __device__ float carried_of(const ChunkFlows<kStateWarps>& flows, float decay, float all_left,
                              int n) const {
    if (!state_survives(p_, walk_, n, decay)) return 0.0F;
    if (!is_checkpoint(p_, walk_, n, decay)) return between_ - all_left;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kStateWarps; ++i) sum += flows.checkpoint[i];
    return decay * sum;
  }
  __device__ int row_of(int which) const {
    return row_at(2 * static_cast<int>(threadIdx.x % kWarpSize) + which, walk_.reverse);
  }
  __device__ std::int64_t batch_row(int n) const {
    return walk_.batch * p_.sequences.tokens + walk_.token(n);
  }
  template <int kWarps>
  __device__ static float sum_warps(const float (&sums)[kWarps][kChunkTokens], int row) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += sums[i][row];
    return sum;
  }
  __device__ void write(int n, int row, float value) {
    if (row >= walk_.rows(n)) return;
    total_ += value;
    if (p_.dg.data == nullptr) return;
    static_cast<float*>(
        p_.dg.data)[row_offset(p_.dg, walk_.batch, walk_.token(n) + row, walk_.owner)] = value;
  }

  const BackwardParams& p_;
  const ChunkWalk& walk_;
  float between_ = 0.0F;  // G after the next chunk in time
  float total_ = 0.0F;
};

}  // namespace attune::cuda::chunk_wgmma::backward
