// The forward pass as one walk, in segments where it has some; where no block holds all rows of a
// state, `o` is the sum of planes. A Walker is how a kernel walks:
//
//   row_blocks(rows)             blocks that the rows of a state are spread over
//   segments                     how many a sequence is cut into
//   tokens                       that those of a segment are a multiple of
//   launch<T>(params, stream)    queues a walk
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/plane_sums.hpp"
#include "cuda/walks/segment_fold.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda {

template <class Walker>
SegmentPlan forward_segments(const ops::RecurrentAttentionProblem& problem, const Walker& walker) {
  return {problem,
          walker.segments,
          walker.tokens,
          problem.K,
          problem.V,
          (problem.gates & ops::kGateGk) != 0,
          (problem.gates & ops::kGateGv) != 0};
}

template <class Walker>
std::size_t forward_workspace_bytes(const ops::RecurrentAttentionProblem& problem,
                                    const Walker& walker) {
  const std::int64_t blocks = walker.row_blocks(problem.K);
  const std::int64_t planes =
      blocks > 1 ? blocks * problem.B * problem.T * problem.H * problem.V : 0;
  const std::int64_t floats = forward_segments(problem, walker).sizes.total() + planes;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

/// `workspace`: forward_workspace_bytes().
template <class T, class Walker>
void run_forward_walk(const ops::RecurrentAttentionProblem& problem,
                      const ops::RecurrentAttentionArgs& args, const Walker& walker,
                      std::span<std::byte> workspace, cudaStream_t stream) {
  const SegmentPlan plan = forward_segments(problem, walker);
  auto* const memory = reinterpret_cast<float*>(workspace.data());
  const std::int64_t blocks = walker.row_blocks(problem.K);
  float* const planes = blocks > 1 ? memory + plan.sizes.total() : nullptr;
  walk_in_segments<T>(forward_walk(problem, args, planes, plan.segments(memory)), stream,
                      [&](const WalkParams& walk) { walker.template launch<T>(walk, stream); });
  if (planes == nullptr) return;
  launch_plane_sums<T>({.planes = planes,
                        .plane_count = blocks,
                        .batches = problem.B,
                        .tokens = problem.T,
                        .heads = problem.H,
                        .columns = problem.V,
                        .group = 1,
                        .out = token_view(args.o),
                        .sequences = sequences_view(args.cu_seqlens, problem.T),
                        .sequence_count = problem.sequences()},
                       stream);
}

}  // namespace attune::cuda
