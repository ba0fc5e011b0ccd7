// Products of split operands that a warpgroup queues and tensor cores take from shared memory by
// themselves, where the code is sm_90a's. A warpgroup has 64 value channels, 16 a warp: fragments of
// its operand in registers and of its sums are those of mma.sync.
#pragma once

#include "cuda/chunk_mma/split_tiles.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::chunk_mma {

inline constexpr int kWarpgroupAlignment = 1024;  // of tiles

#if ATTUNE_SM90A_CODE

/// The number that all lanes of a warp have, as the compiler cannot see.
__device__ __forceinline__ std::uint32_t of_warp(std::uint32_t number) {
  return __shfl_sync(kFullWarp, number, 0);
}

/// The elements of a fragment as an accumulator.
template <class Sums>
__device__ __forceinline__ auto& accumulator(Sums& sums) {
  return reinterpret_cast<float(&)[sizeof(Sums) / sizeof(float)]>(sums);
}

/// How the 16 deep steps of a tile are described, from a panel's first channel on: of its channels
/// (kK), or of its tokens (kMN), where a product has 64 channels.
template <class Shape, Major kMajor>
class SplitSteps {
 public:
  __device__ __forceinline__ SplitSteps(const SplitTile<Shape>& tile, int channel)
      : high_(matrix_descriptor(of_warp(tile.high.at(0, channel * 2)))),
        low_(descriptor_further(high_, of_warp(tile.low.at(0, 0) - tile.high.at(0, 0)))) {}

  __device__ __forceinline__ std::uint64_t high(int step) const {
    return descriptor_further(high_, offset(step));
  }
  __device__ __forceinline__ std::uint64_t low(int step) const {
    return descriptor_further(low_, offset(step));
  }

 private:
  __device__ static constexpr std::uint32_t offset(int step) {
    constexpr int kOfPanel = kPanelChannels / 16;
    return kMajor == Major::kK ? step / kOfPanel * Shape::kPanelBytes + step % kOfPanel * 32
                               : step * 16 * kPanelRowBytes;
  }

  std::uint64_t high_;
  std::uint64_t low_;
};

template <Major kB>
__device__ __forceinline__ void queue(float (&sums)[16], const std::uint32_t (&a)[4],
                                      std::uint64_t b, bool accumulate) {
  wgmma_n32<SplitPart, kB>(sums, a, b, accumulate);
}
template <Major kB>
__device__ __forceinline__ void queue(float (&sums)[32], const std::uint32_t (&a)[4],
                                      std::uint64_t b, bool accumulate) {
  wgmma_n64<SplitPart, kB>(sums, a, b, accumulate);
}

/// sums += a b for a step of b, the small products first; sums = a b where it is the first.
template <Major kB, class Shape, int kCount>
__device__ __forceinline__ void queue_split(float (&sums)[kCount], const SplitBlock& a,
                                            const SplitSteps<Shape, kB>& b, int step) {
  queue<kB>(sums, a.low, b.high(step), step > 0);
  queue<kB>(sums, a.high, b.low(step), true);
  queue<kB>(sums, a.high, b.high(step), true);
}

/// Behind the wait for products of it (wgmma_hold()).
__device__ __forceinline__ void hold(const SplitBlock& a) {
  wgmma_hold(a.high);
  wgmma_hold(a.low);
}

#endif

/// Orders what the thread has stored before products of it; goes before the barrier.
__device__ __forceinline__ void hand_to_products() {
#if ATTUNE_SM90A_CODE
  async_proxy_fence();
#endif
}

}  // namespace attune::cuda::chunk_mma
