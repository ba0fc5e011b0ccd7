// Panels: 64 rows of 64 channels of f32, in shared memory as a tile of two of bf16
// (split_tiles.cuh), and products of two of them over the warps of a block.
#pragma once

#include "cuda/chunk_mma/backward/chunk_place.cuh"
#include "cuda/chunk_mma/split_tiles.cuh"

namespace attune::cuda::chunk_mma::backward {

/// The warps of a block: four for the rows of a product of 64 x 64, each 16 of them, times so many
/// for its columns. Warpgroups have all rows of some columns; else warps that lie side by side have
/// the same rows, which spreads triangles over the schedulers.
template <int kWarpsForColumns, bool kOfWarpgroups = false>
struct Warps {
  static constexpr int kColumnWarps = kWarpsForColumns;
  static constexpr int kRowWarps = kTokens / 16;
  static constexpr int kWarps = kRowWarps * kColumnWarps;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kColumns = kPanelChannels / kColumnWarps;  // of a warp
  static constexpr int kColumnBlocks = kColumns / 16;

  __device__ static int number() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ static int row_block() {
    return kOfWarpgroups ? number() % kRowWarps : number() / kColumnWarps;
  }
  __device__ static int column_part() {
    return kOfWarpgroups ? number() / kRowWarps : number() % kColumnWarps;
  }
  __device__ static int first_column() { return column_part() * kColumns; }
  /// Element [n][e] of a lane's Product is that of row row(e), column column(n, e).
  __device__ static int row(int e) {
    return 16 * row_block() + static_cast<int>(threadIdx.x) % kWarpSize / 4 + e / 2 * 8;
  }
  __device__ static int column(int n, int e) {
    return first_column() + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
  }
};

/// What Tile asks of a shape.
struct PanelShape {
  static constexpr int kPanelBytes = kTokens * kPanelRowBytes;
};
using Panel = SplitTile<PanelShape>;
static_assert(kPanelBytes == 2 * PanelShape::kPanelBytes);

/// The number-th panel of a block's shared memory.
__device__ __forceinline__ Panel panel_at(const std::byte* memory, int number) {
  return {shared_address(memory) + number * kPanelBytes, PanelShape::kPanelBytes};
}

/// What one thread loads of a panel: four channels of every kRows-th row.
template <class Own>
class LoadedPanel {
 public:
  static constexpr int kPerLoad = 4;
  static constexpr int kLanes = kPanelChannels / kPerLoad;
  static constexpr int kRows = Own::kThreads / kLanes;  // at a time
  static constexpr int kLoads = kTokens / kRows;

  __device__ static int channel() { return static_cast<int>(threadIdx.x) % kLanes * kPerLoad; }
  __device__ static int row(int i) { return i * kRows + static_cast<int>(threadIdx.x) / kLanes; }

  /// Begins to load it. What stands in for rows and channels that do not exist are others: a branch
  /// around a load would be waited for. kQuads: four channels may be loaded at once, where the last of
  /// a row are zeros if it has no whole quads, and steps are short (BackwardParams::quads).
  template <bool kQuads>
  __device__ __forceinline__ void fetch(const PlacedRows& from, int rows, int channels) {
    const int valid = min(max(channels - channel(), 0), kPerLoad);
    rows_ = from.exist && valid > 0 ? rows : 0;
    const float* const first = from.first + min(channel(), (channels - 1) / kPerLoad * kPerLoad);
    const auto load = [valid](const float* at, int e) { return e < valid ? __ldg(at + e) : 0.0F; };
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = min(row(i), rows - 1);
      if constexpr (kQuads) {
        loaded_[i] =
            __ldg(reinterpret_cast<const float4*>(first + at * static_cast<int>(from.step)));
      } else {
        const float* const quad = first + at * from.step;
        loaded_[i] = {load(quad, 0), load(quad, 1), load(quad, 2), load(quad, 3)};
      }
    }
  }
  /// Waits for it: four channels of row(i), zeros where there are none.
  __device__ __forceinline__ float4 quad(int i) const {
    const bool exists = row(i) < rows_;
    const float4& x = loaded_[i];
    return {exists ? x.x : 0.0F, exists ? x.y : 0.0F, exists ? x.z : 0.0F, exists ? x.w : 0.0F};
  }
  /// Adds another one, each row times factor_of(row).
  template <class Factor>
  __device__ __forceinline__ void add(const LoadedPanel& other, Factor&& factor_of) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float factor = factor_of(min(row(i), max(rows_, 1) - 1));
      loaded_[i].x = fmaf(other.loaded_[i].x, factor, loaded_[i].x);
      loaded_[i].y = fmaf(other.loaded_[i].y, factor, loaded_[i].y);
      loaded_[i].z = fmaf(other.loaded_[i].z, factor, loaded_[i].z);
      loaded_[i].w = fmaf(other.loaded_[i].w, factor, loaded_[i].w);
    }
  }
  /// Multiplies each row by factor_of(row).
  template <class Factor>
  __device__ __forceinline__ void scale(Factor&& factor_of) {
    multiply([&](int row) {
      const float factor = factor_of(row);
      return float4{factor, factor, factor, factor};
    });
  }
  /// Multiplies the quad of each row by factors_of(row).
  template <class Factors>
  __device__ __forceinline__ void multiply(Factors&& factors_of) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float4 factors = factors_of(row(i));
      loaded_[i].x *= factors.x;
      loaded_[i].y *= factors.y;
      loaded_[i].z *= factors.z;
      loaded_[i].w *= factors.w;
    }
  }
  /// Splits what was loaded, each row times factor_of(row).
  template <class Factor>
  __device__ __forceinline__ void store(const Panel& to, std::byte* memory,
                                        Factor&& factor_of) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float factor = factor_of(row(i));
      const float4 x = quad(i);
      const SplitPair left = split(x.x * factor, x.y * factor);
      const SplitPair right = split(x.z * factor, x.w * factor);
      *place(to.high, memory, i) = {left.high, right.high};
      *place(to.low, memory, i) = {left.low, right.low};
    }
  }
  __device__ __forceinline__ void store(const Panel& to, std::byte* memory) const {
    store(to, memory, [](int) { return 1.0F; });
  }
  /// Calls visit(row, sum) with the sum of the thread's products of a row with those of another one.
  template <class Visit>
  __device__ __forceinline__ void products_with(const LoadedPanel& other, Visit&& visit) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float4 x = quad(i);
      const float4 y = other.quad(i);
      visit(row(i), fmaf(x.x, y.x, x.y * y.y) + fmaf(x.z, y.z, x.w * y.w));
    }
  }

 private:
  __device__ static uint2* place(const Tile<PanelShape>& tile, std::byte* memory, int i) {
    return reinterpret_cast<uint2*>(memory +
                                    (tile.at(row(i), channel() * 2) - shared_address(memory)));
  }

  float4 loaded_[kLoads];
  int rows_ = 0;  // that exist, of the thread's channels
};

