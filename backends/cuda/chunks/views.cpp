#include "cuda/chunks/views.hpp"

#include <attune/core/dtype.hpp>

namespace attune::cuda {
namespace {

/// A tensor of rank 4 has channels after its heads, one of rank 3 is a gate g.
template <class View, class Tensor>
View token_view_of(const Tensor& tensor) {
  return {tensor.data, tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

template <class View, class Tensor>
View state_view_of(const std::optional<Tensor>& state) {
  if (!state) return {};
  return {.data = static_cast<decltype(View::data)>(state->data),
          .sequence = state->stride(0),
          .head = state->stride(1),
          .k = state->stride(2),
          .v = state->stride(3)};
}

}  // namespace

TokenView token_view(const TensorView& tensor) { return token_view_of<TokenView>(tensor); }
TokenView token_view(const std::optional<TensorView>& tensor) {
  return tensor ? token_view(*tensor) : TokenView{};
}
ConstTokenView token_view(const ConstTensorView& tensor) {
  return token_view_of<ConstTokenView>(tensor);
}
ConstTokenView token_view(const std::optional<ConstTensorView>& tensor) {
  return tensor ? token_view(*tensor) : ConstTokenView{};
}
GateView gate_view(const std::optional<ConstTensorView>& gate) {
  return {token_view(gate), !gate || gate->dtype == DType::kF32};
}
IndicesView indices_view(const std::optional<ConstTensorView>& indices) {
  if (!indices) return {};
  return {indices->data, indices->stride(0), indices->dtype == DType::kI64};
}
SlotsView slots_view(const ConstTensorView& slots, std::int64_t count) {
  return {.data = slots.data,
          .sequence = slots.stride(0),
          .number = slots.rank() > 1 ? slots.stride(1) : 0,
          .is_i64 = slots.dtype == DType::kI64,
          .count = count};
}
StateView state_view(const std::optional<TensorView>& state) {
  return state_view_of<StateView>(state);
}
ConstStateView state_view(const std::optional<ConstTensorView>& state) {
  return state_view_of<ConstStateView>(state);
}

ConstStateView initial_states(const ops::RecurrentAttentionArgs& args) {
  if (!args.final_slots) return state_view(args.initial_state);
  ConstStateView view = state_view(std::optional<ConstTensorView>(*args.states));
  view.slots = slots_view(args.first_slots(), args.states->size(0));
  return view;
}
StateView final_states(const ops::RecurrentAttentionArgs& args) {
  if (!args.final_slots) return state_view(args.final_state);
  StateView view = state_view(args.states);
  view.slots = slots_view(*args.final_slots, args.states->size(0));
  return view;
}
SnapshotsView snapshots_view(const ops::RecurrentAttentionArgs& args) {
  if (!args.snapshot_slots) return {};
  SnapshotsView view{.states = state_view(args.states),
                     .every = args.snapshot_every,
                     .most = args.snapshot_slots->size(1)};
  view.states.slots = slots_view(*args.snapshot_slots, args.states->size(0));
  return view;
}

SequencesView sequences_view(const std::optional<ConstTensorView>& cu_seqlens,
                             std::int64_t tokens) {
  if (!cu_seqlens) return {.tokens = tokens};
  return {.bounds = cu_seqlens->data,
          .stride = cu_seqlens->stride(0),
          .is_i64 = cu_seqlens->dtype == DType::kI64,
          .tokens = tokens};
}

SequencesView walked_sequences(const ops::RecurrentAttentionArgs& args, std::int64_t tokens) {
  SequencesView view = sequences_view(args.cu_seqlens, tokens);
  if (args.final_slots) view.most_left_out = 1;
  return view;
}

ConstantDecayView decay_view(const ops::ConstantDecay& gamma, std::int64_t heads) {
  using Source = ops::ConstantDecay::Source;
  ConstantDecayView view{.source = gamma.source};
  if (gamma.source == Source::kValues || gamma.source == Source::kSlopes) {
    view.values = static_cast<const float*>(gamma.values.data);
    view.sequence = gamma.values.stride(0);
    view.head = gamma.values.stride(1);
  } else if (gamma.source == Source::kLayer) {
    const double depth =
        static_cast<double>(gamma.layer_idx) / static_cast<double>(gamma.num_layers);
    view.of_layer = -8.0 / static_cast<double>(heads) * (1.0 - depth);
  }
  return view;
}

}  // namespace attune::cuda
