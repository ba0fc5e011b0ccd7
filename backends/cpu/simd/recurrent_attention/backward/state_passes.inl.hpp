// The loops of the backward pass that cost: a few tokens applied to a state or its gradient, kept
// transposed as M [V, K], so that dq and dk are sums over rows and need no sums over lanes.
//
// Coefficients of rows and columns are those of cpu/simd/vector/pass_keys.inl.hpp: per vector of
// channels kTokens of what is read (do or q, decayed since the state before the pass), kTokens of
// what is written (v or k, decayed until the state after it) and the decay of the pass.
#pragma once

#include "cpu/simd/vector/pass_keys.inl.hpp"
#include "row_traffic.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
