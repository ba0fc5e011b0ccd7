// What the tokens of a chunk read of one another: P[i, j] = scale 2^(b_i - b_j) q_i . k_j for j <=
// i (j >= i in reverse), in 16 bits in shared memory. The work of one warpgroup.
#pragma once

#include "cuda/chunk_wgmma/decay.cuh"
#include "cuda/chunk_wgmma/state.cuh"

#if ATTUNE_SM90A_CODE

namespace attune::cuda {

/// Accumulators of a 64 x 64 product.
inline constexpr int kChunkProduct = kChunk / 2;

/// Queues Q K^T and commits it.
template <class T, int kTileK>
__device__ __forceinline__ void queue_scores(float (&scores)[kChunkProduct], std::uint32_t q_tile,
                                             std::uint32_t k_tile) {
  constexpr int kStepsOfBox = kBoxChannels / kWgmmaDepth;
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kTileK / kWgmmaDepth; ++s) {
    const int offset = s / kStepsOfBox * kBoxBytes + s % kStepsOfBox * kDepthBytes;
    wgmma_n64<T, Major::kK, Major::kK>(scores, matrix_descriptor(q_tile + offset),
                                       matrix_descriptor(k_tile + offset), s > 0);
  }
  wgmma_commit();
}

/// The factors that a thread's scores are multiplied by, scale 2^(b_i - b_j); 0 where they are
/// masked.
struct ScoreFactors {
  float at[kChunkProduct];

  __device__ __forceinline__ void make(const ChunkDecays& decays, const Lane& me, float scale,
                                       bool reverse) {
    const float log2_row[2] = {decays.log2_sum[me.row], decays.log2_sum[me.row + 8]};
#pragma unroll
    for (int i = 0; i < kChunkProduct; ++i) {
      const int row = me.row + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + me.column + i % 2;
      const float factor = scale * exp2_approx(log2_row[i % 4 / 2] - decays.log2_sum[column]);
      at[i] = (reverse ? column >= row : column <= row) ? factor : 0.0F;
    }
  }
};

/// Scores times factors, rounded, into a tile of P. Where a factor is 0 the score is left out by
/// selection: a NaN or an infinity of a token gets to none before it.
template <class T>
__device__ __forceinline__ void store_weights(const float (&scores)[kChunkProduct],
                                              const ScoreFactors& factors, const Lane& me,
                                              std::uint32_t tile) {
  const auto weights = [&](int i) {
    const auto weight = [&](int j) {
      return factors.at[j] != 0.0F ? scores[j] * factors.at[j] : 0.0F;
    };
    return pack<T>(weight(i), weight(i + 1));
  };
  const int row = me.warp * 16 + me.lane % 16;
  const int byte = me.lane / 16 * 16;
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    store_matrices(tile + swizzled(row, n * 16 + byte), weights(4 * n), weights(4 * n + 2),
                   weights(4 * n + 4), weights(4 * n + 6));
  }
}

/// Makes P of all chunks of the block's items. Factors are made while the scores are under way, and
/// once for all chunks of an item where decays are constant in time.
template <class T, class Shape>
__device__ __forceinline__ void make_weights(const WalkParams& p, WalkShared<Shape>& shared) {
  const Lane me;
  const bool constant = p.gates.rows.data == nullptr && !p.shifted_gates;
  ScoreFactors factors;
  RingPosition<Shape::kStages> chunk;
  RingPosition<Shape::kDecaySlots> decay;
  RingPosition<Shape::kWeightSlots> weight;
  for_each_item<Shape::kTileV>(p, whole_walk(p), [&](const WalkItem& item) {
    bool was_whole = false;
    for (int step = 0; step < item.count; ++step) {
      float scores[kChunkProduct];
      shared.q_ring.wait_full(chunk);
      shared.k_ring.wait_full(chunk);
      queue_scores<T, Shape::kTileK>(scores, shared_address(shared.q[chunk.slot]),
                                     shared_address(shared.k[chunk.slot]));
      shared.decay_ring.wait_full(decay);
      const bool is_whole = item.rows_from(item.row_of(step, p.reverse)) == kChunk;
      if (!(constant && was_whole && is_whole)) {
        factors.make(shared.decays[decay.slot], me, p.scale, p.reverse);
      }
      was_whole = is_whole;
      shared.decay_ring.release(decay.slot);
      shared.weight_ring.wait_empty(weight);
      wgmma_wait<0>();
      wgmma_pin(scores);
      shared.q_ring.release(chunk.slot);
      shared.k_ring.release(chunk.slot);
      store_weights<T>(scores, factors, me, shared_address(shared.weights[weight.slot]));
      async_proxy_fence();
      shared.weight_ring.publish(weight.slot);
      chunk.advance();
      decay.advance();
      weight.advance();
    }
  });
}

}  // namespace attune::cuda

#endif
