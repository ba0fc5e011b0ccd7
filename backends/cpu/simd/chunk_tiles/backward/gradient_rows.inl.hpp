// Rows of a gradient from sums in tiles, and sums over channels of what tokens read of a state.
#pragma once

#include "recurrence.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

// Sums over the heads of a group, which run one after the other: rows of fp32, by their order in
// the sequence. Null where every head has a key and a value of its own.
struct GroupSums {
  float* rows = nullptr;
  std::int64_t width = 0;
  bool is_first = true;
  bool is_last = true;
};

// Adds 32 columns of a row to those of the heads before. Returns whether they are all.
[[gnu::always_inline]] inline bool add_to_group(const GroupSums& group, std::int64_t row,
                                                std::int64_t column, F32& first, F32& second) {
  if (!group.rows) return true;
  float* const sums = group.rows + row * group.width + column;
  if (!group.is_first) {
    first += load(sums);
    second += load(sums + kLanes);
  }
  if (group.is_last) return true;
  store(sums, first);
  store(sums + kLanes, second);
  return false;
}

// Where a gradient goes.
struct GradientRows {
  OutputRows rows;
  std::int64_t columns = 0;
  bool stream = false;  // past the caches
  float scale = 1.0F;
  GroupSums group = {};

  std::int64_t columns_from(std::int64_t column) const {
    const std::int64_t left = columns - column;
    return left < kTileDepth ? left : kTileDepth;
  }
};

// 32 columns of a row that are ready.
[[gnu::always_inline]] inline void write_gradient(const GradientRows& to, std::int64_t token,
                                                  std::int64_t column, F32 first, F32 second) {
  first *= to.scale;
  second *= to.scale;
  if (!add_to_group(to.group, token, column, first, second)) return;
  write_output(first, second, to.columns_from(column), to.rows.row(token) + 2 * column, to.stream);
}

// Rows of a part that exist: those of the chunk's tokens from `token` on.
[[gnu::always_inline]] inline std::int64_t rows_present(const ChunkSpan& span, std::int64_t token,
                                                        std::int64_t most) {
  const std::int64_t left = span.present - token;
  return left < most ? left : most;
}

// Sums that are complete, of 32 tokens.
struct GradientWriting {
  static constexpr bool kSeparate = false;
  static constexpr std::int64_t kRows = 8;  // of a part

  const GradientRows* to = nullptr;
  const ChunkSpan* span = nullptr;
  RecurrenceResults results = {};

  std::int64_t parts() const { return 2 * kTileRows / kRows; }

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const GradientRows target = *to;  // what is stored might be what it points to
    const std::int64_t first = index * kRows;
    const std::int64_t column = results.at.column;
    const std::int64_t token = results.at.token + first;
    const std::int64_t begin = span->token + token;
    const std::int64_t rows = rows_present(*span, token, kRows);
    const float* sums = result_row(results.tiles, first);
    for (std::int64_t t = 0; t < rows; ++t) {
      write_gradient(target, begin + t, column, load(sums), load(sums + kTileFloats));
      sums += kLanes;
    }
  }
};

// Sums of what 32 tokens read of the state, which is yet to decay, and of scores. With
// kDots, also products of the former with `rows`, summed up in `partial`, [tokens, 16].
template <bool kDots>
struct DecayedWriting {
  static constexpr bool kSeparate = true;
  static constexpr std::int64_t kRows = 8;

  const GradientRows* to = nullptr;
  const ChunkSpan* span = nullptr;
  const float* factors = nullptr;  // of tokens
  const HalfRows* rows = nullptr;
  float* partial = nullptr;
  RecurrenceResults results = {};

  std::int64_t parts() const { return 2 * kTileRows / kRows; }

  // On copies: what is stored might be what they are.
  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const GradientRows target = *to;
    const DecayedWriting copy = *this;
    copy.write_rows(target, index * kRows);
  }

 private:
  [[gnu::always_inline]] void write_rows(const GradientRows& target, std::int64_t first) const {
    const std::int64_t token = results.at.token + first;
    const std::int64_t begin = span->token + token;
    const std::int64_t count = rows_present(*span, token, kRows);
    const float* sums = result_row(results.tiles, first);
    const float* factor = factors + token;
    for (std::int64_t t = 0; t < count; ++t) {
      const F32 left = load(sums);
      const F32 right = load(sums + kTileFloats);
      if constexpr (kDots) add_dot(token + t, left, right);
      const F32 of_token = broadcast(factor[t]);
      write_gradient(target, begin + t, results.at.column,
                     fma(left, of_token, load(sums + 4 * kTileFloats)),
                     fma(right, of_token, load(sums + 5 * kTileFloats)));
      sums += kLanes;
    }
  }
  [[gnu::always_inline]] void add_dot(std::int64_t token, F32 left, F32 right) const {
    const std::int64_t column = results.at.column;
    float* const sum = partial + token * kLanes;
    const F32 before = column == 0 ? F32{} : load(sum);
    store(sum, fma(left, rows->vector(token, column),
                   fma(right, rows->vector(token, column + kLanes), before)));
  }
};

// dots[t] of the `padded` tokens.
inline void add_partial_dots(const float* partial, std::int64_t padded, float* dots) {
  for (std::int64_t t = 0; t < padded; t += kTileRows) {
    F32 sums[kTileRows];
    for (std::int64_t i = 0; i < kTileRows; ++i) sums[i] = load(partial + (t + i) * kLanes);
    sum_lanes<kTileRows>(sums, dots + t);
  }
}

// The same times a scale and a factor for each token.
inline void add_decayed_dots(const float* partial, const float* factors, float scale,
                             std::int64_t padded, float* dots) {
  add_partial_dots(partial, padded, dots);
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    store(dots + t, load(dots + t) * (load(factors + t) * scale));
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
