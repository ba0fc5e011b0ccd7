// Scores, what the tokens of a chunk read of one another: P[i, j] = scale 2^(b_i - b_j) q_i . k_j
// for j <= i (j >= i in reverse), in 16 bits in shared memory. The work of one warpgroup.
#pragma once

#include "cuda/wgmma_walk/state.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda::chunk_wgmma {

/// Accumulators of a 64 x 64 product.
inline constexpr int kChunkProduct = kChunkTokens / 2;

/// Queues Q K^T and commits it.
template <class T, int kTileK>
__device__ __forceinline__ void queue_scores(float (&scores)[kChunkProduct], std::uint32_t q_tile,
                                             std::uint32_t k_tile) {
  constexpr int kStepsOfPanel = kPanelChannels / kWgmmaDepth;
  const std::uint64_t q = matrix_descriptor(q_tile);
  const std::uint64_t k = matrix_descriptor(k_tile);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kTileK / kWgmmaDepth; ++s) {
    const int offset = s / kStepsOfPanel * kPanelBytes + s % kStepsOfPanel * kDepthBytes;
    wgmma_n64<T, Major::kK, Major::kK>(scores, descriptor_further(q, offset),
                                       descriptor_further(k, offset), s > 0);
  }
  wgmma_commit();
}

/// Which of a thread's scores are of a token that is not behind the one that reads it, a bit each.
__device__ __forceinline__ std::uint32_t unmasked_scores(const Lane& me, bool reverse) {
  std::uint32_t unmasked = 0;
#pragma unroll
  for (int i = 0; i < kChunkProduct; ++i) {
    const int row = me.row + i % 4 / 2 * 8;
    const int column = i / 4 * 8 + me.column + i % 2;
    unmasked |= static_cast<std::uint32_t>(reverse ? column >= row : column <= row) << i;
  }
  return unmasked;
}

/// The factors that a thread's scores are multiplied by, scale 2^(b_i - b_j); 0 where they are
/// masked.
struct ScoreFactors {
  float at[kChunkProduct];

  __device__ __forceinline__ void make(const ChunkDecays& decays, const Lane& me, float scale,
                                       std::uint32_t unmasked) {
    const float log2_row[2] = {decays.log2_sum[me.row], decays.log2_sum[me.row + 8]};
#pragma unroll
    for (int i = 0; i < kChunkProduct; ++i) {
      const int column = i / 4 * 8 + me.column + i % 2;
      const float factor = scale * exp2_approx(log2_row[i % 4 / 2] - decays.log2_sum[column]);
      at[i] = (unmasked >> i & 1U) != 0 ? factor : 0.0F;
    }
  }
};

/// Scores times factors, rounded, into a tile of P. Where a factor is 0 the score is left out by
/// selection: a NaN or an infinity of a token gets to none before it.
template <class T>
__device__ __forceinline__ void store_scores(const float (&scores)[kChunkProduct],
                                             const ScoreFactors& factors, const Lane& me,
                                             std::uint32_t tile) {
  const auto pair = [&](int i) {
    const auto score = [&](int j) {
      return factors.at[j] != 0.0F ? scores[j] * factors.at[j] : 0.0F;
    };
    return pack<T>(score(i), score(i + 1));
  };
  const int row = me.warp * 16 + me.lane % 16;
  const int byte = me.lane / 16 * 16;
#pragma unroll
  for (int n = 0; n < kChunkTokens / 8; n += 2) {
    store_matrices(tile + swizzled(row, n * 16 + byte), pair(4 * n), pair(4 * n + 2),
                   pair(4 * n + 4), pair(4 * n + 6));
  }
}

/// Makes P of all chunks of the block's items, or, as one of several warpgroups, of every other one.
/// Factors are made while the scores are under way, and once for all chunks of an item where decays
/// are constant in time, where registers are left for them.
template <class T, class Shape>
__device__ __forceinline__ void make_scores(const WalkParams& p, WalkShared<Shape>& shared,
                                            int warpgroup) {
  const Lane me;
  const bool constant = p.gates.rows.data == nullptr && !p.shifted_gates;
  const std::uint32_t unmasked = unmasked_scores(me, p.reverse);
  ScoreFactors factors;
  int number = 0;  // of a chunk, over all items
  RingPosition<Shape::kStages> chunk;
  RingPosition<Shape::kDecayStages> decay;
  RingPosition<Shape::kScoreStages> score;
  for_each_item<Shape>(p, main_walk(p), [&](const WalkItem& item) {
    bool was_whole = false;
    for (int step = 0; step < item.count;
         ++step, ++number, chunk.advance(), decay.advance(), score.advance()) {
      constexpr int kOfAll = Shape::kScoreWarpgroups;
      if (kOfAll > 1 && number % kOfAll != warpgroup) continue;
      float scores[kChunkProduct];
      shared.q_ring.wait_full(chunk);
      shared.k_ring.wait_full(chunk);
      queue_scores<T, Shape::kTileK>(scores, shared_address(shared.q[chunk.stage]),
                                     shared_address(shared.k[chunk.stage]));
      shared.decay_ring.wait_full(decay);
      const bool is_whole = item.rows_from(item.row_of(step, p.reverse)) == kChunkTokens;
      const auto make_factors = [&] {
        if (!(Shape::kKeepsFactors && constant && was_whole && is_whole)) {
          factors.make(shared.decays[decay.stage], me, p.scale, unmasked);
        }
        was_whole = is_whole;
        shared.decay_ring.release(decay.stage);
      };
      if (Shape::kKeepsFactors) make_factors();
      shared.score_ring.wait_empty(score);
      wgmma_wait<0>();
      wgmma_pin(scores);
      if (!Shape::kKeepsFactors) make_factors();
      shared.q_ring.release(chunk.stage);
      shared.k_ring.release(chunk.stage);
      store_scores<T>(scores, factors, me, shared_address(shared.scores[score.stage]));
      async_proxy_fence();
      shared.score_ring.publish(score.stage);
    }
  });
}

}  // namespace attune::cuda::chunk_wgmma

#endif
