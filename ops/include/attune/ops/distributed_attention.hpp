// Recurrent, gated linear and lightning attention of sequences that lie on several ranks.
//
//   const SequenceLayout layout(cu_seqlens, even_ranges(T, ranks), rank);
//   const auto plan = plan_recurrent_attention(q, k, v, options, layout, exchange);
//   const auto args = recurrent_attention_args({.o = o, .final_state = final}, q, k, v, options);
//   plan.launch(args, carried_state, exchange, stream, workspace);
//
// Every rank makes its plan with its own tokens, and launches it as often as the others. Results
// are those of one walk over each whole sequence, within one rank's tolerances; they depend on how
// tokens are cut, not on timing.
//
// Tensors are the rank's own. Its fragments, F of them, stand where the ordinary call has
// sequences:
//
//   q, k, v, gates   [1,T,..] packed, or [F,T,..] where all fragments have T tokens
//   cu_seqlens       [F+1]: the layout's local_cu_seqlens(), on q's device; may be left out with F = 1
//   g_gamma, slopes  [H]: the same on all ranks, and the gradient is summed over them, in their
//                    order. [F,H]: a row a fragment, with a gradient of its own, which the caller sums
//   initial_state    [F,H,K,V] f32: read where a fragment begins its sequence (with `reverse`, ends it)
//   final_state      [F,H,K,V] f32: of the sequence where a fragment ends it, of the fragment elsewhere
//   dfinal_state     [F,H,K,V] f32: read as final_state is the sequence's
//   dinitial_state   [F,H,K,V] f32: of the sequence's initial state where initial_state is read, of
//                    the carried state elsewhere
//   carried_state    [F,H,K,V] f32, any strides: the state that came to each fragment, on q's device.
//                    The forward pass writes it and the backward pass reads it: keep it in between
//
// A rank without fragments calls all of this with T = 0, as one sequence without tokens: with no
// cu_seqlens or states, and a g_gamma of [1,H] where others have [F,H]. Its carried_state is not
// looked at.
//
// How it is done. A rank summarises the fragments that go on elsewhere (state_summary_op.hpp), all
// summaries are gathered once, 4 H (K V + K) bytes each, every rank folds those that lead to its
// own fragments in order (state_fold_op.hpp), and walks from there. A kernel that can makes the
// summaries on its way (summarising_walk.hpp). The backward pass does the same against time. No
// state is 16 bits on the wire. The more tokens a rank has, the less this costs:
// docs/scale.md has numbers. Sun et al., "LASP-2: Rethinking Sequence Parallelism for Linear
// Attention and its Hybrid", arXiv:2502.07563.
//
// Errors. Making a plan communicates once, 32 bytes of host memory: where a rank cannot make its
// plan, or layouts, sizes, types, gates or passes of the ranks differ, every rank throws, naming
// who.
// launch() checks its own arguments before it communicates; a rank that throws there leaves the
// others waiting for as long as the exchange lets them, as with any collective. All else throws as
// recurrent_attention.hpp says. Where a device has no kernel for one of the parts, making the plan
// is Unsupported and says which.
//
// No state pools, snapshots or states of 16 bits. The backward pass needs d_o.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/core/exchange.hpp>
#include <attune/ops/gated_linear_attention.hpp>
#include <attune/ops/lightning_attention.hpp>
#include <attune/ops/recurrent_attention.hpp>
#include <attune/ops/sequence_layout.hpp>

namespace attune::ops::distributed {

/// A pass of one rank. Copyable, immutable, usable from several threads at once, each with its own
/// workspace and exchange. The context it was made from must outlive it. `Op` is RecurrentAttention
/// or RecurrentAttentionBackward.
template <class Op>
class SequencePlan {
 public:
  class Parts;  // the plans that it is made of
  explicit SequencePlan(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  /// Scratch memory that launch() needs, on q's device and 64-byte aligned (kWorkspaceAlignment).
  std::size_t workspace_bytes() const;
  /// Bytes that this rank sends at each launch; it receives as many from each other one.
  std::size_t sent_bytes() const;
  /// [F,H,K,V]
  Extents carried_shape() const;
  /// The ordinary plan inside.
  const Plan<Op>& walk() const;
  /// The problems of all plans inside: what to tune before, or together (tune_together.hpp).
  std::vector<AnyProblem> problems() const;

  /// Queues the work on `stream`: nothing is allocated or looked up, and nothing waits, but for
  /// what the exchange does. Gathers once, and in the backward pass, with a g_gamma [H] or slopes,
  /// once more. Throws InvalidArgument, before anything is launched or sent, when the arguments do
  /// not have the plan's problem, the workspace is too small or not aligned, or the exchange is
  /// another one's; and what the exchange throws.
  using CarriedState =
      std::conditional_t<std::is_same_v<Op, RecurrentAttention>, TensorView, ConstTensorView>;
  void launch(const typename Op::Args& args, const CarriedState& carried_state,
              attune::distributed::Exchange& exchange, void* stream = nullptr,
              std::span<std::byte> workspace = {}) const;

 private:
  std::shared_ptr<const Parts> parts_;
};
extern template class SequencePlan<RecurrentAttention>;
extern template class SequencePlan<RecurrentAttentionBackward>;

// Only shapes, strides, types and devices of the tensors are looked at.

SequencePlan<RecurrentAttention> plan_recurrent_attention(const ConstTensorView& q,
                                                          const ConstTensorView& k,
                                                          const ConstTensorView& v,
                                                          const RecurrentAttentionOptions& options,
                                                          const SequenceLayout& layout,
                                                          attune::distributed::Exchange& exchange);
SequencePlan<RecurrentAttentionBackward> plan_recurrent_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const RecurrentAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange);

/// Launched with recurrent_attention_args() of lowered(gk, options).
SequencePlan<RecurrentAttention> plan_gated_linear_attention(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const GatedLinearAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange);
SequencePlan<RecurrentAttentionBackward> plan_gated_linear_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const ConstTensorView& gk, const RecurrentAttentionOutputGradients& gradients,
    const GatedLinearAttentionOptions& options, const SequenceLayout& layout,
    attune::distributed::Exchange& exchange);

/// Launched with lightning_attention_args(), and the backward pass likewise.
SequencePlan<RecurrentAttention> plan_lightning_attention(const ConstTensorView& q,
                                                          const ConstTensorView& k,
                                                          const ConstTensorView& v,
                                                          const LightningAttentionOptions& options,
                                                          const SequenceLayout& layout,
                                                          attune::distributed::Exchange& exchange);
SequencePlan<RecurrentAttentionBackward> plan_lightning_attention_backward(
    const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
    const RecurrentAttentionOutputGradients& gradients, const LightningAttentionOptions& options,
    const SequenceLayout& layout, attune::distributed::Exchange& exchange);

}  // namespace attune::ops::distributed
