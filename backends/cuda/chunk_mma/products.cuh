// The products of a chunk, each a phase of the kernels. A warp owns 16 value channels of S^T and of
// O^T; both stay in its registers, and S^T is itself the left operand of what reads it.
#pragma once

#include <type_traits>

#include "cuda/chunk_mma/stages.cuh"

namespace attune::cuda::chunk_mma {

/// One 16 x 16 block of P[i][j] = scale exp(b_i - b_j) q_i k_j, j <= i. Odd and even steps have
/// sums of their own, so that more products are under way.
template <class T, class Shape>
__device__ __forceinline__ void make_score_block(const Tile<Shape>& q, const Tile<Shape>& k,
                                                 const Tile<Shape>& scores,
                                                 const ChunkDecays<Shape::kChunk>& decays,
                                                 float scale, int row_block, int column_block) {
  float products[2][2][4] = {};
#pragma unroll 4
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_matrices(a, q.down(16 * row_block, 16 * step));
    load_matrices(b, k.across(16 * column_block, 16 * step));
    mma_m16n8k16<T>(products[step % 2][0], a, b[0], b[1]);
    mma_m16n8k16<T>(products[step % 2][1], a, b[2], b[3]);
  }
  store_scores<T>(scores, products, row_block, column_block,
                  [&](int row, int column, float product) {
                    return product * scale * exp2_approx(decays.log2[row] - decays.log2[column]);
                  });
}

/// The scores P: the warps divide the blocks on and below the diagonal among them; no other block
/// is ever read.
template <class T, class Shape>
__device__ __forceinline__ void make_scores(const Tile<Shape>& q, const Tile<Shape>& k,
                                            const Tile<Shape>& scores,
                                            const ChunkDecays<Shape::kChunk>& decays, float scale) {
  constexpr int kSide = Shape::kChunk / 16;
  constexpr int kBlocks = kSide * (kSide + 1) / 2;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  // The first warp has the decays to do besides: it gets the fewest blocks.
#pragma unroll 1
  for (int block = Shape::kConfig.warps - 1 - warp; block < kBlocks;
       block += Shape::kConfig.warps) {
    int row_block = 0;
    while ((row_block + 1) * (row_block + 2) / 2 <= block) ++row_block;
    const int column_block = block - row_block * (row_block + 1) / 2;
    make_score_block<T>(q, k, scores, decays, scale, row_block, column_block);
  }
}

template <class Shape>
__device__ __forceinline__ void scale_state(State<Shape>& state, float factor) {
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (float& element : state[j]) element *= factor;
  }
}

/// Shrinks a warp's fragment of the state where it is too large for T, by a power of two, and
/// returns how many times larger it was. A state may leave the range of f16 where outputs do not.
template <class T, class Shape>
__device__ __forceinline__ float fit_operand(State<Shape>& state) {
  if constexpr (!std::is_same_v<T, __half>) return 1.0F;  // bf16 has the range of fp32
  constexpr int kMantissaBits = 23;
  constexpr unsigned kMostExponent = 127 + 14;  // of the elements' fp32: f16 has up to 2^16
  float largest = 0.0F;
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
    for (const float element : state[j]) largest = fmaxf(largest, fabsf(element));
  }
  // The order of non-negative numbers is that of their bits.
  const unsigned exponent = __reduce_max_sync(kFullWarp, __float_as_uint(largest)) >> kMantissaBits;
  if (exponent <= kMostExponent) return 1.0F;
  const unsigned excess = min(exponent - kMostExponent, 126U);
  scale_state<Shape>(state, __uint_as_float((127U - excess) << kMantissaBits));
  return __uint_as_float((127U + excess) << kMantissaBits);
}

/// O^T = S^T Q^T, each token's column times scale exp(b_i).
template <class T, class Shape>
__device__ __forceinline__ void read_state(Outputs<Shape>& outputs, const State<Shape>& state,
                                           const Tile<Shape>& q,
                                           const ChunkDecays<Shape::kChunk>& decays, float scale) {
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
    for (float& output : outputs[n]) output = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    const auto& low = state[2 * step];
    const auto& high = state[2 * step + 1];
    const std::uint32_t a[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                                pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 16; ++n) {
      std::uint32_t b[4];
      load_matrices(b, q.across(16 * n, 16 * step));
      mma_m16n8k16<T>(outputs[2 * n], a, b[0], b[1]);
      mma_m16n8k16<T>(outputs[2 * n + 1], a, b[2], b[3]);
    }
  }
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 8; ++n) {
    const float2 decay = *reinterpret_cast<const float2*>(&decays.from_start[8 * n + first]);
#pragma unroll
    for (int e = 0; e < 4; ++e) outputs[n][e] *= scale * (e % 2 == 0 ? decay.x : decay.y);
  }
}

/// V^T of the 16 tokens of `step`, each token's column times exp(b_last - b_j).
template <class T, class Shape>
__device__ __forceinline__ void decay_values(std::uint32_t (&values)[4],
                                             const ChunkDecays<Shape::kChunk>& decays, int step) {
  const int first = 16 * step + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 value = unpack<T>(values[e]);
    const float2 decay = *reinterpret_cast<const float2*>(&decays.to_end[first + e / 2 * 8]);
    values[e] = pack<T>(value.x * decay.x, value.y * decay.y);
  }
}

/// S^T += V^T K for the 16 tokens of `step`; `values` is V^T of them, decayed to the chunk's end.
template <class T, class Shape>
__device__ __forceinline__ void write_state(State<Shape>& state, const std::uint32_t (&values)[4],
                                            const Tile<Shape>& k, int step) {
#pragma unroll
  for (int n = 0; n < Shape::kKeys / 16; ++n) {
    std::uint32_t b[4];
    load_matrices_transposed(b, k.down(16 * step, 16 * n));
    mma_m16n8k16<T>(state[2 * n], values, b[0], b[1]);
    mma_m16n8k16<T>(state[2 * n + 1], values, b[2], b[3]);
  }
}

}  // namespace attune::cuda::chunk_mma
