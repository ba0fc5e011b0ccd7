// How a thread of the operand warps changes its channels of a tile in place: q and k become q' and k' of
// operands.cuh.
#pragma once

#include "cuda/chunks/channels/stages.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/f16_pairs.cuh"

namespace attune::cuda::channels {

/// Neighbouring channels in rows of a tile become operands: change(i, values) changes them. All are
/// loaded before the first is stored, as nothing else says that they are different places.
template <class T, class Operand, int kCount, int kWidth, class Shape, class Row, class Change>
__device__ __forceinline__ void change_channels(const Tile<Shape>& tile, int channel, Row&& row,
                                                Change&& change) {
  std::uint32_t pairs[kCount][kWidth / 2];
#pragma unroll
  for (int i = 0; i < kCount; ++i) load_shared_words(pairs[i], tile.at(row(i), channel * 2));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float values[kWidth];
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      const float2 both = unpack<T>(pairs[i][pair]);
      values[2 * pair] = both.x;
      values[2 * pair + 1] = both.y;
    }
    change(i, values);
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      pairs[i][pair] = pack<Operand>(values[2 * pair], values[2 * pair + 1]);
    }
    store_shared_words(tile.at(row(i), channel * 2), pairs[i]);
  }
}

template <int kCount>
__device__ __forceinline__ void multiply(Channels<kCount>& product, const Channels<kCount>& by) {
#pragma unroll
  for (int c = 0; c < kCount; ++c) product.of[c] *= by.of[c];
}

/// q' and k' of a thread's channels and tokens: k' from the last on. The outputs' scale goes into
/// q'.
template <class T, class Operand, class Shape, bool kWithQueries, class Sums>
__device__ __forceinline__ void decay_keys(const Stage<Shape>& stage, const Sums& sums,
                                           float scale) {
  constexpr int kWidth = Sums::kWidth;
  constexpr int kAtOnce = 8;
  static_assert(Sums::kRunTokens % kAtOnce == 0);
  const auto decays = sums.decays();
  typename Sums::Few decay = decays.to_end;
#pragma unroll
  for (int last = Sums::kRunTokens - 1; last > 0; last -= kAtOnce) {
    change_channels<T, Operand, kAtOnce, kWidth>(
        stage.k, Sums::channel(), [&](int i) { return Sums::row(last - i); },
        [&](int i, float(&keys)[kWidth]) {
#pragma unroll
          for (int c = 0; c < kWidth; ++c) keys[c] *= decay.of[c];
          multiply(decay, decays.of[last - i]);
        });
  }
  if constexpr (kWithQueries) {
    decay = decays.from_reference;
#pragma unroll
    for (float& factor : decay.of) factor *= scale;
#pragma unroll
    for (int first = 0; first < Sums::kRunTokens; first += kAtOnce) {
      change_channels<T, Operand, kAtOnce, kWidth>(
          stage.q, Sums::channel(), [&](int i) { return Sums::row(first + i); },
          [&](int i, float(&queries)[kWidth]) {
            multiply(decay, decays.of[first + i]);
#pragma unroll
            for (int c = 0; c < kWidth; ++c) queries[c] *= decay.of[c];
          });
    }
  }
}

/// A tile of another type as operands.
template <class T, class Operand, class Shape>
__device__ __forceinline__ void convert_tile(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kPairs = Shape::kKeys / 2;
  constexpr int kRows = kAtOnce * kOperandThreads / 32;  // of 32 pairs
  static_assert(Shape::kChunk == kRows || 2 * Shape::kChunk == kRows);
  constexpr int kColumns = kRows / Shape::kChunk * 32;
#pragma unroll 1
  for (int column = operand_thread() % kColumns; column < kPairs; column += kColumns) {
    const auto row = [&](int i) { return operand_thread() / kColumns * kAtOnce + i; };
    change_channels<T, Operand, kAtOnce, 2>(tile, 2 * column, row, [](int, float(&)[2]) {});
  }
}

/// A thread's channels and tokens of q' or k', which are bf16, as f16.
template <class Sums, class Shape>
__device__ __forceinline__ void narrow_keys(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kWords = Sums::kWidth / 2;
#pragma unroll
  for (int first = 0; first < Sums::kRunTokens; first += kAtOnce) {
    std::uint32_t words[kAtOnce][kWords];
    const auto at = [&](int i) { return tile.at(Sums::row(first + i), Sums::channel() * 2); };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) load_shared_words(words[i], at(i));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (std::uint32_t& word : words[i]) word = narrowed(word);
      store_shared_words(at(i), words[i]);
    }
  }
}

}  // namespace attune::cuda::channels
