// Sums over the columns of a state or its gradient: a few tokens that read it along V.
#pragma once

#include "state_passes.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

// The kCount floats at `source`, over and over: one load, which compilers do not find.
template <int kCount>
[[gnu::always_inline]] inline F32 repeated(const float* source) {
  if constexpr (kCount == kLanes) {
    return load(source);
  } else if constexpr (kCount == 2) {
    // As integers: two floats may be a double that arithmetic flushes to zero.
    typedef std::uint64_t Pairs __attribute__((vector_size(sizeof(F32))));
    std::uint64_t pair;
    __builtin_memcpy(&pair, source, sizeof(pair));
    return (F32)(Pairs{} + pair);
#if defined(__AVX512F__) && ATTUNE_SIMD_LANES == 16
  } else if constexpr (kCount == 8) {
    return (F32)_mm512_maskz_broadcast_f32x8(__mmask16(-1), _mm256_loadu_ps(source));
#elif defined(__AVX__) && ATTUNE_SIMD_LANES == 8
  } else if constexpr (kCount == 4) {
    __m128 part;
    __builtin_memcpy(&part, source, sizeof(part));
    return (F32)_mm256_broadcast_ps(&part);
#endif
  }
}

template <std::size_t... kIndex>
[[gnu::always_inline]] inline U32 lane_numbers(std::index_sequence<kIndex...>) {
  return U32{std::uint32_t{kIndex}...};
}

// Tokens whose sums over columns share a vector: each lane of it adds up a part of one token's
// channels. With a vector for each token, adding up its lanes would take two thirds as long as the
// products do; with fewer channels in a vector a row is loaded more often.
template <int kTokens>
constexpr int kTokensOfDots = kTokens < 2 ? kTokens : 2;

// Rows whose sums are taken together, with a register for each and every kTokensOfDots tokens.
constexpr int rows_of_dots() {
#if defined(__AVX512F__) || defined(__aarch64__)
  return 8;
#else
  return 4;
#endif
}

// A vector of channels of kTokens tokens, which each have a vector at `reads`, as dot_rows() wants
// them: first channels of two tokens after those of the two before, then the channels behind.
template <int kTokens>
[[gnu::always_inline]] inline void share_vectors(const float* reads, float* shared) {
  constexpr int kShared = kTokensOfDots<kTokens>;
  constexpr int kChannels = kLanes / kShared;
  const U32 lane = lane_numbers(std::make_index_sequence<kLanes>());
#pragma GCC unroll 8
  for (int channel = 0; channel < kLanes; channel += kChannels) {
#pragma GCC unroll 8
    for (int token = 0; token < kTokens; token += kShared) {
      F32 tokens = repeated<kChannels>(reads + token * kLanes + channel);
#pragma GCC unroll 8
      for (int t = 1; t < kShared; ++t) {
        const F32 next = repeated<kChannels>(reads + (token + t) * kLanes + channel);
        tokens = lane < std::uint32_t(t * kChannels) ? tokens : next;
      }
      store(shared, tokens);
      shared += kLanes;
    }
  }
}

// kRows rows of the loop below: sums[t][r] for all tokens.
template <int kTokens, int kRows>
[[gnu::always_inline]] inline void dot_rows(const Matrix& m, const float* row, const float* shared,
                                            float* sums, std::int64_t stride) {
  constexpr int kShared = kTokensOfDots<kTokens>;
  constexpr int kChannels = kLanes / kShared;
  F32 dots[kTokens / kShared][kRows] = {};
  for (std::int64_t i = 0; i < m.width; i += kChannels) {
    F32 value[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      value[r] = in_register(repeated<kChannels>(row + r * m.width + i));
#pragma GCC unroll 8
    for (F32(&of_tokens)[kRows] : dots) {
      const F32 reads = in_register(load(shared));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) of_tokens[r] = fma(value[r], reads, of_tokens[r]);
      shared += kLanes;
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    constexpr int kTogether = kRows < kChannels ? kRows : kChannels;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r += kTogether) {
      const F32* const of_token = dots[t / kShared] + r;
      alignas(64) float totals[kLanes];
      store(totals, sum_each<kTogether, kLanes - kChannels>(of_token));
      __builtin_memcpy(sums + t * stride + r, totals + t % kShared * kChannels,
                       kTogether * sizeof(float));
    }
  }
}

// sums[t][j] = sum_i c_t[i] M[j, i], where c is what reads (first = 0) or what is written
// (first = kTokens). `stride` is that of sums, whose columns without a row are left alone; `shared`
// has room for kTokens rows of M.
template <int kTokens>
[[gnu::noinline]] void read_by_columns(const Matrix& m, const float* columns, int first,
                                       float* shared, float* sums, std::int64_t stride,
                                       RowTraffic& traffic) {
  constexpr int kRows = rows_of_dots();
  columns += first * kLanes;
  for (std::int64_t i = 0; i < m.width; i += kLanes) {
    share_vectors<kTokens>(columns, shared + i * kTokens);
    columns += coefficient_vectors(kTokens) * kLanes;
  }
  const float* row = m.data;
  std::int64_t j = 0;
  for (; j + kRows <= m.rows; j += kRows) {
    traffic.fetched.fetch_lines<2>(traffic.fetched_lines);
    dot_rows<kTokens, kRows>(m, row, shared, sums + j, stride);
    row += kRows * m.width;
  }
  for (; j < m.rows; ++j) {
    dot_rows<kTokens, 1>(m, row, shared, sums + j, stride);
    row += m.width;
  }
}

// Spreads the rows of a pass's tokens, and those that are pending, over the loops of a pass.
template <int kTokens>
void spread_traffic(const Matrix& m, bool reads_columns, RowTraffic& traffic) {
  constexpr std::int64_t kFirstLevelFloats = 8192;
  const auto steps_for = [](std::int64_t count, std::int64_t steps) {
    // In 32 bits, which divide several times as fast.
    const auto divisor = static_cast<std::uint32_t>(steps);
    return std::int64_t{(static_cast<std::uint32_t>(count) + divisor - 1) / divisor};
  };
  const std::int64_t block = kBlockVectors<kTokens> * kLanes;
  const std::int64_t updates = (m.rows + kLanes - 1) / kLanes * ((m.width + block - 1) / block);
  traffic.pending_rows = steps_for(traffic.pending.count(), updates);
  if (m.rows * m.width > kFirstLevelFloats) {
    const std::int64_t reads = reads_columns ? m.rows / rows_of_dots() : 0;
    traffic.fetched_lines = steps_for(kTokens * traffic.fetched.lines_per_token(), updates + reads);
  } else {
    traffic.fetched_rows = steps_for(kTokens * traffic.fetched.rows_per_token(), updates);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
