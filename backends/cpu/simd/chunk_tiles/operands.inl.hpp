// From rows of tokens to operands of tile products.
//
// Rows come from a source: `vector(t, i)` are 16 channels of token t as fp32, `row(t, i)` 32 of
// them as bf16, and `pair(t, i)` 16 channels of tokens t and t + 1 as pairs of bf16. Sources differ
// in what they multiply by on the way. Rounding to bf16 is to nearest even; denormals become zero.
#pragma once

#include "cpu/simd/vector/panels.inl.hpp"
#include "registers.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// ---- bf16 ----

typedef std::uint16_t Halves __attribute__((vector_size(64)));

// 32 channels: `first`, then `second`.
[[gnu::always_inline]] inline F32 join_bf16(F32 first, F32 second) {
#if defined(__AVX512BF16__)
  return (F32)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
  const U16 halves[2] = {narrow_bf16(first), narrow_bf16(second)};
  F32 joined;
  __builtin_memcpy(&joined, halves, sizeof(joined));
  return joined;
#endif
}

// Pairs: lane i is `first[i]` in the lower half and `second[i]` in the upper one.
[[gnu::always_inline]] inline F32 pair_bf16(F32 first, F32 second) {
  const auto from = (Halves)join_bf16(first, second);
  return (F32)__builtin_shufflevector(from, from, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                      7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                      15, 31);
}

[[gnu::always_inline]] inline U16 load_halves(const char* source) {
  U16 halves;
  __builtin_memcpy(&halves, source, sizeof(halves));
  return halves;
}

// 16 of them as fp32: one shuffle, where a conversion takes a shuffle and a shift.
template <std::size_t... kIndex>
[[gnu::always_inline]] inline F32 widen_halves_at(const char* source,
                                                  std::index_sequence<kIndex...>) {
#if defined(__AVX512BW__)
  const Halves lanes = {(kIndex / 2)...};
  __m256i halves;
  __builtin_memcpy(&halves, source, sizeof(halves));
  constexpr __mmask32 kUpper = 0xaaaaaaaaU;
  return (F32)_mm512_maskz_permutexvar_epi16(kUpper, (__m512i)lanes,
                                             _mm512_castsi256_si512(halves));
#else
  return widen_bf16(load_halves(source));
#endif
}

// ---- transposing ----

template <int kStep, std::size_t... kIndex>
[[gnu::always_inline]] inline void exchange(F32& a, F32& b, std::index_sequence<kIndex...>) {
  const F32 upper = __builtin_shufflevector(
      a, b, (int(kIndex) & kStep ? int(kIndex) - kStep + kLanes : int(kIndex))...);
  b = __builtin_shufflevector(
      a, b, (int(kIndex) & kStep ? int(kIndex) + kLanes : int(kIndex) + kStep)...);
  a = upper;
}

template <int kStep>
[[gnu::always_inline]] inline void exchange_all(F32 (&x)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & kStep) == 0) {
      exchange<kStep>(x[i], x[i + kStep], std::make_index_sequence<kLanes>());
    }
  }
}

// x[i][j] and x[j][i] change places.
[[gnu::always_inline]] inline void transpose(F32 (&x)[16]) {
  exchange_all<8>(x);
  exchange_all<4>(x);
  exchange_all<2>(x);
  exchange_all<1>(x);
}

[[gnu::always_inline]] inline void store_rows(float* tile, const F32 (&x)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) store(tile + i * kLanes, x[i]);
}

// ---- sources ----

// Rows of bf16, contiguous: those of a tensor are often a power of two apart, and then a chunk of
// them fits into few sets of a cache. Those of missing tokens are zeros.
struct HalfRows {
  const char* of[kMaxChunk];

  [[gnu::always_inline]] F32 vector(std::int64_t t, std::int64_t i) const {
    return widen_halves_at(of[t] + 2 * i, std::make_index_sequence<32>());
  }
  [[gnu::always_inline]] F32 row(std::int64_t t, std::int64_t i) const {
    F32 halves;
    __builtin_memcpy(&halves, of[t] + 2 * i, sizeof(halves));
    return halves;
  }
  [[gnu::always_inline]] F32 pair(std::int64_t t, std::int64_t i) const {
    const U32 first = widen_lanes(load_halves(of[t] + 2 * i));
    const U32 second = widen_lanes(load_halves(of[t + 1] + 2 * i));
    return as_f32(first | second << 16);
  }
};

// The same times a factor for each token.
struct ScaledRows {
  const HalfRows& rows;
  const float* factors;

  [[gnu::always_inline]] F32 vector(std::int64_t t, std::int64_t i) const {
    return rows.vector(t, i) * factors[t];
  }
  [[gnu::always_inline]] F32 row(std::int64_t t, std::int64_t i) const {
    return join_bf16(vector(t, i), vector(t, i + kLanes));
  }
  [[gnu::always_inline]] F32 pair(std::int64_t t, std::int64_t i) const {
    return pair_bf16(vector(t, i), vector(t + 1, i));
  }
};

// fp32 rows of `width`, times a factor for each channel.
struct FloatRows {
  const float* rows;
  std::int64_t width;
  const float* factors = nullptr;  // null for 1

