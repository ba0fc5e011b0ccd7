// Rows of gradients on their way past the caches, a few at a time.
//
// A core keeps some sixteen lines on their way to memory in flight. All rows of a pass at once are
// several times as many, and whatever comes next would wait for them. So they are written while the
// next pass computes.
#pragma once

#include "cpu/simd/vector/pass_keys.inl.hpp"
#include "cpu/simd/vector/prefetch.inl.hpp"
#include "cpu/simd/vector/rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

class PendingRows {
 public:
  std::int64_t count() const { return count_ - next_; }

  /// At most kMaxRows before all of them are written. `row` stays as it is until then; `target` is
  /// aligned to whole vectors.
  void add(const float* row, std::int64_t vectors, char* target) {
    if (next_ == count_) next_ = count_ = 0;
    rows_[count_++] = {row, target, vectors};
  }

  [[gnu::always_inline]] void write(std::int64_t rows) {
    for (; rows > 0 && next_ < count_; --rows) {
      const Row& row = rows_[next_++];
      for (std::int64_t i = 0; i < row.vectors; ++i) {
        stream_vector(load(row.source + i * kLanes), row.target + i * std::int64_t{sizeof(F32)});
      }
    }
  }

 private:
  static constexpr int kMaxRows = 16;  // of four tokens: dk, dv, dgk, dgv
  struct Row {
    const float* source;
    char* target;
    std::int64_t vectors;
  };
  Row rows_[kMaxRows];  // from next_ to count_
  std::int64_t next_ = 0;
  std::int64_t count_ = 0;
};

// ---- passes over a state ----
//
// The loops of the backward pass that cost: a few tokens applied to a state or its gradient, kept
// transposed as M [V, K], so that dq and dk are sums over rows and need no sums over lanes.
//
// Coefficients of rows and columns are those of cpu/simd/vector/pass_keys.inl.hpp: per vector of
// channels kTokens of what is read (do or q, decayed since the state before the pass), kTokens of
// what is written (v or k, decayed until the state after it) and the decay of the pass.

// Whether M is the state, which goes forward in time (it is read by do and takes in v k), or its
// gradient, which goes backward (it is read by v and takes in do q).
enum class Direction { kForward, kBackward };

struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0;   // V
  std::int64_t width = 0;  // K, whole vectors
};

// Where in a vector's coefficients stands what reads M, and what is written to it.
template <int kTokens, Direction kDirection>
struct Roles {
  static constexpr int kReads = kDirection == Direction::kForward ? 0 : kTokens;
  static constexpr int kWrites = kDirection == Direction::kForward ? kTokens : 0;
  static constexpr int kDecay = 2 * kTokens;
};

// Rows handled together, as in vector/pass.inl.hpp: their chains hide each other's latency.
template <int kVectors>
constexpr int rows_of_update() {
#if defined(__AVX512F__) || defined(__aarch64__)
  return kVectors <= 2 ? 2 : 1;
#else
  return 1;
#endif
}

// What an update needs to know of a block of columns.
template <int kTokens, int kVectors>
struct ColumnBlock {
  F32 written[kTokens][kVectors];
  F32 decay[kVectors];
  F32 sum[kTokens][kVectors];
};

// kRows rows of the loop below; `c` points at the coefficients of the first one.
template <int kTokens, int kVectors, int kRows, Direction kDirection, bool kRowDecay,
          bool kColumnDecay>
