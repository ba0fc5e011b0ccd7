// The scores of a chunk, and what its gates' gradients take from them.
#pragma once

#include "cuda/chunk_mma/backward/shared_gates.cuh"

namespace attune::cuda::chunk_mma::backward {

/// What one lane has of the sums that gradients of a chunk's gates are made of (params.hpp). The two
/// rows are Own::row(0) and Own::row(2).
template <class Own>
struct GateTerms {
  float reads[2] = {};        // x_i of the warp's columns
  float writes[2] = {};       // y_j of the warp's columns
  float score_rows[2] = {};   // P_ij do_i v_j, j < i, of the warp's columns
  float score_column = 0.0F;  // the same of the warp's rows, of column own_column()
  float states = 0.0F;        // exp(b_last) <S, D> of the thread's elements

  /// A lane's column of the warp's, of which every kCopies-th lane has the same one.
  __device__ static int own_column() { return Own::column(own_number() / 2, own_number() % 2); }
  __device__ static int own_number() {
    return static_cast<int>(threadIdx.x) % kWarpSize / 4 % kNumbers;
  }
  static constexpr int kNumbers = 4 * Own::kColumnBlocks;
};

/// The sum over the lanes that have other columns of the same rows.
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}
/// The sum over the lanes that have other rows of the same columns.
__device__ __forceinline__ float sum_of_column(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 4);
  x += __shfl_xor_sync(kFullWarp, x, 8);
  return x + __shfl_xor_sync(kFullWarp, x, 16);
}

/// Each row times factor_of(row), and of what that gives the sums of products with `rows`.
template <class Own, class Factor>
__device__ __forceinline__ void scale_rows(Product<Own>& sums, float (&terms)[2], const Panel& rows,
                                           Factor&& factor_of) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = Own::row(2 * half);
    const float factor = factor_of(row);
    float sum = 0.0F;
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
      const int column = Own::column(n, 0);
      const float2 pair = load_pair(rows, row, column);
      sums[n][2 * half] *= factor;
      sums[n][2 * half + 1] *= factor;
      sum = fmaf(sums[n][2 * half], pair.x, fmaf(sums[n][2 * half + 1], pair.y, sum));
    }
    terms[half] += sum_of_row(sum);
  }
}

/// Sums of `terms` over rows and over columns.
template <class Own>
__device__ __forceinline__ void add_score_terms(GateTerms<Own>& gates, const Product<Own>& terms) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0F;
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n)
      sum += terms[n][2 * half] + terms[n][2 * half + 1];
    gates.score_rows[half] = sum_of_row(sum);
  }
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float sum = sum_of_column(terms[n][e] + terms[n][2 + e]);
      if (GateTerms<Own>::own_number() == 2 * n + e) gates.score_column = sum;
    }
  }
}

/// Scores times `scale`, zero where j > i.
template <class Own>
__device__ __forceinline__ void scale_scores(Product<Own>& scores, float scale) {
  for_each<Own>(scores, [&](float& score, int row, int column) {
    score = column <= row ? score * scale : 0.0F;
  });
}
template <class Own>
__device__ __forceinline__ void store_scores(const Panel& to, const Product<Own>& scores) {
  for_each_pair<Own>([&](int n, int half, int row, int column) {
    store_pair(to, row, column, split(scores[n][2 * half], scores[n][2 * half + 1]));
  });
}

/// Adds what a panel reads of what another writes, of the warp's rows and columns, those at or before
/// the rows.
template <class Own>
__device__ __forceinline__ void add_scores(Product<Own>& to, const Panel& reads,
                                           const Panel& writes) {
  if (Own::first_column() <= 16 * Own::row_block()) multiply_rows<Own>(to, reads, writes);
}
/// Adds q k, or do v.
template <class Own, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void add_key_scores(Product<Own>& to,
                                               const Panels<kKeyPanels, kValuePanels>& panels) {
#pragma unroll
  for (int i = 0; i < kKeyPanels; ++i) add_scores<Own>(to, panels.q(i), panels.k(i));
}
template <class Own, int kKeyPanels, int kValuePanels>
__device__ __forceinline__ void add_value_scores(Product<Own>& to,
                                                 const Panels<kKeyPanels, kValuePanels>& panels) {
#pragma unroll
  for (int i = 0; i < kValuePanels; ++i) add_scores<Own>(to, panels.d_o(i), panels.v(i));
}

