// P, the scores of a chunk: from q', k' and 2^-r on tensor cores, or in fp32 from q, k and y
// (operands.cuh).
#pragma once

#include "cuda/chunks/channels/stages.cuh"
#include "cuda/chunks/mma_tile.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/f16_pairs.cuh"

namespace attune::cuda::channels {

/// Four 8 x 8 matrices of a tile as an operand of P, with factors of the channels of each half.
template <class Operand>
__device__ __forceinline__ void grow_keys(std::uint32_t (&b)[4], std::uint32_t low,
                                          std::uint32_t high) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t factors = i % 2 == 0 ? low : high;
    if constexpr (std::is_same_v<Operand, __half>) {
      b[i] = multiply_f16_pairs(b[i], factors);
    } else {
      b[i] = multiply_bf16_pairs(b[i], factors);
    }
  }
}

/// Products of 16 x 16, those of even and of odd steps apart, so that more of them are under way.
using ScoreProducts = float[2][2][4];

/// Of one block of P. Tiles and growths are of type Tiles, what is multiplied of type Operand.
template <class Tiles, class Operand, class Shape>
__device__ __forceinline__ void multiply_block(ScoreProducts& products, const Stage<Shape>& stage,
                                               const std::uint32_t* growths, int row_block,
                                               int column_block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_matrices(a, stage.q.down(16 * row_block, 16 * step));
    load_matrices(b, stage.k.across(16 * column_block, 16 * step));
    if constexpr (Shape::kKeysDecay) {
      std::uint32_t growth[2] = {growths[8 * step + lane % 4], growths[8 * step + 4 + lane % 4]};
      if constexpr (!std::is_same_v<Tiles, Operand>) {
        widen(a);
        widen(b);
        widen(growth);
      }
      grow_keys<Operand>(b, growth[0], growth[1]);
    }
    mma_m16n8k16<Operand>(products[step % 2][0], a, b[0], b[1]);
    mma_m16n8k16<Operand>(products[step % 2][1], a, b[2], b[3]);
  }
}

/// One 16 x 16 block of P, of which the state warps take type Score.
template <class Operand, class Score, class Shape>
__device__ __forceinline__ void score_block(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths, int row_block,
                                            int column_block) {
  ScoreProducts products = {};
  multiply_block<Operand, Operand, Shape>(products, stage, growths, row_block, column_block);
  const auto store = [&](auto&& score_of) {
    store_scores<Score>(scores, products, row_block, column_block, score_of);
  };
  if constexpr (std::is_same_v<Score, __nv_bfloat16>) {
    store([](int, int, float product) { return product; });
  } else if constexpr (std::is_same_v<Operand, __nv_bfloat16>) {
    store([](int, int, float product) { return within_f16(product); });
  } else {
    bool beyond = false;
    store([&](int, int, float product) {
      beyond |= !(fabsf(product) <= kMostF16);
      return product;
    });
    if (!__any_sync(kFullWarp, beyond)) return;
    for (auto& of_step : products) {
      for (auto& half : of_step) {
        for (float& product : half) product = 0.0F;
      }
    }
    multiply_block<Operand, __nv_bfloat16, Shape>(products, stage, growths, row_block,
                                                  column_block);
    store([](int, int, float product) { return within_f16(product); });
  }
}

/// Zeros in one 16 x 16 block of P.
template <class Shape>
__device__ __forceinline__ void clear_block(const Tile<Shape>& scores, int row_block,
                                            int column_block) {
  constexpr std::uint32_t kZeros[2] = {};
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int column = 0; column < 16; column += 8) {
    const int first = 16 * column_block + column + lane % 2 * 4;
    store_shared_words(scores.at(16 * row_block + lane / 2, first * 2), kZeros);
  }
}

/// P, a block a warp. Of those above the diagonal, mma.sync reads none and wgmma all.
template <class Operand, class Score, class Shape>
__device__ __forceinline__ void score_chunk(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths) {
  const int warp = operand_thread() / kWarpSize;
  constexpr int kBlocks = Shape::kChunk == 32 ? 3 : 1;
  if (warp < kBlocks) {
    score_block<Operand, Score, Shape>(stage, scores, growths, warp > 0, warp > 1);
  } else if constexpr (Shape::kProducts == Products::kWgmma) {
    clear_block<Shape>(scores, 0, 1);
  }
}

template <class Score>
__device__ __forceinline__ std::uint32_t pack_score(float low, float high) {
  if constexpr (std::is_same_v<Score, __half>) {
    return pack<Score>(within_f16(low), within_f16(high));
  } else {
    return pack<Score>(low, high);
  }
}

/// P from q, k and y as they are: a row a warp, lanes have channels.
template <class T, class Shape>
__device__ __forceinline__ void score_exactly(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                              float scale) {
  constexpr int kPerLane = Shape::kKeys / (2 * kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto sums = [&](int row, int m) {
    return *reinterpret_cast<const float2*>(&stage.key_sums(row)[2 * lane + 2 * kWarpSize * m]);
  };
  const auto pair = [&](const Tile<Shape>& tile, int row, int m) {
    return unpack<T>(load_shared_4(tile.at(row, 4 * lane + 4 * kWarpSize * m)));
  };
#pragma unroll 1
  for (int row = operand_thread() / kWarpSize; row < Shape::kChunk; row += kOperandWarps) {
    float2 query[kPerLane];
    float2 y[kPerLane];
#pragma unroll
    for (int m = 0; m < kPerLane; ++m) {
      query[m] = pair(stage.q, row, m);
      y[m] = sums(row, m);
    }
    float own = 0.0F;  // of column `lane`
#pragma unroll 1
    for (int column = 0; column <= row; ++column) {
      float product = 0.0F;
#pragma unroll
      for (int m = 0; m < kPerLane; ++m) {
        const float2 key = pair(stage.k, column, m);
        const float2 before = sums(column, m);
        product += query[m].x * key.x * exp2_approx(y[m].x - before.x) +
                   query[m].y * key.y * exp2_approx(y[m].y - before.y);
      }
      product = scale * warp_sum(product);
      if (lane == column) own = product;
    }
    const float next = __shfl_down_sync(kFullWarp, own, 1);
    if (lane % 2 == 0 && lane < Shape::kChunk) {
      store_shared_4(scores.at(row, lane * 2), pack_score<Operand<T, Shape>>(own, next));
    }
  }
}

}  // namespace attune::cuda::channels
