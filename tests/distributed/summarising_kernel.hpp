// The reference kernel of recurrent_attention, of either pass, as one that can make summaries on its
// way (ops/summarising_walk.hpp). What it is asked to do is counted.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/attune.hpp>
#include <attune/core/executor.hpp>
#include <attune/ops/state_summary_op.hpp>
#include <attune/ops/summarising_walk.hpp>

#include "support/heuristic_context.hpp"

namespace attune::test {

struct SummarisingCalls {
  std::atomic<int> runs = 0, summaries = 0, walks = 0;
};

template <class KernelOp>
struct SummarisingConfig {
  using Op = KernelOp;
  friend constexpr bool operator==(const SummarisingConfig&, const SummarisingConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

template <class Op>
class SummarisingReference final : public Kernel<SummarisingConfig<Op>>,
                                   public ops::SummarisingWalk<Op> {
 public:
  using Config = SummarisingConfig<Op>;
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;
  static constexpr bool kIsBackward = std::is_same_v<Op, ops::RecurrentAttentionBackward>;

  explicit SummarisingReference(SummarisingCalls& calls) : calls_(calls) {}

  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override { return reference().features(); }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  Config heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem& problem, const Args& args, const Config&,
           const LaunchSite&) const override {
    ++calls_.runs;
    walk(problem, args);
  }

  bool summarises(const Problem& problem, const ConfigBlob&) const override {
    return (problem.gates & ops::kGateGv) == 0;
  }
  std::size_t summarising_bytes(const Problem&, const ConfigBlob&) const override { return kBytes; }
  void summarise(const Problem& problem, const Args& args, const ops::SummaryOutputs& to,
                 const ConfigBlob&, const LaunchSite& site) const override {
    ++calls_.summaries;
    std::ranges::fill(site.workspace.first(kBytes), kMark);
    for (std::int64_t n = 0; n < problem.sequences(); ++n) {
      if (value(to.slots, n) >= 0) summarise_sequence(problem, args, to, n);
    }
  }
  void walk_on(const Problem& problem, const Args& args, const ConfigBlob&,
               const LaunchSite& site) const override {
    ++calls_.walks;
    const auto kept = site.workspace.first(kBytes);
    if (std::ranges::count(kept, kMark) != std::ssize(kept)) throw ExecutionError("overwritten");
    walk(problem, args);
  }

 private:
  static constexpr std::size_t kBytes = 1000;  // more than run() needs
  static constexpr std::byte kMark{0x5a};

  static const ErasedKernel& reference() {
    static const std::string name = str("reference.", Op::kName);
    return *heuristic_context().registry().find_kernel(name)->kernel;
  }
  static void walk(const Problem& problem, const Args& args) {
    const auto ref = ProblemRef::of<Op>(problem);
    const ConfigBlob config = reference().erased_heuristic(ref, cpu_device().info());
    const Memory memory(reference().erased_workspace_bytes(ref, config));
    reference().erased_run(ref, &args, config, {.workspace = memory.span()});
  }
  static std::int64_t value(const ConstTensorView& indices, std::int64_t n) {
    const std::int64_t at = n * indices.stride(0);
    return indices.dtype == DType::kI64 ? static_cast<const std::int64_t*>(indices.data)[at]
                                        : static_cast<const std::int32_t*>(indices.data)[at];
  }

  class Memory {
   public:
    explicit Memory(std::size_t bytes)
        : bytes_(bytes), memory_(DType::kF32, {static_cast<std::int64_t>(bytes / 4 + 1)}) {}
    std::span<std::byte> span() const {
      return {static_cast<std::byte*>(memory_.view().data), bytes_};
    }

   private:
    std::size_t bytes_;
    mutable Tensor memory_;
  };

  static void summarise_sequence(const Problem& problem, const Args& args,
                                 const ops::SummaryOutputs& to, std::int64_t n) {
    const auto tokens = [&](const ConstTensorView& all) {
      if (problem.N == 0) return all.slice(0, n, n + 1);
      return all.slice(1, value(*args.cu_seqlens, n), value(*args.cu_seqlens, n + 1));
    };
    const auto tokens_if = [&](const std::optional<ConstTensorView>& all) {
      return all ? std::optional(tokens(*all)) : std::nullopt;
    };
    ops::StateSummaryArgs summary;
    summary.k = tokens(args.k);
    summary.v = tokens(args.v);
    if constexpr (kIsBackward) {
      summary.k = tokens(args.q);
      summary.v = tokens(*args.d_o);
      summary.scale = args.scale;
    }
    summary.g = tokens_if(args.g);
    summary.gk = tokens_if(args.gk);
    summary.gamma = args.gamma;
    if (args.gamma.values.rank() == 2) {
      summary.gamma.values = args.gamma.values.slice(0, n, n + 1);
    }
    const std::int64_t slot = value(to.slots, n);
    const std::int64_t start = to.initial_state ? value(to.initial_slots, n) : -1;
    if (start >= 0) summary.initial_state = to.initial_state->slice(0, start, start + 1);
    summary.final_state = to.final_state.slice(0, slot, slot + 1);
    summary.gk_sum = to.gk_sum.slice(0, slot, slot + 1);

    ops::StateSummaryProblem of;
    of.T = summary.k.size(1);
    of.H = problem.H;
    of.Hkv = summary.k.size(2);
    of.K = problem.K;
    of.V = problem.V;
    of.dtype = problem.dtype;
    of.gates = problem.gates;
    of.gate_dtype = problem.gate_dtype;
    of.h0 = start >= 0;
    of.reverse = problem.reverse != kIsBackward;
    of.inclusive = kIsBackward && problem.gates != 0;
    of.layout = problem.layout == ops::Layout::kBthd ? problem.layout : ops::Layout::kStrided;
    of.aligned = problem.aligned;
    Executor executor(heuristic_context());
    Request request;
    request.device = &cpu_device();
    request.platform = kReferencePlatform;
    const auto plan = executor.plan<ops::StateSummary>(of, request);
    const Memory memory(plan.workspace_bytes());
    plan.launch(summary, nullptr, memory.span());
  }

  SummarisingCalls& calls_;
  std::string name_ = str("summarising.", Op::kName);
};

/// All kernels of this build and, before them on the CPU, those of both passes that summarise.
inline std::unique_ptr<Context> summarising_context(SummarisingCalls& calls) {
  return make_context(
      {.register_kernels = {[&calls](Registry& registry) {
         constexpr int kFirst = 1000;
         const Placement first{.platform = "summarising", .priority = kFirst};
         registry.add(std::make_unique<SummarisingReference<ops::RecurrentAttention>>(calls),
                      first);
         registry.add(
             std::make_unique<SummarisingReference<ops::RecurrentAttentionBackward>>(calls), first);
       }},
       .policy = Policy::kHeuristic,
       .database = ""});
}

}  // namespace attune::test
