// Operands of products on tensor cores: what a warp's part of a state is multiplied with.
#pragma once

#include "cuda/decode/product_factors.cuh"
#include "cuda/decode/product_tile.cuh"
#include "cuda/tiles/tf32.cuh"

namespace attune::cuda::decode {

/// What the tokens at places first + lane % 4, and the fourth behind it, have of the thread's columns
/// 2 m and 2 m + 1. exists(place): else it is zero.
template <class Tile>
struct TokenValues {
  float left[Tile::kColumns / 2][4];
};
template <class T, class Tile, class Exists>
__device__ __forceinline__ TokenValues<Tile> load_values(const ProductScratch<T>& scratch,
                                                         const StepLane& lane, int first,
                                                         const Exists& exists) {
  TokenValues<Tile> loaded;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int place = first + lane_index() % 4 + 4 * n;
    const bool is_there = exists(place);
    const T* const values = scratch.values + place * kTokenStride + lane.column;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(values + Tile::column_offset(2 * m));
      const float2 pair = unpack<T>(is_there ? *from : 0);
      loaded.left[m][2 * n] = pair.x;
      loaded.left[m][2 * n + 1] = pair.y;
    }
  }
  return loaded;
}

/// d += left right, where the left side is of 16 bits and the right one is not.
__device__ __forceinline__ void multiply_exact(float (&d)[4], const float (&left)[4],
                                               const RightOperand<2>& right) {
  mma_m16n8k8(d, left, right.low[0], right.low[1]);
  mma_m16n8k8(d, left, right.high[0], right.high[1]);
}
/// What two tokens that follow each other have of the thread's columns 2 m and 2 m + 1, side by side.
template <class Tile>
struct TokenPairs {
  std::uint32_t left[Tile::kColumns / 2][2];
};
/// Of the tokens at `place` and behind it, of `stored` ones.
template <class T, class Tile>
__device__ __forceinline__ TokenPairs<Tile> load_pairs(const ProductScratch<T>& scratch,
                                                       const StepLane& lane, int place,
                                                       int stored) {
  TokenPairs<Tile> loaded;
  const T* const values = scratch.values + place * kTokenStride + lane.column;
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const auto columns_of = [&](int n) -> std::uint32_t {
      const T* const from = values + n * kTokenStride + Tile::column_offset(2 * m);
      return place + n < stored ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
    };
    const std::uint32_t first = columns_of(0), second = columns_of(1);
    loaded.left[m][0] = __byte_perm(first, second, 0x5410);
    loaded.left[m][1] = __byte_perm(first, second, 0x7632);
  }
  return loaded;
}
/// d += a b for a 16 x 8, b 8 x 8, d 16 x 8 over a warp. (PTX ISA 9.0, 9.7.14.5.14 mma)
__device__ __forceinline__ void mma_of_pairs(float (&d)[4], const std::uint32_t (&a)[2],
                                             std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}
/// Two numbers, each as a sum of two in bf16.
struct RightPairs {
  std::uint32_t high, low;
  __device__ __forceinline__ RightPairs(float x, float y) {
    high = pack<__nv_bfloat16>(x, y);
    const float2 cut = unpack<__nv_bfloat16>(high);
    low = pack<__nv_bfloat16>(x - cut.x, y - cut.y);
  }
};
/// What of a number TF32 does not hold.
__device__ __forceinline__ void low_parts(float (&low)[4], const float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) low[i] = x[i] - truncate_tf32(x[i]);
}

/// Where channels have decays of their own: tables of factors, which are sums of two numbers.
template <class T, class Tile>
struct ChannelOperands {
  const float *reads, *writes, *kept;
  TokenValues<Tile> values;

  __device__ __forceinline__ ChannelOperands(const StepParams&, const ProductScratch<T>& scratch,
                                             const StepLane& lane, const ProductRow& row) {
    const int first_eight = lane.warp_k * (Tile::kWarpRows / kFactorRows);
    reads = scratch.reads + first_eight * kFactorStride + lane_index() * 2;
    writes = scratch.writes + first_eight * kFactorStride + lane_index() * 2;
    kept = scratch.kept + lane.row;
    values = load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < row.stored; });
  }
  __device__ __forceinline__ static RightOperand<2> operand(const float* factors) {
    const float2 pair = *reinterpret_cast<const float2*>(factors);
    RightOperand<2> right;
    right.set(0, pair.x);
    right.set(1, pair.y);
    return right;
  }
  /// Of a warp's rows 8 n ...
  __device__ __forceinline__ RightOperand<2> read(int n) const {
    return operand(reads + n * kFactorStride);
  }
  __device__ __forceinline__ RightOperand<2> write(int n, int) const {
    return operand(writes + n * kFactorStride);
  }
  __device__ __forceinline__ float2 decay(int n) const {
    return *reinterpret_cast<const float2*>(kept + n * kFactorRows);
  }

  /// u += what the tokens write to columns 2 m and 2 m + 1 of two rows.
  __device__ __forceinline__ void add_writes(float (&u)[4], int m,
                                             const RightOperand<2>& write) const {
    multiply_exact(u, values.left[m], write);
  }
  /// o += what the tokens read of two columns of two rows.
  __device__ __forceinline__ static void add_reads(float (&o)[4], const float (&state)[4],
                                                   const RightOperand<2>& read) {
    if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
      float low[4];
      low_parts(low, state);
      mma_m16n8k8(o, low, read.high[0], read.high[1]);
    }
    multiply_exact(o, state, read);
  }
  /// Makes sums of reads into outputs.
  __device__ __forceinline__ void finish(float (&)[Tile::kColumns / 2][4]) const {}
};

