// The scores of a chunk's tokens of one another that a block's warps make of tiles of scaled rows, by
// row as memory has the tokens (operands.cuh).
#pragma once

#include "cuda/gla/exact_runs.cuh"
#include "cuda/gla/forward/operands_shared.cuh"

namespace attune::cuda::gla::forward {

/// What is multiplied, of tensors of either type.
using Operand = __nv_bfloat16;

inline constexpr int kMakersBarrier = 1;

#if ATTUNE_SM90A_CODE

/// Of 256 threads. A warp has 16 tokens that read by 32 that are read.
template <class Shared>
class ChunkScores {
 protected:
  static constexpr int kColumns = 2;  // blocks of 16 tokens that are read
  using WarpScores = float[kColumns][2][4];
  static constexpr std::uint32_t kRunBytes = kRun * kPanelRowBytes;
  static constexpr std::uint32_t kRunStep = kPanelRowBytes + 16;  // to the next row, and swizzled
  static constexpr std::uint32_t kToKeys = Shared::kBuffers * kPanelBytes;

  __device__ ChunkScores(const GlaParams& p, Shared& shared) : p_(p), s_(shared) {
    at_.forget();
    const auto lane = static_cast<std::uint32_t>(at_.lane) * 4U;
    own_ = p.reverse ? (kBlockWarps - 1 - at_.warp) * kRunBytes + (lane ^ (kRun - 1) * kRunStep)
                     : at_.warp * kRunBytes + lane;
    left_ = block_address(0, at_.lane, row(), 0);
    right_ = kToKeys + transposed_block_address(0, at_.lane, column(), 0);
  }

  __device__ static void sync() { named_barrier_sync<kMakersBarrier>(kBlockThreads); }

  // ---- sums of log decays

  __device__ static __forceinline__ float2 minus(float2 a, float2 b) {
    return {a.x - b.x, a.y - b.y};
  }
  /// Makes log decays the sums from this warp's first position on. A decay of -inf is an exact 0,
  /// and the sums behind it are numbers.
  __device__ static __forceinline__ void add_up(float2 (&logs)[kRun]) {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (float2& log : logs) {
      add(sum, {log.x < kReset ? kReset : log.x, log.y < kReset ? kReset : log.y});
      log = sum;
    }
  }
  /// The sum of log decays over the positions of the first `warps` warps.
  __device__ __forceinline__ float2 over_warps_before(int warps) const {
    float2 sum{0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp < warps) add(sum, s_.logs_over[warp][at_.lane]);
    }
    return sum;
  }
  __device__ static __forceinline__ void add_to_all(float2 (&sums)[kRun], float2 x) {
#pragma unroll
    for (float2& sum : sums) add(sum, x);
  }

  // ---- scaled rows, and scores

  /// Two elements of a row of a tile.
  __device__ static __forceinline__ void put(std::uint32_t at, float2 pair) {
    store_shared_4(at, pack<Operand>(pair.x, pair.y));
  }

  /// Adds what the tiles' tokens read of those that come no later, and of some that do.
  __device__ __forceinline__ void multiply(WarpScores& to, std::uint32_t tile) const {
    const bool has_first = reads(row(), column());
    const bool has_second = reads(row(), column() + kBlock);
#pragma unroll
    for (int first = 0; first < kPanelChannels / kBlock; first += 2) {
      std::uint32_t left[2][4], right[2][kColumns][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t byte = 2 * kBlock * (first + i);
        load_matrices(left[i], (tile + left_) ^ byte);
        load_matrices(right[i][0], (tile + right_) ^ byte);
        load_matrices(right[i][1], ((tile + right_) ^ byte) + kBlock * kPanelRowBytes);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (has_first) multiply_block<Operand>(to[0], left[i], right[i][0]);
        if (has_second) multiply_block<Operand>(to[1], left[i], right[i][1]);
      }
    }
  }

  /// Calls visit(address, low, high) for this thread's pairs of scores, of which tokens that come later
  /// have none.
  template <class Visit>
  __device__ __forceinline__ void for_each_stored_pair(Visit&& visit) {
    at_.forget();  // or what rows and columns a thread has would take registers everywhere
    const std::uint32_t pairs =
        shared_address(&s_.scores) + tile_byte(row() + at_.lane / 4, column() + at_.lane % 4 * 2);
    for_each_pair([&](int n, int block, int e, int i, int j) {
      float* const of = &scores_[n][block][e];
      visit((pairs ^ (32 * n + 16 * block)) + e / 2 * kRunBytes, reads(i, j) ? of[0] : 0.0F,
            reads(i, j + 1) ? of[1] : 0.0F);
      of[0] = of[1] = 0.0F;
    });
  }

  /// Of a row of a tile.
  __device__ __forceinline__ int position(int row) const {
    return p_.reverse ? kChunkTokens - 1 - row : row;
  }
  /// Whether the token in a row, or some of the 16 from there on, reads what that in another writes.
  __device__ __forceinline__ bool reads(int reader, int written) const {
    return p_.reverse ? reader <= written : reader >= written;
  }
  __device__ int row() const { return at_.warp / 2 * kBlock; }
  __device__ int column() const { return at_.warp % 2 * kColumns * kBlock; }
  /// Calls visit(n, block, e, i, j) for this thread's pairs of scores: elements e and e + 1 of the
  /// token in row i, which reads, with those in rows j and j + 1.
  template <class Visit>
  __device__ __forceinline__ void for_each_pair(Visit&& visit) const {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
          visit(n, block, e, row() + at_.lane / 4 + e / 2 * 8,
                column() + n * kBlock + block * 8 + at_.lane % 4 * 2);
        }
      }
    }
  }

  const GlaParams& p_;
  Shared& s_;
  // Bytes of this thread in a tile: of its first position's row, and of the operands of products.
  std::uint32_t own_, left_, right_;
  RunLane at_;
  WarpScores scores_ = {};
};

#endif

}  // namespace attune::cuda::gla::forward
