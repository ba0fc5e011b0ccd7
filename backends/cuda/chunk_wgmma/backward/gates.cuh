// The decay within a chunk.
//
// With b the inclusive log2_sum sum of log decays in the order of processing, what token j writes
// reaches token i times exp(b_i - b_j). A gate of -inf is an exact reset: it counts as 0 in
// b, which stays finite, and bounds the tokens that a token reaches. So does any gate whose decay
// vanishes in fp32 next to 1.
#pragma once

#include "cuda/chunk_wgmma/backward/state.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::chunk_wgmma::backward {

/// Log2 decays below this one are resets: a state of any use times 2^-160 is 0 in fp32. Resets add
/// nothing to sums here, so that it need not be as low as where they do.
inline constexpr float kResetLog2 = -160.0F;

/// Rows of a tile that a row reaches, both inclusive.
struct RowRange {
  short first;
  short last;
};

/// In shared memory; arrays are by row of the tile.
struct alignas(16) ChunkGates {
  float log2_sum[kChunkTokens];    // b, log2
  float from_start[kChunkTokens];  // scale * decay from before the chunk to the token
  float to_end[kChunkTokens];      // decay from the token to after the chunk
  RowRange reach[kChunkTokens];
  unsigned resets[2];  // bit l: token 2 l, 2 l + 1 in order of processing is a reset
  float total_decay;   // decay from before the chunk to after it
};

/// The row of the token that is processed `position`-th.
__device__ __forceinline__ int row_at(int position, bool reverse) {
  return reverse ? kChunkTokens - 1 - position : position;
}

/// What g holds for the two tokens of a lane, as loaded: nothing waits for it yet.
struct RawGates {
  std::uint32_t bits[2] = {};
};

/// Lane l has the tokens that are processed 2 l-th and 2 l + 1-th.
__device__ __forceinline__ RawGates load_gates(const BackwardParams& p, const ChunkWalk& walk,
                                               int n) {
  RawGates raw;
  if (p.g.rows.data == nullptr || n >= walk.count) return raw;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = row_at(2 * lane + i, walk.reverse);
    if (row >= walk.rows(n)) continue;
    const std::int64_t at = row_offset(p.g.rows, walk.batch, walk.token(n) + row, walk.head);
    raw.bits[i] = p.g.is_f32 ? static_cast<const std::uint32_t*>(p.g.rows.data)[at]
                             : static_cast<const std::uint16_t*>(p.g.rows.data)[at];
  }
  return raw;
}

/// Their log2 decays; 0 past the chunk's end.
template <class T>
__device__ __forceinline__ float2 log2_decays(const BackwardParams& p, const ChunkWalk& walk,
                                              const RawGates& raw, float constant, int n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto decay = [&](int i) {
    const int row = row_at(2 * lane + i, walk.reverse);
    if (row >= walk.rows(n)) return 0.0F;
    const float g = p.g.is_f32 ? __uint_as_float(raw.bits[i]) : unpack<T>(raw.bits[i]).x;
    return fmaf(g, kLog2E, constant);
  };
  return {decay(0), decay(1)};
}

/// The position of the first reset of the later lanes, 64 where there is none.
__device__ __forceinline__ int next_reset(unsigned even, unsigned odd, unsigned later_lanes) {
  const int in_even = __ffs(static_cast<int>(even & later_lanes));
  const int in_odd = __ffs(static_cast<int>(odd & later_lanes));
  const int at_even = in_even == 0 ? kChunkTokens : 2 * in_even - 2;
  const int at_odd = in_odd == 0 ? kChunkTokens : 2 * in_odd - 1;
  return min(at_even, at_odd);
}

__device__ __forceinline__ void write_gate(ChunkGates& gates, int position, bool reverse,
                                           int reach_end, float b, float from_start, float to_end) {
  const int row = row_at(position, reverse);
  const int last = row_at(reach_end - 1, reverse);
  gates.log2_sum[row] = b;
  gates.from_start[row] = from_start;
  gates.to_end[row] = to_end;
  gates.reach[row] = {static_cast<short>(min(row, last)), static_cast<short>(max(row, last))};
}

/// Fills `gates` from log2_decays(), a warp's work. Returns the decay over the chunk.
__device__ __forceinline__ float write_gates(ChunkGates& gates, float2 log2_decay, float scale,
                                             bool reverse) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool reset0 = log2_decay.x < kResetLog2;
  const bool reset1 = log2_decay.y < kResetLog2;
  const unsigned even = __ballot_sync(kFullWarp, reset0);
  const unsigned odd = __ballot_sync(kFullWarp, reset1);
  const float first = reset0 ? 0.0F : log2_decay.x;
  const float second = reset1 ? 0.0F : log2_decay.y;
  const float b1 = warp_inclusive_sum(first + second);
  const float b0 = b1 - second;
  const float last = __shfl_sync(kFullWarp, b1, kWarpSize - 1);

  const unsigned earlier = (1U << lane) - 1U;
  const bool fresh = ((even | odd) & earlier) != 0;  // a reset among earlier lanes
  const int end1 = next_reset(even, odd, ~earlier & ~(1U << lane));
  const int end0 = reset1 ? 2 * lane + 1 : end1;
  write_gate(gates, 2 * lane, reverse, end0, b0, fresh || reset0 ? 0.0F : scale * exp2_approx(b0),
             end0 < kChunkTokens ? 0.0F : exp2_approx(last - b0));
  write_gate(gates, 2 * lane + 1, reverse, end1, b1,
             fresh || reset0 || reset1 ? 0.0F : scale * exp2_approx(b1),
             end1 < kChunkTokens ? 0.0F : exp2_approx(last - b1));
  const float total_decay = (even | odd) != 0 ? 0.0F : exp2_approx(last);
  if (lane == 0) {
    gates.resets[0] = even;
    gates.resets[1] = odd;
    gates.total_decay = total_decay;
  }
  return total_decay;
}

inline constexpr int kGateStages = 4;

/// The warp that scans gates, ahead of those that need them. Returns the total decay of the
/// segment.
template <class T>
__device__ __forceinline__ float gate_warp(const BackwardParams& p, const ChunkWalk& walk,
                                           ChunkGates (&gates)[kGateStages],
                                           Ring<kGateStages>& ring) {
  const float constant = constant_decay(p.gamma, walk.sequence, walk.head) * kLog2E;
  float over_walk = 1.0F;
  // Two chunks ahead: a load takes about as long as a chunk.
  RawGates next = load_gates(p, walk, 0);
  RawGates after = load_gates(p, walk, 1);
  for (int n = 0; n < walk.count; ++n) {
    const RawGates current = next;
    next = after;
    after = load_gates(p, walk, n + 2);
    ring.wait_empty(n);
    over_walk *= write_gates(gates[ring.stage(n)], log2_decays<T>(p, walk, current, constant, n),
                             p.scale, walk.reverse);
    ring.publish_chunk(n);
  }
  return over_walk;
}

/// The decays of what one row writes, for reads in columns `column` and `column + 1`.
struct RowDecays {
  float log2_sum;
  int first, last;
  RowDecays() = default;
  __device__ RowDecays(const ChunkGates& gates, int row)
      : log2_sum(gates.log2_sum[row]), first(gates.reach[row].first), last(gates.reach[row].last) {}
  /// To the read in a column whose log decay is `b`. The exponent is selected, as outside of its reach a
  /// decay may be infinite.
  __device__ float to(float b, int column) const {
    const bool reached = first <= column && column <= last;
    return exp2_approx(reached ? b - log2_sum : -INFINITY);
  }
};

}  // namespace attune::cuda::chunk_wgmma::backward
