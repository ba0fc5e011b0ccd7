// The tensors of recurrent attention as its CUDA kernels take them: plain structs, passed by value.
// Strides are in elements. views.cuh has what device code does with them.
#pragma once

#include <cstdint>
#include <optional>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cuda {

/// [B, T, H, D] or, for g, [B, T, H] (D = 1); also [B, H, D] with no T. The last dimension is
/// contiguous. `data` is null where there is no such tensor.
struct TokenView {
  void* data = nullptr;
  std::int64_t batch = 0;  // strides
  std::int64_t token = 0;
  std::int64_t head = 0;
};
/// The same, of a tensor that is only read.
struct ConstTokenView {
  const void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

/// A gate g, gk or gv, in fp32 or in q's type.
struct GateView {
  ConstTokenView rows;
  bool is_f32 = true;
  constexpr bool given() const { return rows.data != nullptr; }
};

/// Numbers in device memory, one after the other. None of them is validated before a launch.
struct IndicesView {
  const void* data = nullptr;  // null where there are none
  std::int64_t stride = 1;
  bool is_i64 = false;
};

/// Which slots of a pool sequences have: [N] or [N, M] indices in device memory. Those below 0 and
/// from `count` on are none.
struct SlotsView {
  const void* data = nullptr;  // null: state n is sequence n's
  std::int64_t sequence = 1;   // strides
  std::int64_t number = 1;
  bool is_i64 = false;
  std::int64_t count = 0;  // S
};

/// States [N, H, K, V], any strides, or those of a pool [S, H, K, V] that sequences have slots of.
/// `data` is null where there is none.
template <class Element>
struct StatesView {
  Element* data = nullptr;
  std::int64_t sequence = 0;  // strides
  std::int64_t head = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
  SlotsView slots = {};
};
using StateView = StatesView<float>;
using ConstStateView = StatesView<const float>;

/// The states that are kept after every `every`-th token of a sequence: after tokens (m + 1) every
/// in the m-th of its slots.
struct SnapshotsView {
  StateView states;
  std::int64_t every = 0;  // 0: none are kept
  std::int64_t most = 0;   // M
};

/// Where sequences lie: batch n, or between bounds[n] and bounds[n + 1] when packed.
struct SequencesView {
  const void* bounds = nullptr;  // cu_seqlens [N + 1] in device memory; null: batched
  std::int64_t stride = 1;
  bool is_i64 = false;
  std::int64_t tokens = 0;  // T
  /// Packed sequences of one to so many tokens are another launch's, and not a walk's.
  std::int64_t most_left_out = 0;
};

/// ops::ConstantDecay.
struct ConstantDecayView {
  ops::ConstantDecay::Source source = ops::ConstantDecay::Source::kNone;
  const float* values = nullptr;  // [N, H]
  std::int64_t sequence = 0;      // strides
  std::int64_t head = 0;
  double of_layer = 0;  // kLayer: the log decay of head h is this times h
};

// What a kernel makes its parameters of. The argument may be an optional that is empty.
TokenView token_view(const TensorView& tensor);
TokenView token_view(const std::optional<TensorView>& tensor);
ConstTokenView token_view(const ConstTensorView& tensor);
ConstTokenView token_view(const std::optional<ConstTensorView>& tensor);
GateView gate_view(const std::optional<ConstTensorView>& gate);
IndicesView indices_view(const std::optional<ConstTensorView>& indices);
/// `slots` is [N] or [N, M]; `count` is S, the pool's.
SlotsView slots_view(const ConstTensorView& slots, std::int64_t count);
StateView state_view(const std::optional<TensorView>& state);
ConstStateView state_view(const std::optional<ConstTensorView>& state);
/// What a forward pass starts from, ends with and keeps, whether in tensors or in a pool.
ConstStateView initial_states(const ops::RecurrentAttentionArgs& args);
StateView final_states(const ops::RecurrentAttentionArgs& args);
SnapshotsView snapshots_view(const ops::RecurrentAttentionArgs& args);
SequencesView sequences_view(const std::optional<ConstTensorView>& cu_seqlens, std::int64_t tokens);
/// Those that a walk takes: without sequences of one token, where states are a pool's
/// (decode/single_tokens.hpp).
SequencesView walked_sequences(const ops::RecurrentAttentionArgs& args, std::int64_t tokens);
ConstantDecayView decay_view(const ops::ConstantDecay& gamma, std::int64_t heads);

/// Log decays of key channels, [N, H, K], as states whose columns are alike.
template <class View, class Tensor>
View key_sums_view(const Tensor& sums) {
  return {.data = static_cast<decltype(View::data)>(sums.data),
          .sequence = sums.stride(0),
          .head = sums.stride(1),
          .k = sums.stride(2)};
}
/// Log decays of value channels, [N, H, V], as states whose rows are alike.
template <class View, class Tensor>
View value_sums_view(const Tensor& sums) {
  return {.data = static_cast<decltype(View::data)>(sums.data),
          .sequence = sums.stride(0),
          .head = sums.stride(1),
          .v = sums.stride(2)};
}

}  // namespace attune::cuda
