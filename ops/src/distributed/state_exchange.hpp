// The states that come to a rank's fragments from the tokens of other ranks: summaries of what goes
// on elsewhere, one all-gather, a fold in order. Both passes do this; the backward pass with
// gradients of states, against time. Summaries are made here, or by a walk that makes them on its
// way (summarising_walk.hpp).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <attune/core/exchange.hpp>
#include <attune/core/plan.hpp>
#include <attune/ops/call_options.hpp>
#include <attune/ops/sequence_layout.hpp>
#include <attune/ops/state_fold_op.hpp>
#include <attune/ops/state_summary_op.hpp>
#include <attune/ops/summarising_walk.hpp>

namespace attune::ops::distributed {

using attune::distributed::Exchange;

/// Sums over ranks in their order, each of `count` floats.
class RankSum {
 public:
  RankSum(std::int64_t count, int ranks, const CallOptions& options, const Device& device);

  std::size_t bytes() const;
  const StateFoldProblem& problem() const { return fold_.problem(); }
  /// Where this rank's summands go, [count] in `memory`.
  static float* summands(std::span<std::byte> memory);
  /// Gathers them, and leaves the sums in the first row of `to` [.., count].
  void run(const TensorView& to, Exchange& exchange, void* stream,
           std::span<std::byte> memory) const;

 private:
  std::int64_t count_;
  int ranks_;
  Tensor offsets_, order_;
  Plan<StateFold> fold_;
};

class StateExchange {
 public:
  /// What is to be done, but for the tensors.
  struct Pass {
    RecurrentAttentionProblem problem;  // of the rank's walk
    bool backward = false;
    bool starts = false;  // states that sequences start from are given
  };
  /// Throws Unsupported where the device has no kernel for a part.
  StateExchange(const Pass& pass, const SequenceLayout& layout, const CallOptions& options,
                const Device& device);

  /// In canonical form: k, v or q, d_o, and all of the rank's tokens.
  struct Inputs {
    ConstTensorView k, v;
    std::optional<ConstTensorView> g, gk, gv;
    ConstantDecay gamma;
    std::optional<ConstTensorView> starts;  // [F,H,K,V]
    double scale = 1;
  };

  std::size_t sent_bytes() const { return static_cast<std::size_t>(slots_) * slot_bytes(); }
  void add_problems(std::vector<AnyProblem>& to) const;
  /// Scratch memory, kWorkspaceAlignment.
  std::size_t bytes() const;

  /// Throws InvalidArgument for tensors that do not have the pass's problem.
  void check(const Inputs& inputs, const TensorView& folded, std::span<std::byte> memory) const;
  /// Makes the summaries of what goes on elsewhere.
  void summarise(const Inputs& inputs, void* stream, std::span<std::byte> memory) const;
  /// Gathers them, and leaves in `folded` [F,H,K,V] the state that comes to each fragment.
  void exchange(const Inputs& inputs, const TensorView& folded, Exchange& with, void* stream,
                std::span<std::byte> memory) const;

  /// Whether any rank sends anything.
  bool is_needed() const { return slots_ > 0; }
  /// What summarise() writes, for a walk that does so in its place.
  SummaryOutputs outputs(const Inputs& inputs, std::span<std::byte> memory) const;

 private:
  struct Sender {
    std::int64_t fragment;
    int slot;
    bool starts;  // its sequence, from a state that is given
    Plan<StateSummary> summary;
  };

  void add_folds(const SequenceLayout& layout, const CallOptions& options, const Device& device);
  std::int64_t slot_floats() const;
  std::size_t slot_bytes() const { return static_cast<std::size_t>(slot_floats()) * sizeof(float); }
  std::span<std::byte> scratch(std::span<std::byte> memory) const;
  StateSummaryArgs summary_args(const Inputs& inputs, const Sender& sender,
                                std::span<std::byte> memory) const;
  StateFoldArgs fold_args(const Inputs& inputs, const TensorView& folded,
                          std::span<std::byte> memory) const;

  Pass pass_;
  SequenceLayout::Direction direction_;
  int ranks_;
  int slots_;
  std::vector<std::int64_t> bounds_;  // of fragments, among the rank's tokens
  std::vector<Sender> senders_;
  Tensor offsets_, order_;
  Tensor starts_;                        // by fragment: whose start is its own; -1: it has none
  Tensor sent_slots_;                    // by fragment: where its summary goes; -1: nowhere
  std::optional<Plan<StateFold>> fold_;  // none without fragments
};

}  // namespace attune::ops::distributed