/// P and R, first of all the products q k and do v.
template <class Own>
struct Scores {
  Product<Own> keys;
  Product<Own> values;

  template <int kKeyPanels, int kValuePanels>
  __device__ __forceinline__ void multiply(const Panels<kKeyPanels, kValuePanels>& panels,
                                           const Chunk& chunk) {
    clear(keys);
    clear(values);
    if (!has_rows<Own>(chunk)) return;
    add_key_scores<Own>(keys, panels);
    add_value_scores<Own>(values, panels);
  }
  /// Makes them a_ij of params.hpp times the products: factor_of(i, j), and zero where j > i.
  template <class Factor>
  __device__ __forceinline__ void decay(GateTerms<Own>& gates, Factor&& factor_of) {
    Product<Own> terms;
#pragma unroll
    for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = Own::row(e);
        const int column = Own::column(n, e);
        const float factor = factor_of(row, column);
        const float key = column <= row ? keys[n][e] * factor : 0.0F;
        terms[n][e] = column < row ? key * values[n][e] : 0.0F;
        keys[n][e] = key;
        values[n][e] = column <= row ? values[n][e] * factor : 0.0F;
      }
    }
    add_score_terms(gates, terms);
  }
  template <int kKeyPanels, int kValuePanels>
  __device__ __forceinline__ void store(const Panels<kKeyPanels, kValuePanels>& panels) const {
    store_scores<Own>(panels.key_scores(), keys);
    store_scores<Own>(panels.value_scores(), values);
  }
};

/// The parts of the sums of a chunk's gates from all warps.
template <class Own>
struct GateMemory {
  float reads[Own::kColumnWarps][kTokens];
  float writes[Own::kColumnWarps][kTokens];
  float score_rows[Own::kColumnWarps][kTokens];
  float score_columns[Own::kRowWarps][kTokens];
  float states[Own::kWarps];
};

template <class Own>
__device__ __forceinline__ void store_gate_terms(GateMemory<Own>& to, const GateTerms<Own>& gates) {
  const int part = Own::column_part();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (threadIdx.x % 4 == 0) {
      to.reads[part][Own::row(2 * half)] = gates.reads[half];
      to.writes[part][Own::row(2 * half)] = gates.writes[half];
      to.score_rows[part][Own::row(2 * half)] = gates.score_rows[half];
    }
  }
  to.score_columns[Own::row_block()][GateTerms<Own>::own_column()] = gates.score_column;
  const float states = warp_sum(gates.states);
  if (threadIdx.x % kWarpSize == 0) to.states[Own::number()] = states;
}

/// The gradients of the log decays of a lane's two tokens, 2 lane and 2 lane + 1: `reads` are x of
/// them, `behind` what they add to the gradients of the tokens behind them, `states` is <S, D>.
__device__ __forceinline__ float2 gate_gradients(const float (&reads)[2], const float (&behind)[2],
                                                 float states) {
  const float reads_on = warp_suffix_sum(reads[0] + reads[1]);
  const float behind_all = warp_inclusive_sum(behind[0] + behind[1]);
  const float behind_first = behind_all - (behind[0] + behind[1]);
  return {states + reads_on + behind_first,
          states + (reads_on - reads[0]) + (behind_first + behind[0])};
}
template <class Own>
__device__ __forceinline__ float2 gate_gradients(const GateMemory<Own>& from) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float states = 0.0F;
#pragma unroll
  for (const float part : from.states) states += part;
  float reads[2];
  float behind[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int token = 2 * lane + e;
    reads[e] = sum_of_parts(from.reads, token);
    behind[e] = sum_of_parts(from.writes, token) +
                (sum_of_parts(from.score_columns, token) - sum_of_parts(from.score_rows, token));
  }
  return gate_gradients(reads, behind, states);
}

/// Those of a chunk, its scores' behind those of its panels of keys.
__device__ __forceinline__ GateParts* gate_parts_of(const BackwardParams& p, const Chunk& chunk) {
  return p.gate_parts + (chunk.number * p.heads + chunk.head) * parts_of_gates(p.keys.channels);
}

}  // namespace attune::cuda::chunk_mma::backward
