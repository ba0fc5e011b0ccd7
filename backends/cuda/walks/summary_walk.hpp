// state_summary as a walk that reads nothing, in segments where it has some, and the sums of the
// log decays. `inclusive` is a walk that lags: a token's decay acts at the step after the token's
// own, so also on what the token writes. A Walker is as in forward_walk.hpp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <span>

#include <attune/core/kernel.hpp>
#include <attune/ops/state_summary_op.hpp>

#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
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

/// What the kernels of state_summary have alike. A Walker is made of a walk's problem and a config.
template <class ConfigOfKernel, class Walker>
class SummaryKernel : public Kernel<ConfigOfKernel> {
 public:
  using Config = ConfigOfKernel;
  using Problem = ops::StateSummaryProblem;

  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "reverse", "inclusive"};
  }
  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    return summary_workspace_bytes(problem, Walker(problem.walk(), config));
  }
  void run(const Problem& problem, const ops::StateSummaryArgs& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.k.device.index);
    auto* const stream = static_cast<cudaStream_t>(site.stream);
    const Walker walker(problem.walk(), config);
    with_element<float, __half, __nv_bfloat16>(problem.dtype, [&]<class T>() {
      run_summary_walk<T>(problem, args, walker, site.workspace, stream);
    });
  }

 protected:
  /// `extents` as a kernel's own forward pass has them, of a walk that reads nothing.
  template <class Extents>
  static Extents summary_extents(Extents extents) {
    extents.final_only = true;
    return extents;
  }
};

}  // namespace attune::cuda
