// The workspace of the walks of a backward pass (backward_walks.hpp): what each of its two sides takes, and
// where that lies.
//
// A Walker is how a kernel walks:
//
//   interval                                   tokens between checkpoints
//   row_blocks(rows)                           blocks that the rows of a state are spread over
//   product_planes(rows)                       planes of products that its blocks write
//   checkpoint_floats(heads, rows, columns)    floats of one checkpoint's states
//   segments                                   how many a sequence is cut into
//   tokens                                     that those of a segment are a multiple of
//   launch<T>(params, stream)                  queues a walk
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/walks/segments.hpp"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda {

constexpr std::int32_t kGatesOfKeySide = ops::kGateG | ops::kGateGamma | ops::kGateGk;

/// Floats of the workspace that a side uses, by what for.
struct SideSizes {
  std::int64_t first = 0;   // planes of the walk with the state
  std::int64_t second = 0;  // planes of the walk back
  std::int64_t states = 0;
  std::int64_t products = 0;
  std::int64_t segments = 0;  // of either walk

  std::int64_t total() const { return first + second + states + products + segments; }
};

template <class Walker>
std::int64_t checkpoints_of(const ops::RecurrentAttentionProblem& problem, const Walker& walker) {
  return part_count(problem.sequences(), problem.T, problem.N > 0, walker.interval);
}

/// Segments start where checkpoints are. Which channels have gates is asked of no side: memory is
/// taken for those of both.
template <class Walker>
SegmentPlan segment_plan(const ops::RecurrentAttentionProblem& problem, const Walker& walker,
                         std::int64_t rows, std::int64_t columns, bool checkpoints) {
  const std::int64_t multiple = checkpoints ? walker.interval : walker.tokens;
  const bool gated = (problem.gates & (ops::kGateGk | ops::kGateGv)) != 0;
  return {problem, walker.segments, multiple, rows, columns, gated, gated};
}

/// `gates`: whether gradients of gates come from this side. `rows` and `columns` of its walks.
template <class Walker>
SideSizes side_sizes(const ops::RecurrentAttentionProblem& problem, const Walker& walker,
                     std::int64_t rows, std::int64_t columns, bool gates) {
  const std::int64_t blocks = walker.row_blocks(rows);
  const std::int64_t planes = blocks * problem.B * problem.T * problem.H * columns;
  const bool shares_heads = problem.H != problem.Hkv;
  SideSizes sizes;
  if (gates || blocks > 1) sizes.first = planes;
  if (gates || blocks > 1 || shares_heads) sizes.second = planes;
  if (gates) {
    const std::int64_t checkpoints = checkpoints_of(problem, walker);
    sizes.states = checkpoints * walker.checkpoint_floats(problem.H, rows, columns);
    sizes.products = walker.product_planes(rows) * checkpoints * problem.H * columns;
  }
  sizes.segments = segment_plan(problem, walker, rows, columns, gates).sizes.total();
  return sizes;
}

template <class Walker>
SideSizes key_side_sizes(const ops::RecurrentAttentionProblem& problem, const Walker& walker) {
  const bool gates = (problem.gates & kGatesOfKeySide) != 0;
  return side_sizes(problem, walker, problem.V, problem.K, gates);
}
template <class Walker>
SideSizes value_side_sizes(const ops::RecurrentAttentionProblem& problem, const Walker& walker) {
  const bool gates = (problem.gates & ops::kGateGv) != 0;
  SideSizes sizes = side_sizes(problem, walker, problem.K, problem.V, gates);
  if (!gates) sizes.first = 0;  // o is not recomputed
  return sizes;
}

template <class Walker>
std::int64_t gamma_floats(const ops::RecurrentAttentionProblem& problem, const Walker& walker) {
  return (problem.gates & ops::kGateGamma) != 0 ? checkpoints_of(problem, walker) * problem.H : 0;
}

/// The memory of one side; null for what the side does without.
struct SideMemory {
  SideMemory(const SideSizes& sizes, float* at) {
    const auto take = [&at](std::int64_t floats) {
      float* const taken = floats > 0 ? at : nullptr;
      at += floats;
      return taken;
    };
    segments = take(sizes.segments);  // these two first: they are moved 16 bytes at a time
    states = take(sizes.states);
    first = take(sizes.first);
    second = take(sizes.second);
    products = take(sizes.products);
  }
  float* segments = nullptr;
  float* states = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  float* products = nullptr;
};

/// Parts of the workspace stay aligned to 64 bytes.
constexpr std::int64_t aligned_floats(std::int64_t floats) {
  constexpr std::int64_t kFloats = 16;
  return ceil_div(floats, kFloats) * kFloats;
}

template <class Walker>
std::size_t backward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                     const Walker& walker) {
  const std::int64_t side =
      std::max(key_side_sizes(problem, walker).total(), value_side_sizes(problem, walker).total());
  const std::int64_t gamma = aligned_floats(gamma_floats(problem, walker));
  const std::int64_t floats = gamma + side;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

}  // namespace attune::cuda