/// Two neighbouring elements of a panel.
__device__ __forceinline__ void store_pair(const Panel& to, int row, int column,
                                           const SplitPair& pair) {
  store_shared_4(to.high.at(row, column * 2), pair.high);
  store_shared_4(to.low.at(row, column * 2), pair.low);
}
__device__ __forceinline__ float2 load_pair(const Panel& from, int row, int column) {
  return joined(
      {load_shared_4(from.high.at(row, column * 2)), load_shared_4(from.low.at(row, column * 2))});
}

/// The sum over the threads that load the same row of a panel.
__device__ __forceinline__ float sum_of_loads(float x) {
#pragma unroll
  for (int apart = 8; apart > 0; apart /= 2) x += __shfl_xor_sync(kFullWarp, x, apart);
  return x;
}

// Products of 64 x 64.

inline constexpr int kSteps = kTokens / 16;

template <class Own>
using Product = float[2 * Own::kColumnBlocks][4];

/// sums += left right over steps [first, end) of 16: left(step) is the warp's 16 rows, and
/// right(step, column) 16 columns.
template <class Own, class Left, class Right>
__device__ __forceinline__ void multiply(Product<Own>& sums, int first, int end, Left&& left,
                                         Right&& right) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step < first || step >= end) continue;
    const SplitBlock a = left(step);
    SplitBlock b[Own::kColumnBlocks];
#pragma unroll
    for (int n = 0; n < Own::kColumnBlocks; ++n) b[n] = right(step, Own::first_column() + 16 * n);
    mma_split(sums, a, b);
  }
}

/// sums += a b^T, over channels.
template <class Own>
__device__ __forceinline__ void multiply_rows(Product<Own>& sums, const Panel& a, const Panel& b) {
  multiply<Own>(
      sums, 0, kSteps, [&](int step) { return a.down(16 * Own::row_block(), 16 * step); },
      [&](int step, int column) { return b.across(column, 16 * step); });
}
/// sums += a b, over b's rows [16 first, 16 end).
template <class Own>
__device__ __forceinline__ void multiply_columns(Product<Own>& sums, const Panel& a, const Panel& b,
                                                 int first, int end) {
  multiply<Own>(
      sums, first, end, [&](int step) { return a.down(16 * Own::row_block(), 16 * step); },
      [&](int step, int column) { return b.down_transposed(16 * step, column); });
}
/// sums += a^T b, over their rows [16 first, 16 end).
template <class Own>
__device__ __forceinline__ void multiply_transposed(Product<Own>& sums, const Panel& a,
                                                    const Panel& b, int first, int end) {
  multiply<Own>(
      sums, first, end,
      [&](int step) { return a.across_transposed(16 * step, 16 * Own::row_block()); },
      [&](int step, int column) { return b.down_transposed(16 * step, column); });
}

/// Calls visit(element, row, column) for a lane's elements.
template <class Own, class Sums, class Visit>
__device__ __forceinline__ void for_each(Sums& sums, Visit&& visit) {
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) visit(sums[n][e], Own::row(e), Own::column(n, e));
  }
}

/// Calls visit(n, half, row, column) for the pairs of a lane's elements, [n][2 half] and the next.
template <class Own, class Visit>
__device__ __forceinline__ void for_each_pair(Visit&& visit) {
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      visit(n, half, Own::row(2 * half), Own::column(n, 0));
    }
  }
}

template <class Sums>
__device__ __forceinline__ void add(Sums& to, const Sums& sums) {
#pragma unroll
  for (std::size_t n = 0; n < std::size(to); ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) to[n][e] += sums[n][e];
  }
}

template <class Sums>
__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (auto& block : sums) {
#pragma unroll
    for (float& sum : block) sum = 0.0F;
  }
}

}  // namespace attune::cuda::chunk_mma::backward
