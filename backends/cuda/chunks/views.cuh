// Device code on the views of views.hpp.
#pragma once

#include "cuda/chunks/views.hpp"
#include "cuda/tiles/element.cuh"
#include "cuda/tiles/ptx.cuh"

namespace attune::cuda {

/// The tokens of one sequence.
struct SequenceSpan {
  std::int64_t batch = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  bool is_left_out = false;  // by walks
};

/// Element `at` of an array of i32 or i64.
__device__ __forceinline__ std::int64_t index_at(const void* indices, bool is_i64,
                                                 std::int64_t at) {
  return is_i64 ? static_cast<const std::int64_t*>(indices)[at]
                : static_cast<const std::int32_t*>(indices)[at];
}

/// Where packed sequence n begins. Bounds in device memory are not validated before a launch: they
/// are clamped here, so that no value of theirs leads outside of a tensor.
__device__ __forceinline__ std::int64_t bound_of(const SequencesView& sequences, std::int64_t n) {
  const std::int64_t bound = index_at(sequences.bounds, sequences.is_i64, n * sequences.stride);
  return min(max(bound, std::int64_t{0}), sequences.tokens);
}

__device__ __forceinline__ SequenceSpan span_of(const SequencesView& sequences, std::int64_t n) {
  if (sequences.bounds == nullptr) return {n, 0, sequences.tokens};
  const std::int64_t begin = bound_of(sequences, n);
  const std::int64_t length = max(bound_of(sequences, n + 1) - begin, std::int64_t{0});
  return {0, begin, length, length > 0 && length <= sequences.most_left_out};
}

/// Writes zeros to the rows of `out` behind the last of `count` packed sequences, a row a block at
/// a time; called by threads [0, threads) of all blocks of a grid of one or two dimensions.
template <class T>
__device__ __forceinline__ void clear_rows_behind(const SequencesView& sequences,
                                                  std::int64_t count, const TokenView& out,
                                                  std::int64_t heads, std::int64_t columns,
                                                  int thread, int threads) {
  if (sequences.bounds == nullptr || out.data == nullptr) return;
  const std::int64_t blocks = static_cast<std::int64_t>(gridDim.x) * gridDim.y;
  const std::int64_t end = sequences.tokens * heads;
  std::int64_t row = bound_of(sequences, count) * heads + blockIdx.x +
                     static_cast<std::int64_t>(gridDim.x) * blockIdx.y;
  for (; row < end; row += blocks) {
    T* const to = static_cast<T*>(out.data) + row / heads * out.token + row % heads * out.head;
    for (std::int64_t column = thread; column < columns; column += threads) {
      to[column] = from_float<T>(0.0F);
    }
  }
}

/// The m-th slot of a sequence, or -1.
__device__ __forceinline__ std::int64_t slot_of(const SlotsView& slots, std::int64_t sequence,
                                                std::int64_t m) {
  const std::int64_t slot =
      index_at(slots.data, slots.is_i64, sequence * slots.sequence + m * slots.number);
  return slot >= 0 && slot < slots.count ? slot : -1;
}

/// A view of the one state [H, K, V] that a sequence has, its m-th one where it has several;
/// without data where it has none.
template <class View>
__device__ __forceinline__ View state_of(View view, std::int64_t sequence, std::int64_t m = 0) {
  if (view.data == nullptr) return view;
  const std::int64_t at = view.slots.data == nullptr ? sequence : slot_of(view.slots, sequence, m);
  if (at < 0) {
    view.data = nullptr;
  } else {
    view.data += at * view.sequence;
  }
  return view;
}

/// Where the state after the first `tokens` tokens of a sequence is kept; without data: nowhere.
__device__ __forceinline__ StateView snapshot_of(const SnapshotsView& snapshots,
                                                 std::int64_t sequence, std::int64_t tokens) {
  if (snapshots.every == 0 || tokens == 0 || tokens % snapshots.every != 0) return {};
  const std::int64_t m = tokens / snapshots.every - 1;
  return m < snapshots.most ? state_of(snapshots.states, sequence, m) : StateView{};
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
