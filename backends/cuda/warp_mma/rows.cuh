// What a lane has of a chunk's rows, and how it comes by it: through shared memory, a few chunks ahead,
// each lane what it reads itself.
//
// Of a tile of 16 tokens by 16 or 32 channels, lane 4 g + t has tokens 2 g and 2 g + 1, and of each as
// many channels, one after the other, as a quarter of the tile's: copies are as wide as these. As an
// operand of mma a lane would have rows g and g + 8, and columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of
// every sixteen. In which order a product's rows, columns and summands come is open, as long as its
// operands have the same, so tokens and channels count as these.
#pragma once

#include "cuda/chunks/views.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/word_copies.cuh"
#include "cuda/warp_mma/params.hpp"

namespace attune::cuda::warp_mma {

/// A lane's place in its warp's tiles.
struct Lane {
  int number = static_cast<int>(threadIdx.x) % kWarpSize;
  int row = number / 4;
  int quarter = number % 4;

  /// The first of its two tokens, or the second.
  __device__ __forceinline__ int token(int i) const { return 2 * row + i; }
};

/// A lane's channels of a chunk's rows, four a quad.
template <class T, int kWidth>
struct Rows {
  static constexpr int kQuads = kWidth / 16;
  static constexpr int kWords = sizeof(T);  // of a quad
  std::uint32_t words[2][kQuads][kWords];

  /// Channel n of the lane's token i.
  __device__ __forceinline__ float at(int i, int n) const {
    if constexpr (kWords == 4) {
      return __uint_as_float(words[i][n / 4][n % 4]);
    } else {
      const float2 pair = unpack<T>(words[i][n / 4][n % 4 / 2]);
      return n % 2 == 0 ? pair.x : pair.y;
    }
  }
};

/// A gate's, which may be of another type than the rest: those of 16 bits have half of each quad.
template <class T, int kWidth>
struct GateRows : Rows<float, kWidth> {
  bool is_f32 = true;

  __device__ __forceinline__ float at(int i, int n) const {
    if constexpr (sizeof(T) < sizeof(float)) {
      if (!is_f32) {
        const float2 pair = unpack<T>(this->words[i][n / 4][n % 4 / 2]);
        return n % 2 == 0 ? pair.x : pair.y;
      }
    }
    return Rows<float, kWidth>::at(i, n);
  }
};

/// The rows of a head, chunk by chunk.
struct RowCursor {
  std::byte* at = nullptr;  // the lane's first channel of its first token in the chunk
  std::int64_t step = 0;    // bytes to the next token
  int channels = 0;         // from the lane's first one on; 0 or less: none

  template <class T>
  __device__ __forceinline__ T* row(int i) const {
    return reinterpret_cast<T*>(at + i * step);
  }
  /// To a chunk further on, or one back.
  __device__ __forceinline__ void move(int chunks) { at += chunks * (kChunk * step); }
};

/// Where a lane's quads of a tensor lie in a stage, a warp's side by side; kBytes each.
template <int kWidth, int kBytes>
struct QuadPlaces {
  static constexpr int kQuads = kWidth / 16;
  static constexpr int kAll = 2 * kQuads * kWarpSize * kBytes;  // bytes

  __device__ __forceinline__ static std::uint32_t of(std::uint32_t stage, int i, int quad,
                                                     int lane) {
    return stage + static_cast<std::uint32_t>(((i * kQuads + quad) * kWarpSize + lane) * kBytes);
  }
};

/// Copies quads of T; zeros where there is none. exist[i]: whether the lane's token i does.
template <class T, class Places>
__device__ __forceinline__ void copy_quads(std::uint32_t stage, const RowCursor& cursor,
                                           const bool (&exist)[2], const Lane& lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int quad = 0; quad < Places::kQuads; ++quad) {
      const bool exists = exist[i] && 4 * quad < cursor.channels;
      const T* const from = cursor.row<const T>(i) + 4 * quad;
      const std::uint32_t to = Places::of(stage, i, quad, lane.number);
      if constexpr (sizeof(T) == sizeof(float)) {
        copy_async_16(to, from, exists);
      } else {
        copy_async_8(to, from, exists);
      }
    }
  }
}

/// Channels one by one, as f32.
template <class T, class Places>
__device__ __forceinline__ void copy_singles(std::uint32_t stage, const RowCursor& cursor,
                                             const bool (&exist)[2], const Lane& lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll 1
    for (int n = 0; n < 4 * Places::kQuads; ++n) {
      const bool exists = exist[i] && n < cursor.channels;
      const T* const from = cursor.row<const T>(i) + n;
      const std::uint32_t to = Places::of(stage, i, n / 4, lane.number) + 4 * (n % 4);
      if constexpr (sizeof(T) == sizeof(float)) {
        copy_async_4(to, from, exists);
      } else {
        store_shared_4(to, exists ? __float_as_uint(to_float(*from)) : 0);
      }
    }
  }
}

template <class T, class Places>
__device__ __forceinline__ void copy_gates(std::uint32_t stage, const WalkGate& gate,
                                           const RowCursor& cursor, const bool (&exist)[2],
                                           const Lane& lane) {
  if (gate.vectors && gate.view.is_f32)
    return copy_quads<float, Places>(stage, cursor, exist, lane);
  if (gate.vectors) return copy_quads<T, Places>(stage, cursor, exist, lane);
  if (gate.view.is_f32) return copy_singles<float, Places>(stage, cursor, exist, lane);
  copy_singles<T, Places>(stage, cursor, exist, lane);
}

/// Takes them from a stage.
template <class Places, class T, int kWidth>
__device__ __forceinline__ void take_rows(Rows<T, kWidth>& rows, std::uint32_t stage,
                                          const Lane& lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int quad = 0; quad < Places::kQuads; ++quad) {
      const std::uint32_t from = Places::of(stage, i, quad, lane.number);
      auto& words = rows.words[i][quad];
      if constexpr (Rows<T, kWidth>::kWords == 4) {
        const uint4 loaded = load_shared_16(from);
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
      } else {
        load_shared_words(words, from);
      }
    }
  }
}

}  // namespace attune::cuda::warp_mma