/// Where a head has one decay a token: the tokens, whose factors are those of keys and of sums. What is
/// written to a state in 16 bits is a product in bf16, if the tokens are: of up to four tokens, whose
/// factors' low parts are those of four more, else of eight, twice.
template <class T, class Tile>
struct HeadOperands {
  struct Queries {
    float x[2];
  };
  static constexpr bool kPairs =
      std::is_same_v<T, __nv_bfloat16> && sizeof(typename Tile::State) < sizeof(float);
  using Values = std::conditional_t<kPairs, TokenPairs<Tile>, TokenValues<Tile>>;
  using Write = std::conditional_t<kPairs, RightPairs, RightOperand<2>>;
  const T *queries, *keys;
  float kept;
  float of_keys[2], of_reads[2];
  bool few;  // tokens are stored
  Values values;

  __device__ __forceinline__ HeadOperands(const StepParams& p, const ProductScratch<T>& scratch,
                                          const StepLane& lane, const ProductRow& row) {
    const int g = lane_index() / 4, c = lane_index() % 4;
    const int first_row = lane.warp_k * Tile::kWarpRows;
    few = row.stored <= kProductTokens / 2;
    queries = scratch.queries + min(g, p.tokens - 1) * kTokenStride + first_row + 2 * c;
    keys = scratch.keys + token(0) * kTokenStride + first_row + g;
    kept = scratch.writes[0];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      of_reads[n] = scratch.reads[p.committed_tokens + 2 * c + n];
      of_keys[n] = scratch.writes[token(n) + 1];
    }
    if constexpr (kPairs) {
      values = load_pairs<T, Tile>(scratch, lane, token(0), row.stored);
    } else {
      const auto exists = [&](int place) { return place < row.stored; };
      values = load_values<T, Tile>(scratch, lane, 0, exists);
    }
  }
  /// Of those that the lane has the factors of, two.
  __device__ __forceinline__ int token(int i) const {
    const int c = lane_index() % 4;
    if constexpr (kPairs) return 2 * (few ? c % 2 : c) + i;
    return c + 4 * i;
  }
  /// Of a warp's rows 8 n ...
  __device__ __forceinline__ Queries read(int n) const {
    const float2 pair =
        unpack<T>(*reinterpret_cast<const std::uint32_t*>(queries + n * kFactorRows));
    return {pair.x, pair.y};
  }
  __device__ __forceinline__ Write write(int n, int stored) const {
    constexpr int kApart = (kPairs ? 1 : 4) * kTokenStride;
    const auto factor = [&](int i) {
      const T* const key = keys + i * kApart + n * kFactorRows;
      return token(i) < stored ? to_float(*key) * of_keys[i] : 0.0F;
    };
    if constexpr (kPairs) {
      Write right(factor(0), factor(1));
      if (few && lane_index() % 4 < 2) right.low = right.high;
      return right;
    } else {
      Write right;
      right.set(0, factor(0));
      right.set(1, factor(1));
      return right;
    }
  }
  __device__ __forceinline__ void add_writes(float (&u)[4], int m, const Write& write) const {
    if constexpr (kPairs) {
      mma_of_pairs(u, values.left[m], write.low);
      if (!few) mma_of_pairs(u, values.left[m], write.high);
    } else {
      multiply_exact(u, values.left[m], write);
    }
  }
  __device__ __forceinline__ float2 decay(int) const { return {kept, kept}; }

  __device__ __forceinline__ static void add_reads(float (&o)[4], const float (&state)[4],
                                                   const Queries& read) {
    if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
      float low[4];
      low_parts(low, state);
      mma_m16n8k8(o, low, read.x[0], read.x[1]);
    }
    mma_m16n8k8(o, state, read.x[0], read.x[1]);
  }
  __device__ __forceinline__ void finish(float (&o)[Tile::kColumns / 2][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[m][e] *= of_reads[e % 2];
    }
  }
};

template <class T, class Tile, bool kOfChannels>
using ProductOperands =
    std::conditional_t<kOfChannels, ChannelOperands<T, Tile>, HeadOperands<T, Tile>>;

}  // namespace attune::cuda::decode
