// Where chunks and segments lie, and the decays of a chunk's tokens.
#pragma once

#include "cuda/chunk_mma/backward/params.hpp"
#include "cuda/chunks/segment_walk.cuh"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Some tokens of a sequence that follow each other. Positions are tokens in the order of the
/// forward pass.
struct Place {
  SequenceSpan span;
  std::int64_t sequence = 0;
  std::int64_t first = 0;  // position
  int rows = 0;

  __device__ std::int64_t token(const BackwardParams& p, int row) const {
    const std::int64_t position = first + row;
    return span.begin + (p.reverse ? span.length - 1 - position : position);
  }
  __device__ bool is_first() const { return first == 0; }
  __device__ bool is_last() const { return first + rows == span.length; }
  /// The number of the part with the first of these tokens.
  __device__ std::int64_t part(const BackwardParams& p, std::int64_t tokens) const {
    return first_part(p.sequences, sequence, span, tokens) + quotient(first, tokens);
  }
};

/// The `tokens` tokens of a part (sequence_parts.hpp), or what the sequence has of them. A sequence
/// without any has one place, one that is left out none.
__device__ __forceinline__ bool find_place(const BackwardParams& p, std::int64_t part,
                                           std::int64_t tokens, Place& place) {
  place.sequence = sequence_of_part(p.sequences, p.sequence_count, part, tokens);
  place.span = span_of(p.sequences, place.sequence);
  const std::int64_t own = part - first_part(p.sequences, place.sequence, place.span, tokens);
  place.first = own * tokens;
  if (place.span.is_left_out) return false;
  if (own < 0 || place.first > max(place.span.length - 1, std::int64_t{0})) return false;
  place.rows = static_cast<int>(min(place.span.length - place.first, tokens));
  return true;
}

/// One head's rows of a place, from `channel` on.
struct PlacedRows {
  const float* first;
  std::int64_t step;  // from row to row
  bool exist = true;  // else they are zeros

  __device__ PlacedRows(const float* rows, std::int64_t row_step) : first(rows), step(row_step) {}
  __device__ PlacedRows(const BackwardParams& p, const TokenRows& rows, const Place& place,
                        std::int64_t head, int channel)
      : first(static_cast<const float*>(rows.view.data) + channel +
              row_offset(rows.view, place.span.batch, place.token(p, 0),
                         small_quotient(head, rows.heads_per_row))),
        step(p.reverse ? -rows.view.token : rows.view.token),
        exist(rows.exist) {}
};

/// Such rows, found once for a block and kept in shared memory.
struct HeadRows {
  const float* first = nullptr;
  std::int64_t step = 0;

  __device__ static HeadRows of(const BackwardParams& p, const TokenRows& rows, const Place& place,
                                std::int64_t head, int channel) {
    const PlacedRows placed(p, rows, place, head, channel);
    return {placed.first, placed.step};
  }
  __device__ __forceinline__ const float* at(int row) const { return first + row * step; }
  __device__ __forceinline__ HeadRows from_channel(int channel) const {
    return {first + channel, step};
  }
  /// Those from `row` on, from `channel` on.
  __device__ __forceinline__ PlacedRows placed(int row, int channel, bool exist) const {
    PlacedRows rows(first + row * step + channel, step);
    rows.exist = exist;
    return rows;
  }
};

/// The same rows where steps are short (BackwardParams::short_steps): an address is one instruction.
struct NearRows {
  const float* first;
  int step_bytes;

  __device__ explicit NearRows(const HeadRows& rows)
      : first(rows.first), step_bytes(static_cast<int>(rows.step) * int{sizeof(float)}) {}
  __device__ __forceinline__ const float* at(int row) const {
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(first) +
                                          std::int64_t{row} * step_bytes);
  }
};

/// The log decay that all key channels of a token share.
__device__ __forceinline__ float shared_log_decay(const BackwardParams& p, const Place& place,
                                                  std::int64_t head, int row) {
  const float gamma = constant_decay(p.gamma, place.sequence, head);
  if (!p.g.given()) return gamma;
  const std::int64_t at = row_offset(p.g.rows, place.span.batch, place.token(p, row), head);
  return gamma + static_cast<const float*>(p.g.rows.data)[at];
}

/// Decays of a chunk's tokens in base 2, b_i / ln 2 as a sum of two: an ulp of it may be too much.
/// Tokens that do not exist decay nothing.
struct alignas(16) TokenDecays {
  float log2[kTokens];
  float log2_rest[kTokens];
  DecayFactor total;  // exp(b_last), of the state over the chunk

  /// exp(b_i), of the state at the start
  __device__ float from_start(int i) const { return exp2_approx(log2[i]); }
  /// exp(b_last - b_i)
  __device__ float to_end(int i) const { return between(kTokens - 1, i); }
  /// exp(b_i - b_j)
  __device__ float between(int i, int j) const {
    return exp2_approx((log2[i] - log2[j]) + (log2_rest[i] - log2_rest[j]));
  }
};

/// Done by the first warp of a block, two tokens a lane.
class TokenDecayScan {
 public:
  __device__ TokenDecayScan(const BackwardParams& p, std::int64_t sequence, std::int64_t head)
      : p_(p), head_(head), constant_(constant_decay(p.gamma, sequence, head)) {}

  __device__ static bool is_mine() { return threadIdx.x < kWarpSize; }

  /// Begins to load the gates of a chunk; not behind a branch, which would wait for them.
  __device__ void fetch(const Place& place) {
    rows_ = place.rows;
    const PlacedRows gates(p_, p_.shared_gates, place, head_, 0);
#pragma unroll
    for (int e = 0; e < 2; ++e)
      gate_[e] = __ldg(gates.first + min(token(e), rows_ - 1) * gates.step);
  }
  /// The decays of what was fetched.
  __device__ void sum(TokenDecays& to) const {
    const double own[2] = {log2_of(0), log2_of(1)};
    double sum = own[0] + own[1];
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const double other = __shfl_up_sync(kFullWarp, sum, distance);
      if (token(0) / 2 >= distance) sum += other;
    }
    const double sums[2] = {sum - own[1], sum};
    if (token(1) == kTokens - 1) {
      constexpr double kLnOf2 = 0.6931471805599453;
      to.total = decay_factor(static_cast<float>(sum * kLnOf2));
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const auto rounded = static_cast<float>(sums[e]);
      to.log2[token(e)] = rounded;
      to.log2_rest[token(e)] = static_cast<float>(sums[e] - rounded);
    }
  }

 private:
  static_assert(kTokens == 2 * kWarpSize);
  __device__ static int token(int e) { return static_cast<int>(threadIdx.x) % kWarpSize * 2 + e; }
  __device__ double log2_of(int e) const {
    constexpr double kLog2OfE = 1.4426950408889634;
    const double log2 = (static_cast<double>(p_.shared_gates.exist ? gate_[e] : 0.0F) +
                         static_cast<double>(constant_)) *
                        kLog2OfE;
    return token(e) >= rows_ ? 0.0 : log2 < kReset ? kReset : log2;  // keeps a NaN
  }

  const BackwardParams& p_;
  const std::int64_t head_;
  const float constant_;
  float gate_[2] = {};
  int rows_ = 0;
};

}  // namespace attune::cuda::chunk_mma::backward
