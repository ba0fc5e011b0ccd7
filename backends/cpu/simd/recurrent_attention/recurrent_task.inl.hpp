// One task of the recurrent kernel: one sequence, a few heads that advance together and one tile
// of V.
#pragma once

#include "recurrent_forward_isa.hpp"
#include "recurrent_pass.inl.hpp"
#include "state_blocks.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct ValueSide {
  InputRows v, gv;
  Balance balance;
  OutputRows o;
  float* v_rows = nullptr;  // [kTokens, tile], for rows that cannot be accessed where they lie
  float* o_rows = nullptr;  // as v_rows
  Decays decays;
};

// One head of a task.
struct HeadTask {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // of the tile, before padding
  std::int64_t tile_v = 0;   // after it
  int block_vectors = 1;
  int passes = 1;                   // of a visit
  std::int64_t prefetch_state = 0;  // in floats
  bool stream = false;              // write the final state past the caches
  int deferred = 0;                 // passes since the state was last decayed
  KeySide keys;
  ValueSide values;
  StateView<const float*> initial;
  StateView<float*> final;
  Prefetcher prefetcher{0};     // of rows
  Prefetcher states{0};         // of what is written at the end, and read by the task behind
  std::int64_t state_rows = 0;  // of those, to fetch between two passes over a block
  float* state = nullptr;
  float* coefficients = nullptr;
};

// Which part of the tensors a task covers.
struct TaskRange {
  std::int64_t sequence, head, kv_head, column;
  std::int64_t batch, first_token, tokens;
  bool reverse;
};

