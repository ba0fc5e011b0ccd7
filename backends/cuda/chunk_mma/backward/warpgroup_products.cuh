// Products of panels that warpgroups queue and tensor cores take from shared memory by themselves,
// where the code is sm_90a's; elsewhere they are those of panels.cuh. Panels are aligned to 1024 bytes.
#pragma once

#include "cuda/chunk_mma/backward/panels.cuh"
#include "cuda/chunks/token_tile.cuh"

namespace attune::cuda::chunk_mma::backward {

inline constexpr int kWarpgroupAlignment = 1024;

#if ATTUNE_SM90A_CODE

/// sums += a b of split operands, the small products first: a(tile, step) and b(tile, step) describe
/// 16 deep steps of a part.
template <Major kA, Major kB, int kCount, class A, class B>
__device__ __forceinline__ void queue_products(float (&sums)[kCount], const Panel& left,
                                               const Panel& right, A&& a, B&& b) {
  static_assert(kCount == 16 || kCount == 32);
  const std::uint32_t lefts[] = {left.low.at(0, 0), left.high.at(0, 0), left.high.at(0, 0)};
  const std::uint32_t rights[] = {right.high.at(0, 0), right.low.at(0, 0), right.high.at(0, 0)};
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kCount == 16) {
        wgmma_n32<SplitPart, kA, kB>(sums, a(lefts[part], step), b(rights[part], step), true);
      } else {
        wgmma_n64<SplitPart, kA, kB>(sums, a(lefts[part], step), b(rights[part], step), true);
      }
    }
  }
  wgmma_commit();
}

/// The elements of a Product as an accumulator.
template <class Sums>
__device__ __forceinline__ auto& accumulator(Sums& sums) {
  return reinterpret_cast<float(&)[sizeof(Sums) / sizeof(float)]>(sums);
}

#endif

/// Begins sums += a b^T, over channels, of the warpgroup's columns.
template <class Own>
__device__ __forceinline__ void begin_rows(Product<Own>& sums, const Panel& a, const Panel& b) {
#if ATTUNE_SM90A_CODE
  const std::uint32_t first = Own::first_column() * kPanelRowBytes;
  queue_products<Major::kK, Major::kK>(
      accumulator(sums), a, b,
      [](std::uint32_t tile, int step) { return along_channels(tile, step); },
      [first](std::uint32_t tile, int step) { return along_channels(tile + first, step); });
#else
  multiply_rows<Own>(sums, a, b);
#endif
}
/// Begins sums += a b, over b's rows.
template <class Own>
__device__ __forceinline__ void begin_columns(Product<Own>& sums, const Panel& a, const Panel& b) {
#if ATTUNE_SM90A_CODE
  const std::uint32_t first = Own::first_column() * sizeof(SplitPart);
  queue_products<Major::kK, Major::kMN>(
      accumulator(sums), a, b,
      [](std::uint32_t tile, int step) { return along_channels(tile, step); },
      [first](std::uint32_t tile, int step) { return along_rows(tile + first, step); });
#else
  multiply_columns<Own>(sums, a, b, 0, kSteps);
#endif
}

/// Begins sums = a^T b, over their rows: the thread's warp has the 16 rows from `row` on, channels of a,
/// and the columns from `column` on, channels of b.
template <int kCount>
__device__ __forceinline__ void begin_transposed(float (&sums)[kCount][4], const Panel& a,
                                                 [[maybe_unused]] int row, const Panel& b,
                                                 int column) {
  clear(sums);
#if ATTUNE_SM90A_CODE
  const std::uint32_t first = column * sizeof(SplitPart);
  queue_products<Major::kMN, Major::kMN>(
      accumulator(sums), a, b, [](std::uint32_t tile, int step) { return along_rows(tile, step); },
      [first](std::uint32_t tile, int step) { return along_rows(tile + first, step); });
#else
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const SplitBlock left = a.across_transposed(16 * step, row);
#pragma unroll
    for (int n = 0; n < kCount; n += 4) {
      const SplitBlock right[] = {b.down_transposed(16 * step, column + 8 * n),
                                  b.down_transposed(16 * step, column + 8 * n + 16)};
      mma_split(&sums[n], left, right);
    }
  }
#endif
}

/// Orders what the thread has stored before products of it; goes before the barrier.
__device__ __forceinline__ void hand_to_products() {
#if ATTUNE_SM90A_CODE
  async_proxy_fence();
#endif
}

/// Waits for all that the thread's warpgroup has begun.
template <class... Sums>
__device__ __forceinline__ void end_products([[maybe_unused]] Sums&... sums) {
#if ATTUNE_SM90A_CODE
  wgmma_wait<0>();
  (wgmma_pin(accumulator(sums)), ...);
#endif
}

}  // namespace attune::cuda::chunk_mma::backward