  [[gnu::always_inline]] F32 vector(std::int64_t t, std::int64_t i) const {
    const F32 x = load(rows + t * width + i);
    return factors ? x * load(factors + i) : x;
  }
  [[gnu::always_inline]] F32 row(std::int64_t t, std::int64_t i) const {
    return join_bf16(vector(t, i), vector(t, i + kLanes));
  }
  [[gnu::always_inline]] F32 pair(std::int64_t t, std::int64_t i) const {
    return pair_bf16(vector(t, i), vector(t + 1, i));
  }
};

// What the rows of a chunk are made of; `copies` takes [chunk, elements in whole 32s] bf16.
struct HalfSource {
  InputRows rows;
  std::int64_t elements = 0;
  char* copies = nullptr;
  const char* zeros = nullptr;
};

// Copies less than 64 bytes.
[[gnu::always_inline]] inline void copy_part_of_line(const char* source, std::int64_t bytes,
                                                     char* target) {
  const auto copy = [&]<std::size_t kBytes>(std::integral_constant<std::size_t, kBytes>) {
    if ((static_cast<std::size_t>(bytes) & kBytes) == 0) return;
    __builtin_memcpy(target, source, kBytes);
    source += kBytes;
    target += kBytes;
  };
  copy(std::integral_constant<std::size_t, 32>());
  copy(std::integral_constant<std::size_t, 16>());
  copy(std::integral_constant<std::size_t, 8>());
  copy(std::integral_constant<std::size_t, 4>());
  copy(std::integral_constant<std::size_t, 2>());
}

// Tokens [token, token + present) of `padded`.
[[gnu::noinline]] inline void half_rows(const HalfSource& source, std::int64_t token,
                                        std::int64_t present, std::int64_t padded, HalfRows& rows) {
  const std::int64_t bytes = 2 * source.elements;
  const std::int64_t step = (source.elements + 31) / 32 * 64;
  for (std::int64_t t = 0; t < present; ++t) {
    const char* const row = source.rows.row(token + t);
    char* const copy = source.copies + t * step;
    std::int64_t i = 0;
    for (; bytes - i >= 64; i += 64) __builtin_memcpy(copy + i, row + i, 64);
    if (i < bytes) {
      __builtin_memset(copy + i, 0, 64);
      copy_part_of_line(row + i, bytes - i, copy + i);
    }
    rows.of[t] = copy;
  }
  for (std::int64_t t = present; t < padded; ++t) rows.of[t] = source.zeros;
}

// The same rows where they lie, if their elements are whole 32s: for what reads each but once.
inline void find_rows(const HalfSource& source, std::int64_t token, std::int64_t present,
                      std::int64_t padded, HalfRows& rows) {
  if (source.elements % kTileDepth != 0) return half_rows(source, token, present, padded, rows);
  for (std::int64_t t = 0; t < present; ++t) rows.of[t] = source.rows.row(token + t);
  for (std::int64_t t = present; t < padded; ++t) rows.of[t] = source.zeros;
}

// `count`, a whole number of vectors.
inline void zero_floats(float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes) store(x + i, F32{});
}

// ---- operands ----

// 16 tokens from `token` on as rows of A: tiles [width / 32].
template <class Source>
[[gnu::always_inline]] inline void pack_tokens(const Source& source, std::int64_t token,
                                               std::int64_t width, float* tiles) {
  for (std::int64_t t = 0; t < kTileRows; ++t) {
    float* target = tiles + t * kLanes;
    for (std::int64_t i = 0; i < width; i += kTileDepth) {
      store(target, source.row(token + t, i));
      target += kTileFloats;
    }
  }
}

// 16 tokens from `token` on as columns of B, channels as depth: tiles [width / 32].
template <class Source>
[[gnu::always_inline]] inline void pack_tokens_across(const Source& source, std::int64_t token,
                                                      std::int64_t width, float* tiles) {
  for (std::int64_t i = 0; i < width; i += kTileDepth) {
    F32 x[16];
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) x[t] = source.row(token + t, i);
    transpose(x);
    store_rows(tiles, x);
    tiles += kTileFloats;
  }
}

// Channels as rows of A, 32 tokens from `token` on as depth: tiles (i / 16, token / 32).
template <class Source>
[[gnu::always_inline]] inline void pack_channels(const Source& source, std::int64_t token,
                                                 std::int64_t width, const TileMatrix& tiles) {
  for (std::int64_t i = 0; i < width; i += kTileRows) {
    F32 x[16];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) x[pair] = source.pair(token + 2 * pair, i);
    transpose(x);
    store_rows(tiles.at(i / kTileRows, token / kTileDepth), x);
  }
}

// Columns of B from `column` of the source on, `count` tokens from `token` on, 16 or 32 in one
// tile, as depth: tiles (j / 16, token / 32).
template <class Source>
[[gnu::always_inline]] inline void pack_columns(const Source& source, std::int64_t token,
                                                std::int64_t count, std::int64_t column,
                                                std::int64_t width, const TileMatrix& tiles) {
  for (std::int64_t j = 0; j < width; j += kLanes) {
    float* const tile = tiles.at(j / kLanes, token / kTileDepth);
    float* target = tile + token % kTileDepth / 2 * kLanes;
    for (std::int64_t t = 0; t < count; t += 2) {
      store(target, source.pair(token + t, column + j));
      target += kLanes;
    }
  }
}

template <class Source>
[[gnu::always_inline]] inline void pack_columns(const Source& source, std::int64_t token,
                                                std::int64_t count, std::int64_t width,
                                                const TileMatrix& tiles) {
  pack_columns(source, token, count, 0, width, tiles);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
