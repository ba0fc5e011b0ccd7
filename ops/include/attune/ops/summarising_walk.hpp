// What a kernel of recurrent_attention may offer besides, in either pass: to stop halfway, say what
// its sequences do to the state, and go on from the states that come to them.
//
// A kernel that walks the segments of a sequence side by side finds first what each of them does to
// the state. That is all that a summary of the sequence is made of (state_summary_op.hpp). Where
// sequences lie on several ranks (distributed_attention.hpp), such a kernel so reads its tokens once
// less than a kernel of state_summary and a walk behind it do. A kernel offers it by deriving from
// SummarisingWalk besides Kernel.
#pragma once

#include <cstddef>
#include <optional>

#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// Where the summaries of sequences go. That of sequence n goes to slot slots[n]; below 0 nowhere.
struct SummaryOutputs {
  TensorView final_state;  // [M,H,K,V] f32, any strides, as the next
  TensorView gk_sum;       // [M,H,K] f32: of all log decays
  ConstTensorView slots;   // [N] i32
  /// The states that summaries start from, [N,H,K,V] f32: sequence n's is initial_state's
  /// initial_slots[n], and 0 where that is below 0.
  std::optional<ConstTensorView> initial_state;
  ConstTensorView initial_slots;  // [N] i32
};

/// `Op` is RecurrentAttention or RecurrentAttentionBackward. The backward pass summarises gradients
/// of states, against time.
template <class Op>
class SummarisingWalk {
 public:
  using Problem = typename Op::Problem;
  using Args = typename Op::Args;

  /// Whether summarise() and walk_on() take a supported problem with a config that fits; else the
  /// kernel has to walk behind a summary of somebody else's.
  virtual bool summarises(const Problem& problem, const ConfigBlob& config) const = 0;

  /// Scratch memory of the two, in place of workspace_bytes().
  virtual std::size_t summarising_bytes(const Problem& problem, const ConfigBlob& config) const = 0;

  /// Queues what leads to the summaries. The state that comes to the sequences need not be there
  /// yet: initial_state, in the backward pass dfinal_state, is not read.
  virtual void summarise(const Problem& problem, const Args& args, const SummaryOutputs& to,
                         const ConfigBlob& config, const LaunchSite& site) const = 0;

  /// Queues the rest of run(), from that state. The workspace is as summarise() has left it.
  virtual void walk_on(const Problem& problem, const Args& args, const ConfigBlob& config,
                       const LaunchSite& site) const = 0;

 protected:
  ~SummarisingWalk() = default;
};

}  // namespace attune::ops
