// Which part of an op's tensors a task covers, and its rows and states there.
#pragma once

#include "cpu/simd/kernel/params.hpp"
#include "decays.inl.hpp"
#include "rows.inl.hpp"
#include "state.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// Which part of the tensors a task covers.
struct TaskRange {
  std::int64_t sequence, head, kv_head, column;
  std::int64_t batch, first_token, tokens;
  bool reverse;
};

inline TaskRange head_range(const ForwardParams& p, std::int64_t sequence, std::int64_t head) {
  TaskRange range;
  range.column = 0;
  range.head = head;
  range.sequence = sequence;
  range.kv_head = head / (p.heads / p.kv_heads);
  range.batch = p.cu_seqlens ? 0 : sequence;
  const std::int64_t begin = p.cu_seqlens ? p.cu_seqlens[sequence] : 0;
  const std::int64_t end = p.cu_seqlens ? p.cu_seqlens[sequence + 1] : p.tokens;
  range.tokens = end - begin;
  range.first_token = p.reverse ? end - 1 : begin;
  range.reverse = p.reverse;
  return range;
}

// Of the task with this index; the tiles of a head follow one another.
template <class Tiling>
TaskRange task_range(const Tiling& tiling, const ForwardParams& p, std::int64_t index) {
  const std::int64_t head = index / tiling.tiles;
  TaskRange range = head_range(p, head / p.heads, head % p.heads);
  range.column = index % tiling.tiles * tiling.tile_v;
  return range;
}

// Of V, before padding.
template <class Tiling>
std::int64_t columns_of(const Tiling& tiling, const ForwardParams& p, const TaskRange& range) {
  const std::int64_t left = p.value_dim - range.column;
  return left < tiling.tile_v ? left : tiling.tile_v;
}

template <class Byte, class Pointer>
Rows<Byte> rows_of(const TokenTensor<Pointer>& tensor, const TaskRange& range, std::int64_t head,
                   std::int64_t column) {
  // Without tokens first_token may lie outside of the tensor.
  if (!tensor.data || range.tokens == 0) return {};
  const std::int64_t offset = range.batch * tensor.batch_stride +
                              range.first_token * tensor.token_stride + head * tensor.head_stride +
                              column;
  const std::int64_t size = size_of(tensor.type);
  return {.data = static_cast<Byte*>(tensor.data) + offset * size,
          .step = (range.reverse ? -tensor.token_stride : tensor.token_stride) * size,
          .type = tensor.type};
}

template <class Pointer>
StateView<Pointer> state_of(const StateTensor<Pointer>& state, const TaskRange& range) {
  if (!state.data) return {};
  return {.data = state.data + range.sequence * state.sequence_stride +
                  range.head * state.head_stride + range.column * state.value_stride,
          .key_stride = state.key_stride,
          .value_stride = state.value_stride};
}

// One head of a stored state, from the first column of a tile on.
template <class Byte>
struct StoredState {
  Byte* data = nullptr;
  StorageType type = StorageType::kF32;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

template <class Byte, class Pointer>
StoredState<Byte> stored_state(const StoredStates<Pointer>& states, std::int64_t slot,
                               const TaskRange& range) {
  if (!states.data || slot < 0) return {};
  const std::int64_t offset = slot * states.slot_stride + range.head * states.head_stride +
                              range.column * states.value_stride;
  return {.data = static_cast<Byte*>(states.data) + offset * size_of(states.type),
          .type = states.type,
          .key_stride = states.key_stride,
          .value_stride = states.value_stride};
}

// A state of fp32.
template <class Float, class Byte>
StateView<Float*> as_floats(const StoredState<Byte>& state) {
  // An fp32 tensor holds floats, aligned as such.
  return {.data = reinterpret_cast<Float*>(state.data),
          .key_stride = state.key_stride,
          .value_stride = state.value_stride};
}

// The state that a sequence starts from in a backward pass: fp32, and in no pool.
inline StateView<const float*> state_of(const StoredStates<const void*>& states,
                                        const TaskRange& range) {
  return as_floats<const float>(stored_state<const char>(states, range.sequence, range));
}

// The constant log decay of a head, 0 where there is none.
inline float gamma_of(const ForwardParams& p, const TaskRange& range) {
  if (!p.g_gamma) return 0.0F;
  return p.g_gamma[range.sequence * p.g_gamma_sequence_stride + range.head * p.g_gamma_head_stride];
}

inline bool has_key_decay(const ForwardParams& p) { return p.g.data || p.gk.data || p.g_gamma; }

inline Balance balance_of(const ForwardParams& p, const TaskRange& range, float sign) {
  if (!has_key_decay(p)) return {};
  return {
      .gv = rows_of<const char>(p.gv, range, range.head, 0), .channels = p.value_dim, .sign = sign};
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
