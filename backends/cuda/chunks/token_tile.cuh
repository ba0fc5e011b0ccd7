// Tiles of a chunk's tokens in shared memory, and matrix products of them on wgmma.
//
// A tile holds 64 rows (tokens, or channels of the state) of kD channels as kD / 64 panels of 64
// channels, each of 128-byte rows swizzled as by swizzled(). Fragments are wgmma's: of a 64 x N
// accumulator a thread holds, in every block of 8 columns, two neighbours of row `row` and two of
// row + 8; packed in pairs, 16 columns of it are an operand of the next product.
#pragma once

#include "cuda/chunks/chunk.hpp"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda {

/// Rows, and channels, of the sum in one product.
inline constexpr int kDepth = 16;

template <int kD>
struct TokenTile {
  alignas(1024) unsigned char bytes[kD / kPanelChannels][kPanelBytes];
};

/// Where this thread's elements are in an accumulator of its warpgroup.
struct FragmentLane {
  int thread;  // of its warpgroup
  __device__ FragmentLane() : thread(static_cast<int>(threadIdx.x) % kWarpgroupSize) {}
  __device__ int warp() const { return thread / kWarpSize; }
  __device__ int lane() const { return thread % kWarpSize; }
  /// And row() + 8.
  __device__ int row() const { return warp() * 16 + lane() / 4; }
  /// And column() + 1, of every 8 columns.
  __device__ int column() const { return lane() % 4 * 2; }
  /// Makes the compiler compute again what it computed from it: in a loop, addresses that are cheap
  /// to compute would else fill the registers that accumulators need.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(thread)); }
};

/// Where lanes point ldmatrix and stmatrix for a 16 x 16 block whose fragment is [row][column] in
/// memory, and for one whose fragment is the transpose of what is in memory.
__device__ __forceinline__ std::uint32_t block_address(std::uint32_t panel, int lane, int row,
                                                       int column) {
  return panel + swizzled(static_cast<std::uint32_t>(row + (lane >> 3 & 1) * 8 + (lane & 7)),
                          static_cast<std::uint32_t>(column + (lane >> 4) * 8) * 2);
}
__device__ __forceinline__ std::uint32_t transposed_block_address(std::uint32_t panel, int lane,
                                                                  int row, int column) {
  return panel + swizzled(static_cast<std::uint32_t>(row + (lane >> 4) * 8 + (lane & 7)),
                          static_cast<std::uint32_t>(column + (lane >> 3 & 1) * 8) * 2);
}

#if ATTUNE_SM90A_CODE

/// Descriptor of 16 deep steps of a tile whose channels are summed over.
__device__ __forceinline__ std::uint64_t along_channels(std::uint32_t tile, int step) {
  constexpr int kSteps = kPanelChannels / kDepth;
  return descriptor_further(
      matrix_descriptor(tile),
      static_cast<std::uint32_t>(step / kSteps * kPanelBytes + step % kSteps * kDepth * 2));
}
/// The same where its rows are summed over; panels are `panel_bytes` apart.
__device__ __forceinline__ std::uint64_t along_rows(std::uint32_t tile, int step,
                                                    std::uint32_t panel_bytes = kPanelBytes) {
  return descriptor_further(matrix_descriptor(tile, panel_bytes),
                            static_cast<std::uint32_t>(step * kDepth * 128));
}

/// One product whose width is that of the accumulator.
template <class T, Major kB, int kCount>
__device__ __forceinline__ void multiply(float (&d)[kCount], const std::uint32_t (&a)[4],
                                         std::uint64_t b, bool accumulate) {
  if constexpr (kCount == 32) {
    wgmma_n64<T, kB>(d, a, b, accumulate);
  } else {
    wgmma_n128<T, kB>(d, a, b, accumulate);
  }
}
template <class T, Major kA, Major kB, int kCount>
__device__ __forceinline__ void multiply(float (&d)[kCount], std::uint64_t a, std::uint64_t b,
                                         bool accumulate) {
  if constexpr (kCount == 32) {
    wgmma_n64<T, kA, kB>(d, a, b, accumulate);
  } else {
    wgmma_n128<T, kA, kB>(d, a, b, accumulate);
  }
}

/// d [64, 64] = a b^T of two tiles of tokens, or += that.
template <class T, int kD, bool kAdds = false>
__device__ __forceinline__ void multiply_rows(float (&d)[32], std::uint32_t a, std::uint32_t b) {
#pragma unroll
  for (int step = 0; step < kD / kDepth; ++step) {
    wgmma_n64<T, Major::kK, Major::kK>(d, along_channels(a, step), along_channels(b, step),
                                       kAdds || step > 0);
  }
}

#endif

/// 16 columns of an accumulator, rounded to an operand of a product.
template <class T>
__device__ __forceinline__ void to_operand(std::uint32_t (&operand)[4], const float* x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) operand[i] = pack<T>(x[2 * i], x[2 * i + 1]);
}
template <class T, int kCount>
__device__ __forceinline__ void to_operands(std::uint32_t (&operands)[kCount / 8][4],
                                            const float (&x)[kCount]) {
#pragma unroll
  for (int step = 0; step < kCount / 8; ++step) to_operand<T>(operands[step], &x[8 * step]);
}

