// Device code on the views of views.hpp.
#pragma once

#include "cuda/chunks/views.hpp"
#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// The tokens of one sequence.
struct SequenceSpan {
  std::int64_t batch = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

/// Bounds in device memory are not validated before a launch: they are clamped here, so that no
/// value of theirs leads outside of a tensor.
__device__ __forceinline__ SequenceSpan span_of(const SequencesView& sequences, std::int64_t n) {
  if (sequences.bounds == nullptr) return {n, 0, sequences.tokens};
  const auto bound = [&](std::int64_t i) -> std::int64_t {
    const std::int64_t at = i * sequences.stride;
    const std::int64_t value = sequences.is_i64
                                   ? static_cast<const std::int64_t*>(sequences.bounds)[at]
                                   : static_cast<const std::int32_t*>(sequences.bounds)[at];
    return min(max(value, std::int64_t{0}), sequences.tokens);
  };
  const std::int64_t begin = bound(n);
  return {0, begin, max(bound(n + 1) - begin, std::int64_t{0})};
}

/// The log decay of head `head` of sequence `n` that is constant in time; natural, not negated.
__device__ __forceinline__ float constant_decay(const ConstantDecayView& decay, std::int64_t n,
                                                std::int64_t head) {
  using Source = ops::ConstantDecay::Source;
  const std::int64_t at = n * decay.sequence + head * decay.head;
  switch (decay.source) {
    case Source::kNone:
      return 0.0F;
    case Source::kValues:
      return decay.values[at];
    case Source::kSlopes:
      return -decay.values[at];
    case Source::kLayer:
      return static_cast<float>(decay.of_layer * static_cast<double>(head));
  }
  return 0.0F;
}

/// Element `at` of a gate; T is q's element type.
template <class T>
__device__ __forceinline__ float gate_at(const GateView& gate, std::int64_t at) {
  return gate.is_f32 ? static_cast<const float*>(gate.rows.data)[at]
                     : to_float(static_cast<const T*>(gate.rows.data)[at]);
}

/// Offset of row (batch, token, head).
template <class View>
__device__ __forceinline__ std::int64_t row_offset(const View& view, std::int64_t batch,
                                                   std::int64_t token, std::int64_t head) {
  return batch * view.batch + token * view.token + head * view.head;
}

}  // namespace attune::cuda
