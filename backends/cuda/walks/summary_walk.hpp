// state_summary as a walk that reads nothing, in segments where it has some, and the sums of the log
// decays. `inclusive` is a walk that lags: a token's decay acts at the step after the token's own, so
// also on what the token writes. A Walker is as in forward_walk.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <span>

#include <attune/ops/state_summary_op.hpp>

#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/decay_sums.hpp"
#include "cuda/walks/forward_walk.hpp"

namespace attune::cuda {

inline WalkParams summary_walk(const ops::StateSummaryProblem& problem,
                               const ops::StateSummaryArgs& args, const WalkSegments& segments) {
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  WalkParams params;
  params.sequences = sequences_view(args.cu_seqlens, problem.T);
  params.batches = problem.B;
  params.sequence_count = problem.sequences();
  params.heads = problem.H;
  params.rows = problem.K;
  params.columns = problem.V;
  params.descending = problem.reverse;
  params.lags = problem.inclusive;
  params.decays_last = problem.inclusive;
  params.write = walk_rows(args.k, heads_per_kv);
  params.value = walk_rows(args.v, heads_per_kv);
  params.write_scale = static_cast<float>(args.scale);
  params.shared_gate = gate_view(args.g);
  params.row_gate = walk_gate(args.gk);
  params.column_gate = walk_gate(args.gv);
  params.gamma = decay_view(args.gamma, problem.H);
  params.initial = state_view(args.initial_state);
  params.final = state_view(std::optional(args.final_state));
  params.segments = segments;
  params.segments.final_only = true;
  return params;
}

inline DecaySumParams decay_sums(const ops::StateSummaryProblem& problem,
                                 const ops::StateSummaryArgs& args) {
  return {.sequences = sequences_view(args.cu_seqlens, problem.T),
          .sequence_count = problem.sequences(),
          .heads = problem.H,
          .keys = problem.K,
          .values = args.gv_sum ? problem.V : 0,
          .shared_gate = gate_view(args.g),
          .key_gate = gate_view(args.gk),
          .value_gate = gate_view(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .key_sums = key_sums_view<StateView>(args.gk_sum),
          .value_sums = args.gv_sum ? value_sums_view<StateView>(*args.gv_sum) : StateView{}};
}

/// The memory of a summary, of which none is there while its bytes are counted.
template <class Walker>
struct SummaryMemory {
  SummaryMemory(const ops::StateSummaryProblem& problem, const Walker& walker, std::byte* memory)
      : plan(forward_segments(problem.walk(), walker)), parts(memory) {
    constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
    segments = parts.take<float>(plan.sizes.total() * kFloat);
    sums = parts.take<double>(decay_sum_bytes(problem));
  }
  SegmentPlan plan;
  WorkspaceParts parts;
  float* segments = nullptr;
  double* sums = nullptr;
};

template <class Walker>
std::size_t summary_workspace_bytes(const ops::StateSummaryProblem& problem, const Walker& walker) {
  return SummaryMemory<Walker>(problem, walker, nullptr).parts.used();
}

/// `workspace`: summary_workspace_bytes().
template <class T, class Walker>
void run_summary_walk(const ops::StateSummaryProblem& problem, const ops::StateSummaryArgs& args,
                      const Walker& walker, std::span<std::byte> workspace, cudaStream_t stream) {
  const SummaryMemory<Walker> memory(problem, walker, workspace.data());
  DecaySumParams sums = decay_sums(problem, args);
  sums.parts = memory.sums;
  launch_decay_sums<T>(sums, stream);
  walk_in_segments<T>(summary_walk(problem, args, memory.plan.segments(memory.segments)), stream,
                      [&](const WalkParams& walk) { walker.template launch<T>(walk, stream); });
}

}  // namespace attune::cuda