[[gnu::always_inline]] inline void update_rows(const float* c, float* m, std::int64_t width,
                                               ColumnBlock<kTokens, kVectors>& block) {
  using At = Roles<kTokens, kDirection>;
  F32 before[kRows][kVectors];
  F32 after[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    F32 decay{};
    if constexpr (kRowDecay) decay = in_register(broadcast(c[At::kDecay * kLanes + r]));
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      before[r][j] = load(m + r * width + j * kLanes);
      after[r][j] = before[r][j];
      if constexpr (kRowDecay) after[r][j] *= decay;
      if constexpr (kColumnDecay) after[r][j] *= block.decay[j];
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32 reads = in_register(broadcast(c[(At::kReads + t) * kLanes + r]));
      const F32 writes = in_register(broadcast(c[(At::kWrites + t) * kLanes + r]));
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        block.sum[t][j] = fma(reads, before[r][j], block.sum[t][j]);
        after[r][j] = fma(writes, block.written[t][j], after[r][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) store(m + r * width + j * kLanes, after[r][j]);
  }
}

// Rows of the caller's tensors that come and go while a matrix is passed over. They are fetched by
// lines where the matrix does not fit the first-level cache: its own lines come through the same
// few buffers, which whole rows would fill.
struct RowTraffic {
  Prefetcher fetched;
  PendingRows pending;
  // In each step of read_and_update(), and the lines in those of read_by_columns() too.
  std::int64_t fetched_rows = 0;
  std::int64_t fetched_lines = 0;
  std::int64_t pending_rows = 0;

  [[gnu::always_inline]] void step() {
    if (fetched_lines > 0) {
      fetched.fetch_lines<2>(fetched_lines);
    } else {
      fetched.fetch_rows<2>(fetched_rows);
    }
    pending.write(pending_rows);
  }
};

// Rows and columns of a pass.
struct MatrixPass {
  Matrix m;
  const float* rows = nullptr;     // coefficients
  const float* columns = nullptr;  // coefficients
  float* sums = nullptr;           // [kTokens, K]
};

// sums[t][i] = sum_j reads_t[j] M[j, i], then M = decay * M + sum_t writes_t writes_t', for
// kVectors vectors of columns.
template <int kTokens, int kVectors, Direction kDirection, bool kRowDecay, bool kColumnDecay>
[[gnu::always_inline]] inline void update_block(const MatrixPass& pass, std::int64_t column,
                                                RowTraffic& traffic) {
  using At = Roles<kTokens, kDirection>;
  constexpr int kRows = rows_of_update<kVectors>();
  constexpr std::int64_t kStep = coefficient_vectors(kTokens) * kLanes;
  ColumnBlock<kTokens, kVectors> block;
  const float* columns = pass.columns + column / kLanes * kStep;
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      block.written[t][j] = load(columns + j * kStep + (At::kWrites + t) * kLanes);
      block.sum[t][j] = F32{};
    }
    if constexpr (kColumnDecay) block.decay[j] = load(columns + j * kStep + At::kDecay * kLanes);
  }
  const std::int64_t width = pass.m.width;
  float* row = pass.m.data + column;
  const float* rows = pass.rows;
  for (std::int64_t left = pass.m.rows; left > 0; left -= kLanes) {
    traffic.step();
    const float* c = rows;
    const float* const end = c + (left < kLanes ? left : kLanes);
    for (; end - c >= kRows; c += kRows) {
      update_rows<kTokens, kVectors, kRows, kDirection, kRowDecay, kColumnDecay>(c, row, width,
                                                                                 block);
      row += kRows * width;
    }
    for (; c != end; ++c) {
      update_rows<kTokens, kVectors, 1, kDirection, kRowDecay, kColumnDecay>(c, row, width, block);
      row += width;
    }
    rows += kStep;
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      store(pass.sums + t * width + column + j * kLanes, block.sum[t][j]);
    }
  }
}

// Vectors of columns in a block: with as many sums, the latency of an addition is hidden.
template <int kTokens>
constexpr int kBlockVectors = 8 / kTokens;

template <int kTokens, Direction kDirection, bool kRowDecay, bool kColumnDecay>
[[gnu::noinline]] void read_and_update(const MatrixPass& pass, RowTraffic& traffic) {
  constexpr int kVectors = kBlockVectors<kTokens>;
  std::int64_t column = 0;
  for (; column + kVectors * kLanes <= pass.m.width; column += kVectors * kLanes) {
    update_block<kTokens, kVectors, kDirection, kRowDecay, kColumnDecay>(pass, column, traffic);
  }
  for (; column < pass.m.width; column += kLanes) {
    update_block<kTokens, 1, kDirection, kRowDecay, kColumnDecay>(pass, column, traffic);
  }
}

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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
