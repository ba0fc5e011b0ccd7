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

/// [N, H, K, V] f32, any strides. `data` is null where there is none.
struct StateView {
  float* data = nullptr;
  std::int64_t sequence = 0;  // strides
  std::int64_t head = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
};
struct ConstStateView {
  const float* data = nullptr;
  std::int64_t sequence = 0;
  std::int64_t head = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
};

/// Where sequences lie: batch n, or between bounds[n] and bounds[n + 1] when packed.
struct SequencesView {
  const void* bounds = nullptr;  // cu_seqlens [N + 1] in device memory; null: batched
  std::int64_t stride = 1;
  bool is_i64 = false;
  std::int64_t tokens = 0;  // T
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
StateView state_view(const std::optional<TensorView>& state);
ConstStateView state_view(const std::optional<ConstTensorView>& state);
SequencesView sequences_view(const std::optional<ConstTensorView>& cu_seqlens, std::int64_t tokens);
ConstantDecayView decay_view(const ops::ConstantDecay& gamma, std::int64_t heads);

}  // namespace attune::cuda
