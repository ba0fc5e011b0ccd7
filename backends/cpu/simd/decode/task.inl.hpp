// Which part of a step's tensors a task covers, and its rows and states there.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "cpu/simd/vector/rows.inl.hpp"
#include "cpu/simd/vector/state.inl.hpp"
#include "decode_params.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode {

using simd::decode::kDecodeBlockVectors;
using simd::decode::kDecodeCoefficients;
using simd::decode::kMaxPasses;
using simd::decode::kMaxPassTokens;
using simd::decode::Params;
using simd::decode::RowSlots;
using simd::decode::TokenTensors;

struct DecodeTask {
  std::int64_t row, head, kv_head;
  std::int64_t column;   // first of the tile
  std::int64_t columns;  // of the tile, before padding
};

inline DecodeTask decode_task(const Params& p, std::int64_t index) {
  DecodeTask task;
  task.column = index % p.tiles * p.tile_v;
  task.head = index / p.tiles % p.heads;
  task.row = index / p.tiles / p.heads;
  task.kv_head = task.head / (p.heads / p.kv_heads);
  const std::int64_t left = p.value_dim - task.column;
  task.columns = left < p.tile_v ? left : p.tile_v;
  return task;
}

inline RowSlots slots_of(const Params& p, std::int64_t row) {
  return p.slots ? p.slots[row] : RowSlots{.start = row, .committed = 0};
}

// The tokens of a row and head.
template <class Byte, class Pointer>
Rows<Byte> rows_of(const TokenTensor<Pointer>& tensor, std::int64_t row, std::int64_t head,
                   std::int64_t column = 0) {
  if (!tensor.data) return {};
  const std::int64_t offset = row * tensor.batch_stride + head * tensor.head_stride + column;
  const std::int64_t size = size_of(tensor.type);
  return {.data = static_cast<Byte*>(tensor.data) + offset * size,
          .step = tensor.token_stride * size,
          .type = tensor.type};
}

inline void clear_outputs(const Params& p, const DecodeTask& task, const OutputRows& o) {
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    __builtin_memset(o.row(t), 0, static_cast<std::size_t>(task.columns * size_of(o.type)));
  }
}

inline bool has_key_decay(const Params& p) {
  return p.fresh.g.data || p.fresh.gk.data || p.g_gamma;
}

inline Balance balance_of(const Params& p, const TokenTensors& tokens, const DecodeTask& task,
                          float sign) {
  if (!has_key_decay(p)) return {};
  return {.gv = rows_of<const char>(tokens.gv, task.row, task.head),
          .channels = p.value_dim,
          .sign = sign};
}

// Where in the pool a slot's columns of a task begin, in elements.
inline std::int64_t state_offset(const Params& p, const DecodeTask& task, std::int64_t slot) {
  return slot * p.state.sequence_stride + task.head * p.state.head_stride +
         task.column * p.state.value_stride;
}

inline StateView<float*> f32_state_of(const Params& p, const DecodeTask& task, std::int64_t slot) {
  return {static_cast<float*>(p.state.data) + state_offset(p, task, slot), p.state.key_stride,
          p.state.value_stride};
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode
