// Long sequences cut into segments that blocks walk side by side.
//
// The state behind a segment is D S + A: S is the state before it, A what its own tokens add to a
// state of zeros, and D the product of its decays, which is a factor for each row times one for
// each column. So a walk in segments is three steps, each over the whole device:
//
//   1. every segment but a sequence's last is walked from zero, nothing is read: A
//      (the first one from the initial state)
//   2. D of every segment, then the state before each, in order: S' = D S + A
//   3. every segment is walked from the state before it
//
// Where the final state is all that is wanted, step 1 walks the last segments, too, step 2 leaves
// the state behind them, and there is no step 3: every token is walked over once.
//
// Steps 1 and 3 are the walk itself (walk.hpp), step 2 is segment_fold.hpp. None depends on how a
// walk computes.
#pragma once

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda {

/// Values of the axis `segments`: how many a sequence is cut into, of packed ones the average.
inline constexpr int kSegmentCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

struct WalkSegments {
  std::int64_t tokens = 0;  // steps of a segment; 0: sequences are not cut
  bool counts_from_end =
      false;                // boundaries lie one step behind multiples of `tokens` from the end
  bool sums_only = false;   // step 1
  bool final_only = false;  // the final state is all that is wanted
  float* states = nullptr;  // [parts, H, rows, columns]: A, then the state behind the segment
  // {high, low} of D, in fp32: [parts, H, rows], or [parts, H, 1] where rows have no gate, with
  // what all channels share, and [parts, H, columns], only where columns have a gate.
  float* row_factors = nullptr;
  float* column_factors = nullptr;
};

/// Tokens of a segment, a multiple of `multiple`; 0 where no sequence can be longer than that.
constexpr std::int64_t segment_tokens(std::int64_t tokens, std::int64_t packed_sequences,
                                      int segments, std::int64_t multiple) {
  if (segments <= 1) return 0;
  const std::int64_t sequences = packed_sequences > 1 ? packed_sequences : 1;
  const std::int64_t parts = sequences * segments;
  const std::int64_t at_least = (tokens + parts - 1) / parts;
  const std::int64_t rounded = (at_least + multiple - 1) / multiple * multiple;
  return rounded < tokens ? rounded : 0;
}

/// Floats of the memory that a walk in segments needs.
struct SegmentSizes {
  std::int64_t states = 0;
  std::int64_t row_factors = 0;
  std::int64_t column_factors = 0;
  constexpr std::int64_t total() const { return states + row_factors + column_factors; }
};

/// `parts`: part_count(), of all heads.
constexpr SegmentSizes segment_sizes(std::int64_t parts, std::int64_t rows, std::int64_t columns,
                                     bool row_gates, bool column_gates) {
  const auto aligned = [](std::int64_t floats) { return (floats + 3) / 4 * 4; };
  constexpr std::int64_t kFactorFloats = 2;
  return {aligned(parts * rows * columns), aligned(parts * kFactorFloats * (row_gates ? rows : 1)),
          aligned(column_gates ? parts * kFactorFloats * columns : 0)};
}

/// How a walk of a problem is cut. `rows` and `columns` are the walk's.
struct SegmentPlan {
  SegmentPlan(const ops::RecurrentAttentionProblem& problem, int segments, std::int64_t multiple,
              std::int64_t rows, std::int64_t columns, bool row_gates, bool column_gates)
      : tokens(segment_tokens(problem.T, problem.N, segments, multiple)) {
    if (tokens == 0) return;
    const std::int64_t parts =
        part_count(problem.sequences(), problem.T, problem.N > 0, tokens) * problem.H;
    sizes = segment_sizes(parts, rows, columns, row_gates, column_gates);
  }

  std::int64_t tokens = 0;  // of a segment; 0: sequences are not cut
  SegmentSizes sizes;

  WalkSegments segments(float* memory) const {
    if (tokens == 0) return {};
    return {.tokens = tokens,
            .states = memory,
            .row_factors = memory + sizes.states,
            .column_factors = memory + sizes.states + sizes.row_factors};
  }
};

}  // namespace attune::cuda
