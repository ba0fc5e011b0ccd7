// The scores P of a chunk of f32, as two parts of bf16 each.
#pragma once

#include "cuda/chunk_mma/decays.cuh"
#include "cuda/chunk_mma/split_warpgroup.cuh"

namespace attune::cuda::chunk_mma {

/// The scores P in a tile of 128-byte rows: the high parts of a row first, then its low parts.
template <class Shape>
class SplitScores {
 public:
  static constexpr int kBytes = kSplitChunk * kPanelRowBytes;
  static_assert(2 * kSplitChunk * sizeof(SplitPart) == kPanelRowBytes);

  __device__ explicit SplitScores(std::uint32_t address) : tile_(address) {}
  __device__ __forceinline__ void store(int row, int column, const SplitPair& pair) const {
    store_shared_4(tile_.at(row, column * 2), pair.high);
    store_shared_4(tile_.at(row, (column + kSplitChunk) * 2), pair.low);
  }
  __device__ __forceinline__ SplitBlock across(int row, int column) const {
    SplitBlock block;
    load_matrices(block.high, tile_.across(row, column));
    load_matrices(block.low, tile_.across(row, column + kSplitChunk));
    return block;
  }
  /// Where it begins.
  __device__ __forceinline__ std::uint32_t address() const { return tile_.at(0, 0); }

 private:
  Tile<Shape> tile_;
};

/// Where this lane's row of an 8 x 16 block of k lies when its high parts are loaded as the first
/// two matrices of four, and its low parts as the others.
template <class Shape>
__device__ __forceinline__ std::uint32_t high_then_low(const SplitTile<Shape>& k, int row,
                                                       int channel) {
  const unsigned lane = threadIdx.x % kWarpSize;
  const Tile<Shape>& part = lane < 16 ? k.high : k.low;
  return part.at(row + lane % 8, channel * 2 + lane / 8 % 2 * 16);
}

/// Stores 16 rows of 8 columns of P, of which a lane has `products`. With decays per channel, all of
/// them are in the operands.
template <class Shape, class Decays>
__device__ __forceinline__ void store_score_block(const float (&products)[4],
                                                  const SplitScores<Shape>& scores,
                                                  const Decays& decays, float scale, int first_row,
                                                  int first_column) {
  const int lane = thread_of_role_again<Shape>() % kWarpSize;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane / 4 + half * 8;
    const int column = first_column + lane % 4 * 2;
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float score = products[half * 2 + e] * scale;
      if constexpr (!Decays::kPerChannel) score *= decay_between(decays, row, column + e);
      pair[e] = column + e <= row ? score : 0.0F;
    }
    scores.store(row, column, split(pair[0], pair[1]));
  }
}

/// The scores P, of warpgroups' products all of them, else blocks on and below the diagonal.
template <class Shape, class Decays>
__device__ __forceinline__ void make_split_scores(const SplitStage<Shape, true>& stage,
                                                  const SplitScores<Shape>& scores,
                                                  const Decays& decays, float scale) {
  static_assert(kSplitChunk == 32);
  const int warp = thread_of_role_again<Shape>() / kWarpSize;
#if ATTUNE_SM90A_CODE
  // A product has 64 rows: what lies behind the chunk's 32 is multiplied, too, and left.
  if (warp >= 4) return;
  const SplitSteps<Shape, Major::kK> q(stage.q, 0), k(stage.k, 0);
  float products[kSplitChunk / 8][4];
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    const auto queue = [&](std::uint64_t reads, std::uint64_t writes, bool accumulate) {
      wgmma_n32<SplitPart, Major::kK, Major::kK>(accumulator(products), reads, writes, accumulate);
    };
    queue(q.low(step), k.high(step), step > 0);
    queue(q.high(step), k.low(step), true);
    queue(q.high(step), k.high(step), true);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(accumulator(products));
  if (warp >= kSplitChunk / 16) return;
#pragma unroll
  for (int n = 0; n < kSplitChunk / 8; ++n) {
    store_score_block(products[n], scores, decays, scale, 16 * warp, 8 * n);
  }
#else
  constexpr int kBlocks = 2 + 4;  // of 8 columns, in the first 16 rows and in the others
#pragma unroll 1
  for (int block = warp; block < kBlocks; block += Shape::kConfig.warps) {
    const int row = block < 2 ? 0 : 16;
    const int column = 8 * (block < 2 ? block : block - 2);
    float main[4] = {}, left[4] = {}, right[4] = {};
#pragma unroll 2
    for (int step = 0; step < Shape::kKeys / 16; ++step) {
      const SplitBlock q = stage.q.down(row, 16 * step);
      std::uint32_t k[4];
      load_matrices(k, high_then_low(stage.k, column, 16 * step));
      mma_m16n8k16<SplitPart>(main, q.high, k[0], k[1]);
      mma_m16n8k16<SplitPart>(left, q.low, k[0], k[1]);
      mma_m16n8k16<SplitPart>(right, q.high, k[2], k[3]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) main[e] += left[e] + right[e];
    store_score_block(main, scores, decays, scale, row, column);
  }
#endif
}

}  // namespace attune::cuda::chunk_mma