inline TaskRange head_range(const RecurrentForwardParams& p, std::int64_t sequence,
                            std::int64_t head) {
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
TaskRange task_range(const Tiling& tiling, const RecurrentForwardParams& p, std::int64_t index) {
  const std::int64_t head = index / tiling.tiles;
  TaskRange range = head_range(p, head / p.heads, head % p.heads);
  range.column = index % tiling.tiles * tiling.tile_v;
  return range;
}

// Of V, before padding.
template <class Tiling>
std::int64_t columns_of(const Tiling& tiling, const RecurrentForwardParams& p,
                        const TaskRange& range) {
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

// The constant log decay of a head, 0 where there is none.
inline float gamma_of(const RecurrentForwardParams& p, const TaskRange& range) {
  if (!p.g_gamma) return 0.0F;
  return p.g_gamma[range.sequence * p.g_gamma_sequence_stride + range.head * p.g_gamma_head_stride];
}

inline bool has_key_decay(const RecurrentForwardParams& p) {
  return p.g.data || p.gk.data || p.g_gamma;
}

inline Balance balance_of(const RecurrentForwardParams& p, const TaskRange& range, float sign) {
  if (!has_key_decay(p)) return {};
  return {
      .gv = rows_of<const char>(p.gv, range, range.head, 0), .channels = p.value_dim, .sign = sign};
}

// What follows is set up in place: a copy of what was just written in parts waits until all stores
// in front of it are done. `place` is the head's among those of its task.
inline void set_up_keys(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                        const TaskRange& range, std::int64_t place, float* scratch, KeySide& side) {
  const std::int64_t padded_rows = round_up_to_lanes(p.key_dim);
  side.q = rows_of<const char>(p.q, range, range.head, 0);
  side.k = rows_of<const char>(p.k, range, range.kv_head, 0);
  side.g = rows_of<const char>(p.g, range, range.head, 0);
  side.gk = rows_of<const char>(p.gk, range, range.head, 0);
  side.gamma = gamma_of(p, range);
  side.scale = p.scale;
  side.rows = p.key_dim;
  side.has_decay = has_key_decay(p);
  side.balance = balance_of(p, range, 1.0F);
  side.q_rows = scratch + tiling.scratch.q_rows;
  side.k_rows = scratch + tiling.scratch.k_rows;
  side.decays = {.of_token = scratch + tiling.scratch.key_decays,
                 .carry = scratch + tiling.scratch.key_carries + place * padded_rows,
                 .width = p.gk.data ? padded_rows : kLanes};
  for (std::int64_t i = 0; i < side.decays.width; ++i) side.decays.carry[i] = 0.0F;
}

inline void set_up_values(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                          const TaskRange& range, std::int64_t place, float* scratch,
                          ValueSide& side) {
  side.v = rows_of<const char>(p.v, range, range.kv_head, range.column);
  side.gv = rows_of<const char>(p.gv, range, range.head, range.column);
  side.o = rows_of<char>(p.o, range, range.head, range.column);
  side.balance = balance_of(p, range, -1.0F);
  side.v_rows = scratch + tiling.scratch.v_rows;
  side.o_rows = scratch + tiling.scratch.o_rows;
  side.decays = {.of_token = scratch + tiling.scratch.value_decays,
                 .total = scratch + tiling.scratch.value_totals,
                 .carry = scratch + tiling.scratch.value_carries + place * tiling.tile_v,
                 .width = round_up_to_lanes(columns_of(tiling, p, range))};
  if (!side.gv.data) return;
  for (std::int64_t i = 0; i < side.decays.width; ++i) side.decays.carry[i] = 0.0F;
}

inline std::int64_t tokens_of_visit(const RecurrentForwardTiling& tiling) {
  return tiling.passes * tiling.tokens_per_pass;
}

inline void set_up_head(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                        const TaskRange& range, std::int64_t place, float* scratch,
                        HeadTask& task) {
  task.tokens = range.tokens;
  task.columns = columns_of(tiling, p, range);
  task.tile_v = tiling.tile_v;
  task.block_vectors = tiling.block_vectors;
  task.passes = tiling.passes;
  task.prefetch_state = tiling.prefetch_state;
  task.stream = tiling.stream;
  task.deferred = 0;
  task.states.restart(0);
  task.state_rows = 0;
  set_up_keys(tiling, p, range, place, scratch, task.keys);
  set_up_values(tiling, p, range, place, scratch, task.values);
  task.initial = state_of(p.initial_state, range);
  task.final = state_of(p.final_state, range);
  task.state = scratch + tiling.scratch.state + place * p.key_dim * tiling.tile_v;
  task.coefficients = scratch + tiling.scratch.coefficients;
}

// Has `prefetcher` fetch what a head's visits read and write, from token `first` on.
inline void fetch_visits(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                         const TaskRange& range, std::int64_t first, Prefetcher& prefetcher) {
  const std::int64_t columns = columns_of(tiling, p, range);
  prefetcher.restart(first);
  prefetcher.add(rows_of<const char>(p.q, range, range.head, 0), p.key_dim);
  prefetcher.add(rows_of<const char>(p.k, range, range.kv_head, 0), p.key_dim);
  prefetcher.add(rows_of<const char>(p.gk, range, range.head, 0), p.key_dim);
  prefetcher.add(rows_of<const char>(p.v, range, range.kv_head, range.column), columns);
  prefetcher.add(rows_of<const char>(p.gv, range, range.head, range.column), columns);
  prefetcher.add(rows_of<char>(p.o, range, range.head, range.column), columns);
}

// Heads advance together: a token's rows of neighbouring heads share pages, which are looked up
// once for all of them, and lie side by side.
struct Task {
  HeadTask heads[kMostHeads];
  int count = 0;            // of heads
  Prefetcher following{0};  // of the first visit's rows of the task behind
};

// A state's rows where they lie side by side, none elsewhere.
template <class Pointer>
InputRows rows_of_state(const StateView<Pointer>& state) {
  if (!state.data || state.value_stride != 1) return {};
  return {.data = reinterpret_cast<const char*>(state.data),
          .step = state.key_stride * static_cast<std::int64_t>(sizeof(float))};
}

// A head by itself fetches, over all of its passes, its final state and what the next task begins
// with. Whether the same thread runs that one is not known, but likely.
inline void fetch_ahead(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                        std::int64_t next, Task& task) {
  HeadTask& head = task.heads[0];
  Prefetcher& states = head.states;
  task.following.restart(0);
  const bool in_place = p.final_state.data == p.initial_state.data;
  if (!in_place && !tiling.stream) states.add(rows_of_state(head.final), head.columns);
  if (next < p.sequences * p.heads * tiling.tiles) {
    const TaskRange range = task_range(tiling, p, next);
    fetch_visits(tiling, p, range, 0, task.following);
    const std::int64_t visit = tokens_of_visit(tiling);
    task.following.allow_until(visit < range.tokens ? visit : range.tokens);
    states.add(rows_of_state(state_of(p.initial_state, range)), columns_of(tiling, p, range));
  }
  states.allow_until(p.key_dim);
  const std::int64_t block_width = block_at(head.columns, head.block_vectors, 0).width();
  const std::int64_t times = (head.columns + block_width - 1) / block_width *
                             ((head.tokens + tiling.tokens_per_pass - 1) / tiling.tokens_per_pass);
  if (times > 0) head.state_rows = (p.key_dim * states.rows_per_token() + times - 1) / times;
}

// Whatever `task` was before.
inline void set_up_task(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& p,
                        std::int64_t index, float* scratch, Task& task) {
  const std::int64_t groups = (p.heads + tiling.heads - 1) / tiling.heads;
  const std::int64_t group = index / tiling.tiles;
  const std::int64_t first = group % groups * tiling.heads;
  const std::int64_t end = first + tiling.heads < p.heads ? first + tiling.heads : p.heads;
  task.count = 0;
  for (std::int64_t head = first; head < end; ++head) {
    TaskRange range = head_range(p, group / groups, head);
    range.column = index % tiling.tiles * tiling.tile_v;
    HeadTask& part = task.heads[task.count];
    set_up_head(tiling, p, range, task.count, scratch, part);
    if (tiling.prefetch) {
      // The first visit of all is the task's before, if there is one.
      fetch_visits(tiling, p, range, task.count == 0 ? tokens_of_visit(tiling) : 0,
                   part.prefetcher);
    }
    ++task.count;
  }
  if (tiling.prefetch && tiling.heads == 1) fetch_ahead(tiling, p, index + 1, task);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
