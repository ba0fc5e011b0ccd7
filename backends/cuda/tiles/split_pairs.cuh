// f32 on the tensor cores: a value as the sum of two of bf16, and products of such sums.
//
// x = high + low + rest, |rest| <= 2^-18 |x|; of (high + low) (high' + low') the product of the two
// low parts, as small as what the rests leave out, is not made. Tensor cores cut sums off where
// fp32 rounds them: what runs on for long (the state) is summed outside of them, by a fused
// multiply-add a chunk, or the cuts would add up to more than all else.
//
// Source: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
// surpassing the FP32 theoretical peak performance", arXiv:2203.03341.
#pragma once

#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

using SplitPart = __nv_bfloat16;

/// Two values: their high parts and their low parts, each packed as an operand of mma.
struct SplitPair {
  std::uint32_t high = 0;
  std::uint32_t low = 0;
};

__device__ __forceinline__ SplitPair split(float x, float y) {
  const std::uint32_t high = pack<SplitPart>(x, y);
  const float2 rounded = unpack<SplitPart>(high);
  return {high, pack<SplitPart>(x - rounded.x, y - rounded.y)};
}
__device__ __forceinline__ float2 joined(const SplitPair& pair) {
  const float2 high = unpack<SplitPart>(pair.high);
  const float2 low = unpack<SplitPart>(pair.low);
  return {high.x + low.x, high.y + low.y};
}

/// A 16 x 16 block of an operand of mma.
struct SplitBlock {
  std::uint32_t high[4];
  std::uint32_t low[4];

  __device__ void set(int at, const SplitPair& pair) {
    high[at] = pair.high;
    low[at] = pair.low;
  }
};

/// d += a b for a 16 x 16 and kBlocks blocks b of 16 x 16, d two blocks of 16 x 8 for each of b;
/// products that follow one another go to different sums.
template <int kBlocks>
__device__ __forceinline__ void mma_split(float (*d)[4], const SplitBlock& a,
                                          const SplitBlock (&b)[kBlocks]) {
  const auto add = [&](const std::uint32_t(&left)[4], std::uint32_t(SplitBlock::*right)[4]) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      mma_m16n8k16<SplitPart>(d[2 * n], left, (b[n].*right)[0], (b[n].*right)[1]);
      mma_m16n8k16<SplitPart>(d[2 * n + 1], left, (b[n].*right)[2], (b[n].*right)[3]);
    }
  };
  add(a.low, &SplitBlock::high);
  add(a.high, &SplitBlock::low);
  add(a.high, &SplitBlock::high);
}

}  // namespace attune::cuda
