// Products of panels that warpgroups queue and tensor cores take from shared memory by themselves,
// where the code is sm_90a's; elsewhere they are those of panels.cuh. Panels are aligned to 1024 bytes.
#pragma once

#include "cuda/chunk_mma/backward/panels.cuh"
#include "cuda/chunk_mma/split_warpgroup.cuh"
#include "cuda/chunks/token_tile.cuh"

namespace attune::cuda::chunk_mma::backward {

#if ATTUNE_SM90A_CODE

/// How an operand's 16 deep steps are described: its high and its low part, of columns or rows from so
/// many bytes on.
template <Major kMajor>
struct SplitOperand {
  std::uint64_t high;
  std::uint64_t low;

  __device__ __forceinline__ SplitOperand(const Panel& panel, std::uint32_t first_byte) {
    const std::uint32_t address = of_warp(panel.high.at(0, 0) + first_byte);
    high = matrix_descriptor(address);
    low = descriptor_further(high, PanelShape::kPanelBytes);
  }
  __device__ __forceinline__ std::uint64_t at(bool is_high, int step) const {
    constexpr std::uint32_t kStepBytes =
        kMajor == Major::kK ? 16 * sizeof(SplitPart) : 16 * kPanelRowBytes;
    return descriptor_further(is_high ? high : low, step * kStepBytes);
  }
};

/// sums += a b, the small products first.
template <int kCount, Major kA, Major kB>
__device__ __forceinline__ void queue_products(float (&sums)[kCount], const SplitOperand<kA>& a,
                                               const SplitOperand<kB>& b) {
  static_assert(kCount == 16 || kCount == 32);
  constexpr bool kAreHigh[][2] = {{false, true}, {true, false}, {true, true}};
  wgmma_fence();
#pragma unroll
  for (const auto& are_high : kAreHigh) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kCount == 16) {
        wgmma_n32<SplitPart, kA, kB>(sums, a.at(are_high[0], step), b.at(are_high[1], step), true);
      } else {
        wgmma_n64<SplitPart, kA, kB>(sums, a.at(are_high[0], step), b.at(are_high[1], step), true);
      }
    }
  }
  wgmma_commit();
}

#endif

/// Begins sums += a b^T, over channels, of the warpgroup's columns.
template <class Own>
__device__ __forceinline__ void begin_rows(Product<Own>& sums, const Panel& a, const Panel& b) {
#if ATTUNE_SM90A_CODE
  queue_products(accumulator(sums), SplitOperand<Major::kK>(a, 0),
                 SplitOperand<Major::kK>(b, Own::first_column() * kPanelRowBytes));
#else
  multiply_rows<Own>(sums, a, b);
#endif
}
/// Begins sums += a b, over b's rows.
template <class Own>
__device__ __forceinline__ void begin_columns(Product<Own>& sums, const Panel& a, const Panel& b) {
#if ATTUNE_SM90A_CODE
  queue_products(accumulator(sums), SplitOperand<Major::kK>(a, 0),
                 SplitOperand<Major::kMN>(b, Own::first_column() * sizeof(SplitPart)));
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
  queue_products(accumulator(sums), SplitOperand<Major::kMN>(a, 0),
                 SplitOperand<Major::kMN>(b, column * sizeof(SplitPart)));
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

/// Waits for all that the thread's warpgroup has begun.
template <class... Sums>
__device__ __forceinline__ void end_products([[maybe_unused]] Sums&... sums) {
#if ATTUNE_SM90A_CODE
  wgmma_wait<0>();
  (wgmma_pin(accumulator(sums)), ...);
#endif
}

}  // namespace attune::cuda::chunk_mma::backward
