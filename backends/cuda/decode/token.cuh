// What all decode kernels do with a row's tokens.
#pragma once

#include <algorithm>

#include "cuda/chunks/raw_index.cuh"
#include "cuda/chunks/views.cuh"
#include "cuda/decode/decode.hpp"
#include "cuda/tiles/element.cuh"
#include "cuda/tiles/tma.cuh"

namespace attune::cuda::decode {

/// What the token has for row i of the state. The log decay is that of g, g_gamma and gk.
struct __align__(16) DecodeKey {
  float k = 0;
  float q = 0;  // times the scale
  float log_decay = 0;
  float decay = 1;  // exp(log_decay)
};
/// What the token has for column j of the state.
struct __align__(8) DecodeValue {
  float v = 0;
  float log_decay = 0;
};

inline constexpr std::int64_t kPaddingSlot = -1;

/// The number at offset `at`.
__device__ __forceinline__ std::int64_t number_at(const IndicesView& view, std::int64_t at) {
  return index_at(view.data, view.is_i64, at);
}
/// A slot of the pool, or kPaddingSlot.
__device__ __forceinline__ std::int64_t slot_or_padding(const DecodeParams& p, std::int64_t slot) {
  return slot >= 0 && slot < p.pool ? slot : kPaddingSlot;
}
/// The slot of row b: its load, and what comes of it. kPaddingSlot: none.
__device__ __forceinline__ RawIndex read_slot(const DecodeParams& p, std::int64_t b) {
  if (p.slots.data == nullptr) return {};
  return read_index(p.slots.data, p.slots.is_i64, b * p.slots.stride);
}
__device__ __forceinline__ std::int64_t slot_of(const DecodeParams& p, std::int64_t b,
                                                const RawIndex& slot) {
  return p.slots.data == nullptr ? b : slot_or_padding(p, slot.value());
}
__device__ __forceinline__ std::int64_t slot_of(const DecodeParams& p, std::int64_t b) {
  return slot_of(p, b, read_slot(p, b));
}

/// What becomes of row b.
struct DecodeRow {
  std::int64_t at = 0;        // its token among those of the batch, or, of packed sequences, of all
  std::int64_t sequence = 0;  // whose constant decay it has
  std::int64_t start = 0;     // the slot that it starts from; kPaddingSlot: zeros
  std::int64_t end = 0;       // where its state goes; kPaddingSlot: nowhere
  bool is_padding = false;
  bool exists = true;  // false: another launch's
};
/// `slot`: of read_slot().
template <bool kMayBePacked = true>
__device__ __forceinline__ DecodeRow row_of(const DecodeParams& p, std::int64_t b,
                                            const RawIndex& slot) {
  const bool is_packed = kMayBePacked && p.sequences.bounds != nullptr;
  DecodeRow row{.at = b};
  if (is_packed) {  // the loads of all that is asked for are under way together
    const RawIndex end = read_index(p.ends.data, p.ends.is_i64, b * p.ends.stride);
    const SequenceSpan span = span_of(p.sequences, b);
    row.at = span.begin;
    row.sequence = b;
    row.exists = span.is_left_out;
    row.end = slot_or_padding(p, end.value());
  }
  row.start = slot_of(p, b, slot);
  if (is_packed) return row;
  row.end = row.start;
  row.is_padding = row.start == kPaddingSlot;
  return row;
}

// Reading a token is split in two: first its elements as they lie in memory, whose loads may then
// be under way together with a state's, and later what becomes of them.

template <class T>
struct RawGate {
  float f32 = 0;
  T io = T(0);
};
template <class T>
struct RawKey {
  T k = T(0);
  T q = T(0);
  RawGate<T> gk;
};
template <class T>
struct RawValue {
  T v = T(0);
  RawGate<T> gv;
};

/// A gate that is not given is 0, no decay.
template <class T>
__device__ __forceinline__ RawGate<T> read_gate(const GateView& gate, std::int64_t b, int t,
                                                int head, std::int64_t at) {
  RawGate<T> raw;
  if (!gate.given()) return raw;
  const std::int64_t offset = row_offset(gate.rows, b, t, head) + at;
  if (gate.is_f32) {
    raw.f32 = static_cast<const float*>(gate.rows.data)[offset];
  } else {
    raw.io = static_cast<const T*>(gate.rows.data)[offset];
  }
  return raw;
}
template <class T>
__device__ __forceinline__ float log_decay_of(const GateView& gate, const RawGate<T>& raw) {
  return gate.is_f32 ? raw.f32 : to_float(raw.io);
}

/// x / by, by a shift where that is a power of two, which it mostly is: a block asks memory for
/// nothing before it has quotients, and each takes a hundred cycles.
__device__ __forceinline__ int quotient(int x, int by) {
  const auto divisor = static_cast<unsigned>(by);
  const bool is_power = (divisor & (divisor - 1)) == 0;
  return is_power ? x >> (__ffs(by) - 1) : static_cast<int>(static_cast<unsigned>(x) / divisor);
}
__device__ __forceinline__ int kv_head_of(const DecodeParams& p, int head) {
  return quotient(head, static_cast<int>(p.heads_per_kv));
}

// Of token t of row b. A committed token is not read with a query: its q is 0.

template <class T>
__device__ __forceinline__ RawKey<T> read_key(const DecodeParams& p, const TokensView& tokens,
                                              std::int64_t b, int t, int head, std::int64_t i) {
  const int kv_head = kv_head_of(p, head);
  return {.k = static_cast<const T*>(tokens.k.data)[row_offset(tokens.k, b, t, kv_head) + i],
          .gk = read_gate<T>(tokens.gk, b, t, head, i)};
}
template <class T>
__device__ __forceinline__ RawKey<T> read_fresh_key(const DecodeParams& p, std::int64_t b, int t,
                                                    int head, std::int64_t i) {
  const int kv_head = kv_head_of(p, head);
  return {.k = static_cast<const T*>(p.fresh.k.data)[row_offset(p.fresh.k, b, t, kv_head) + i],
          .q = static_cast<const T*>(p.q.data)[row_offset(p.q, b, t, head) + i],
          .gk = read_gate<T>(p.fresh.gk, b, t, head, i)};
}
template <class T>
__device__ __forceinline__ RawValue<T> read_value(const DecodeParams& p, const TokensView& tokens,
                                                  std::int64_t b, int t, int head, std::int64_t j) {
  const int kv_head = kv_head_of(p, head);
  return {.v = static_cast<const T*>(tokens.v.data)[row_offset(tokens.v, b, t, kv_head) + j],
          .gv = read_gate<T>(tokens.gv, b, t, head, j)};
}

/// expf and not ex2.approx: a state goes through thousands of these.
template <class T>
__device__ __forceinline__ DecodeKey key_of(const DecodeParams& p, const RawKey<T>& raw,
                                            float log_decay) {
  return {to_float(raw.k), to_float(raw.q) * p.scale, log_decay, expf(log_decay)};
}
template <class T>
__device__ __forceinline__ DecodeValue value_of(const TokensView& tokens, const RawValue<T>& raw) {
  return {to_float(raw.v), log_decay_of(tokens.gv, raw.gv)};
}

/// An element of the state after the token. The decay is the exponential of the sum: a product of
/// exponentials could overflow where the sum does not.
__device__ __forceinline__ float advanced(float state, const DecodeKey& key,
                                          const DecodeValue& value, bool value_gate) {
  const float decay = value_gate ? expf(key.log_decay + value.log_decay) : key.decay;
  return fmaf(state, decay, key.k * value.v);
}

template <class T>
__device__ __forceinline__ void store_output(const DecodeParams& p, std::int64_t b, int t, int head,
                                             std::int64_t j, float o) {
  static_cast<T*>(p.o.data)[row_offset(p.o, b, t, head) + j] = from_float<T>(o);
}

/// Blocks for one tile of one head of one row each: heads and tiles along x, rows along y.
inline dim3 decode_grid(const DecodeParams& p, int tile_columns) {
  constexpr std::int64_t kMaxRows = 65'535;  // of a grid; a block takes several rows beyond
  const std::int64_t tiles = (p.values + tile_columns - 1) / tile_columns;
  return {static_cast<unsigned>(p.heads * tiles),
          static_cast<unsigned>(std::min(p.rows, kMaxRows))};
}

/// What a block of that grid takes of each of its rows' states.
struct BlockTile {
  int head;
  int first_column;
};
__device__ __forceinline__ BlockTile block_tile(const DecodeParams& p, int tile_columns) {
  const int tiles = quotient(static_cast<int>(p.values) + tile_columns - 1, tile_columns);
  const int block = static_cast<int>(blockIdx.x);
  const int head = quotient(block, tiles);
  return {head, (block - head * tiles) * tile_columns};
}

}  // namespace attune::cuda::decode
