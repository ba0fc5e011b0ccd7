// Decays within a chunk, made by one warp and used by all others of the block.
//
// With b_i the sum of the log2 decays of a chunk's tokens up to and including i, in the order of
// the walk, token j contributes 2^(b_i - b_j) to token i >= j, and nothing to earlier ones.
#pragma once

#include "cuda/tiles/ring.cuh"
#include "cuda/wgmma_walk/items.cuh"

namespace attune::cuda::chunk_wgmma {

/// Indexed by the row in the chunk, whatever the direction of the walk.
struct alignas(16) ChunkDecays {
  float log2_sum[kChunkTokens];    // b
  float from_start[kChunkTokens];  // scale 2^b: of the rounded state before the chunk, in o
  float to_end[kChunkTokens];      // 2^(b_last - b): of a token, in the state after the chunk;
                                   // inclusive: with the b of the token before it
  float total;                     // 2^b_last: of the state before the chunk, in the one after it
};

/// Log2 decays below this one, resets (-inf) among them, are raised to it: 2^-256 is 0 in fp32, yet
/// a sum of 64 of them is exact to 2^-10, so that differences of sums never meet (-inf) - (-inf)
/// and decays between two resets of one chunk keep their accuracy. Other kernels have other
/// thresholds, which their results depend on.
inline constexpr float kResetLog2 = -256.0F;

/// What the state is multiplied by when it is rounded to T for reading. f16 has too small a range
/// for a sum over thousands of tokens: so it holds 2^20, and what is below 2^-18 loses digits.
template <class T>
inline constexpr float kStateScale = std::is_same_v<T, __half> ? 1.0F / 16.0F : 1.0F;

/// Tokens of a chunk that a lane answers for, neighbours in the order of the walk.
inline constexpr int kTokensPerLane = kChunkTokens / kWarpSize;
static_assert(kTokensPerLane == 2);

/// Row in the chunk of a lane's token `i`, 0 or 1.
__device__ __forceinline__ int row_of_lane(int lane, int i, bool reverse) {
  const int at = lane * kTokensPerLane + i;
  return reverse ? kChunkTokens - 1 - at : at;
}

/// The gate of the token at `row` of the sequence as it came: reading it would be waiting for it. Rows
/// past the sequence's end give some other token's, so that nothing depends on what is loaded.
template <class Bits>
__device__ __forceinline__ std::uint32_t load_gate(const WalkParams& p, const WalkItem& item,
                                                   int row) {
  const int token = item.begin + min(row + (p.shifted_gates ? 1 : 0), item.length - 1);
  return static_cast<const Bits*>(
      p.gates.rows.data)[row_offset(p.gates.rows, item.batch, token, item.head)];
}

/// The log2 decay of the token at `row` of the sequence; rows past its end have none. A NaN stays.
template <class T>
__device__ __forceinline__ float log2_decay(const WalkParams& p, const WalkItem& item, int row,
                                            std::uint32_t bits, float constant) {
  const float gate = p.gates.is_f32 ? __uint_as_float(bits) : unpack<T>(bits).x;
  const float decay = (gate + constant) * kLog2E;
  const bool exists = row + (p.shifted_gates ? 1 : 0) < item.length;
  return !exists ? 0.0F : decay < kResetLog2 ? kResetLog2 : decay;
}

/// Writes a chunk's decays from those of this lane's two tokens. Returns 2^b_last.
template <bool kInclusive>
__device__ __forceinline__ float write_decays(ChunkDecays& to, float2 own, float scale,
                                              bool reverse) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float sum = own.x + own.y;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const float ahead = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += ahead;
  }
  const float last = __shfl_sync(kFullWarp, sum, kWarpSize - 1);
  const float total = exp2_approx(last);
  const float sums[kTokensPerLane] = {sum - own.y, sum};
  const float before[kTokensPerLane] = {sum - own.y - own.x, sum - own.y};
#pragma unroll
  for (int i = 0; i < kTokensPerLane; ++i) {
    const int row = row_of_lane(lane, i, reverse);
    to.log2_sum[row] = sums[i];
    to.from_start[row] = scale * exp2_approx(sums[i]);
    to.to_end[row] = exp2_approx(last - (kInclusive ? before[i] : sums[i]));
  }
  if (lane == 0) to.total = total;
  return total;
}

/// The gates of a lane's tokens of some chunks, which are loaded at once to wait for memory once.
template <class T>
struct GatesAhead {
  static constexpr int kChunks = 4;
  std::uint32_t gates[kChunks][kTokensPerLane] = {};

  /// `row_of(i)`: where chunk i begins.
  template <class RowOf>
  __device__ __forceinline__ void load(const WalkParams& p, const WalkItem& item, RowOf&& row_of) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const auto load_all = [&]<class Bits>() {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int row = row_of(i);
#pragma unroll
        for (int j = 0; j < kTokensPerLane; ++j) {
          gates[i][j] = load_gate<Bits>(p, item, row + row_of_lane(lane, j, p.reverse));
        }
      }
    };
    if (p.gates.given() && p.gates.is_f32) load_all.template operator()<std::uint32_t>();
    if (p.gates.given() && !p.gates.is_f32) load_all.template operator()<std::uint16_t>();
  }
  /// The log2 decays of the lane's tokens of chunk i, which begins at `row`.
  __device__ __forceinline__ float2 decays(const WalkParams& p, const WalkItem& item, int i,
                                           int row, float constant) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const auto decay_of = [&](int j) {
      return log2_decay<T>(p, item, row + row_of_lane(lane, j, p.reverse), gates[i][j], constant);
    };
    return {decay_of(0), decay_of(1)};
  }
};

/// The work of the warp that makes the decays of all chunks of the block's items. In the first of
/// two launches it leaves their products, too.
template <class T, class Shape, bool kInclusive = false, int kStages>
__device__ __forceinline__ void make_decays(const WalkParams& p, WalkRange range,
                                            Ring<kStages>& ring, ChunkDecays* stages) {
  constexpr int kAhead = GatesAhead<T>::kChunks;
  RingPosition<kStages> at;
  for_each_item<Shape>(p, range, [&](const WalkItem& item) {
    const float constant = constant_decay(p.gamma, item.n, item.head);
    float product = 1.0F;
    for (int step = 0; step < item.count; step += kAhead) {
      GatesAhead<T> gates;
      gates.load(p, item,
                 [&](int i) { return item.row_of(min(step + i, item.count - 1), p.reverse); });
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (step + i >= item.count) break;
        const int row = item.row_of(step + i, p.reverse);
        const float2 own = gates.decays(p, item, i, row, constant);
        ring.wait_empty(at);
        product *=
            write_decays<kInclusive>(stages[at.stage], own, p.scale / kStateScale<T>, p.reverse);
        ring.publish(at.stage);
        at.advance();
      }
    }
    if (range.is_first && threadIdx.x % kWarpSize == 0 && item.tile == 0) {
      scratch_decays<Shape>(p, item)[item.subsegment] = product;
    }
  });
}

}  // namespace attune::cuda::chunk_wgmma