template <int kCount>
__device__ __forceinline__ void scale_all(float (&x)[kCount], float factor) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] *= factor;
}

/// Scales the columns of a 64 x 64 accumulator.
__device__ __forceinline__ void scale_columns(float (&x)[32], const float* factors,
                                              const FragmentLane& at) {
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    const float2 f = *reinterpret_cast<const float2*>(&factors[8 * block + at.column()]);
    x[4 * block] *= f.x;
    x[4 * block + 1] *= f.y;
    x[4 * block + 2] *= f.x;
    x[4 * block + 3] *= f.y;
  }
}

/// 64 of a panel's channels by its 64 tokens: the operands of a product over the tokens.
__device__ __forceinline__ void load_transposed(std::uint32_t (&operand)[4][4], std::uint32_t panel,
                                                const FragmentLane& at) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    load_matrices_transposed(
        operand[step], transposed_block_address(panel, at.lane(), kDepth * step, 16 * at.warp()));
  }
}

/// The same with each token's column scaled.
template <class T>
__device__ __forceinline__ void load_transposed_scaled(std::uint32_t (&operand)[4][4],
                                                       std::uint32_t panel, const float* factors,
                                                       const FragmentLane& at) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t pairs[4];
    load_matrices_transposed(
        pairs, transposed_block_address(panel, at.lane(), kDepth * step, 16 * at.warp()));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* at_pair = &factors[kDepth * step + i / 2 * 8 + at.column()];
      const float2 f = *reinterpret_cast<const float2*>(at_pair);
      const float2 x = unpack<T>(pairs[i]);
      operand[step][i] = pack<T>(x.x * f.x, x.y * f.y);
    }
  }
}

/// Rounds 16 columns of an accumulator into a panel, rows to rows.
template <class T>
__device__ __forceinline__ void store_block(std::uint32_t panel, const float* x,
                                            const FragmentLane& at, int step) {
  store_matrices(block_address(panel, at.lane(), 16 * at.warp(), kDepth * step),
                 pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]),
                 pack<T>(x[6], x[7]));
}
/// Rounds an accumulator into a tile.
template <class T, int kCount>
__device__ __forceinline__ void store_rows(std::uint32_t tile, const float (&x)[kCount],
                                           const FragmentLane& at) {
#pragma unroll
  for (int step = 0; step < kCount / 8; ++step) {
    store_block<T>(tile + step / 4 * kPanelBytes, &x[8 * step], at, step % 4);
  }
}

/// Rounds a 64 x 64 accumulator into a panel, rows to columns.
template <class T>
__device__ __forceinline__ void store_transposed(std::uint32_t panel, const float (&x)[32],
                                                 const FragmentLane& at) {
#pragma unroll
  for (int block = 0; block < 4; ++block) {
    const float* e = &x[8 * block];
    store_matrices_transposed(
        transposed_block_address(panel, at.lane(), kDepth * block, 16 * at.warp()),
        pack<T>(e[0], e[1]), pack<T>(e[2], e[3]), pack<T>(e[4], e[5]), pack<T>(e[6], e[7]));
  }
}

/// Halves of x are exchanged with the lane whose bit `kHalf * 2` differs; each lane keeps one.
template <int kHalf>
__device__ __forceinline__ void fold_lanes(float (&x)[16], int lane) {
  constexpr int kMask = kHalf * 2;
  const bool upper = (lane & kMask) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float given = upper ? x[i] : x[i + kHalf];
    const float kept = upper ? x[i + kHalf] : x[i];
    x[i] = kept + __shfl_xor_sync(kFullWarp, given, kMask);
  }
}

/// Sums each column of a warp's 16 x 64 block whose rows were added up in pairs: element 2 b + e is
/// of column 8 b + at.column() + e. Lane l gets the sums of columns 2 l and 2 l + 1.
__device__ __forceinline__ float2 sum_columns(float (&x)[16], const FragmentLane& at) {
  fold_lanes<8>(x, at.lane());
  fold_lanes<4>(x, at.lane());
  fold_lanes<2>(x, at.lane());
  return {x[0], x[1]};
}

/// Products of a 64 x 64 accumulator (channels by tokens) with a panel of tokens, summed over this
/// thread's channels: for sum_columns().
template <class T>
__device__ __forceinline__ void multiply_channels(float (&sums)[16], const float (&x)[32],
                                                  std::uint32_t panel, const FragmentLane& at) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    std::uint32_t pairs[4];
    load_matrices_transposed(
        pairs, transposed_block_address(panel, at.lane(), kDepth * step, 16 * at.warp()));
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // blocks of 8 tokens; pairs 2 i and 2 i + 1 are 8 channels apart
      const float2 upper = unpack<T>(pairs[2 * i]);
      const float2 lower = unpack<T>(pairs[2 * i + 1]);
      const float* e = &x[8 * step + 4 * i];
      sums[4 * step + 2 * i] = upper.x * e[0] + lower.x * e[2];
      sums[4 * step + 2 * i + 1] = upper.y * e[1] + lower.y * e[3];
    }
  }
}

/// The sum over the four lanes that share a row of an accumulator.
__device__ __forceinline__ float sum_row(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}

}  // namespace attune::cuda
