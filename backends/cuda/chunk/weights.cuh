// What the tokens of a chunk read of one another: P[i, j] = scale 2^(b_i - b_j) q_i . k_j for j <=
// i (j >= i in reverse), in 16 bits in shared memory. The work of one warpgroup.
#pragma once

#include "cuda/chunk/decay.cuh"
#include "cuda/chunk/state.cuh"

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

/// Scores times decays, rounded, into a tile of P. What is masked is left out by selection: neither
/// an overflow of its decay nor a NaN of its token gets through.
template <class T>
__device__ __forceinline__ void store_weights(const float (&scores)[kChunkProduct],
                                              const ChunkDecays& decays, const Lane& me,
                                              float scale, bool reverse, std::uint32_t tile) {
  const float log2_row[2] = {decays.log2_sum[me.row], decays.log2_sum[me.row + 8]};
  const auto weight = [&](int n, int i) {
    const int row = me.row + i / 2 * 8;
    const int column = 8 * n + me.column + i % 2;
    const float decay = exp2_approx(log2_row[i / 2] - decays.log2_sum[column]);
    const float value = scores[4 * n + i] * (scale * decay);
    return (reverse ? column >= row : column <= row) ? value : 0.0F;
  };
  const int row = me.warp * 16 + me.lane % 16;
  const int byte = me.lane / 16 * 16;
#pragma unroll
  for (int n = 0; n < kChunk / 8; n += 2) {
    store_matrices(tile + swizzled(row, n * 16 + byte), pack<T>(weight(n, 0), weight(n, 1)),
                   pack<T>(weight(n, 2), weight(n, 3)), pack<T>(weight(n + 1, 0), weight(n + 1, 1)),
                   pack<T>(weight(n + 1, 2), weight(n + 1, 3)));
  }
}

/// Makes P of all chunks of the block's items.
template <class T, class Shape>
__device__ __forceinline__ void make_weights(const WalkParams& p, WalkShared<Shape>& shared) {
  const Lane me;
  RingPosition<Shape::kStages> chunk;
  RingPosition<Shape::kDecaySlots> decay;
  RingPosition<Shape::kWeightSlots> weight;
  for_each_item<Shape::kTileV>(p, p.segments, [&](const WalkItem& item) {
    for (int step = 0; step < item.count; ++step) {
      float scores[kChunkProduct];
      shared.q_ring.wait_full(chunk);
      shared.k_ring.wait_full(chunk);
      queue_scores<T, Shape::kTileK>(scores, shared_address(shared.q[chunk.slot]),
                                     shared_address(shared.k[chunk.slot]));
      shared.decay_ring.wait_full(decay);
      shared.weight_ring.wait_empty(weight);
      wgmma_wait<0>();
      wgmma_pin(scores);
      shared.q_ring.release(chunk.slot);
      shared.k_ring.release(chunk.slot);
      store_weights<T>(scores, shared.decays[decay.slot], me, p.scale, p.reverse,
                       shared_address(shared.weights[weight.slot]));
      async_proxy_fence();
      shared.weight_ring.publish(weight.slot);
      shared.decay_ring.release(decay.slot);
      chunk.advance();
      decay.advance();
      weight.advance();
    }
  });
}

}  // namespace attune::cuda

#endif
