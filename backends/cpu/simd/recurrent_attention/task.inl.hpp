// One task of the recurrent kernel: one sequence, a few heads that advance together and one tile
// of V.
#pragma once

#include "cpu/simd/vector/pass.inl.hpp"
#include "cpu/simd/vector/segments.inl.hpp"
#include "cpu/simd/vector/state.inl.hpp"
#include "recurrent_attention_params.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention {

using simd::recurrent_attention::Instance;
using simd::recurrent_attention::kMaxHeads;
using simd::recurrent_attention::kMaxPasses;
using simd::recurrent_attention::kSumsPerPass;
using simd::recurrent_attention::Tiling;

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
  TaskRange range;
  StagedState staged;
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

// What follows is set up in place: a copy of what was just written in parts waits until all stores
// in front of it are done. `place` is the head's among those of its task.
inline void set_up_keys(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                        std::int64_t place, float* scratch, KeySide& side) {
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

inline void set_up_values(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                          std::int64_t place, float* scratch, ValueSide& side) {
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

inline std::int64_t tokens_of_visit(const Tiling& tiling) {
  return tiling.passes * tiling.tokens_per_pass;
}

inline void set_up_head(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                        const Segment& segment, std::int64_t place, float* scratch,
                        HeadTask& task) {
  task.range = range;
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
  task.staged = {scratch + tiling.scratch.staged + place * p.key_dim * tiling.tile_v, tiling.tile_v,
                 task.columns};
  const SegmentStates states = begin_segment(p, range, segment, task.staged);
  task.initial = states.initial;
  task.final = states.final;
  task.state = scratch + tiling.scratch.state + place * p.key_dim * tiling.tile_v;
  task.coefficients = scratch + tiling.scratch.coefficients;
}

// Has `prefetcher` fetch what a head's visits read and write, from token `first` on.
inline void fetch_visits(const Tiling& tiling, const ForwardParams& p, const TaskRange& range,
                         std::int64_t first, Prefetcher& prefetcher) {
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
  HeadTask heads[kMaxHeads];
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

// What the sequence of a task starts from, where it may be fetched: in fp32.
inline InputRows rows_of_initial_state(const ForwardParams& p, const TaskRange& range) {
  if (p.initial_state.type != StorageType::kF32) return {};
  const std::int64_t slot = slot_at(p.initial_slots, range.sequence);
  return rows_of_state(
      as_floats<const float>(stored_state<const char>(p.initial_state, slot, range)));
}

// A head by itself fetches, over all of its passes, its final state and what the next task begins
// with. Whether the same thread runs that one is not known, but likely.
inline void fetch_ahead(const Tiling& tiling, const ForwardParams& p, std::int64_t next,
                        Task& task) {
  HeadTask& head = task.heads[0];
  Prefetcher& states = head.states;
  const bool in_place = head.final.data == head.initial.data;
  if (!in_place && !tiling.stream) states.add(rows_of_state(head.final), head.columns);
  if (next < p.sequences * p.heads * tiling.tiles) {
    const TaskRange range = task_range(tiling, p, next);
    fetch_visits(tiling, p, range, 0, task.following);
    const std::int64_t visit = tokens_of_visit(tiling);
    task.following.allow_until(visit < range.tokens ? visit : range.tokens);
    states.add(rows_of_initial_state(p, range), columns_of(tiling, p, range));
  }
  states.allow_until(p.key_dim);
  const std::int64_t block_width = block_at(head.columns, head.block_vectors, 0).width();
  const std::int64_t times = (head.columns + block_width - 1) / block_width *
                             ((head.tokens + tiling.tokens_per_pass - 1) / tiling.tokens_per_pass);
  if (times > 0) head.state_rows = (p.key_dim * states.rows_per_token() + times - 1) / times;
}

// The tokens of a task's sequence; of its heads, the first.
inline TaskRange sequence_of(const Tiling& tiling, const ForwardParams& p, std::int64_t index) {
  const std::int64_t groups = (p.heads + tiling.heads - 1) / tiling.heads;
  const std::int64_t group = index / tiling.tiles;
  return head_range(p, group / groups, group % groups * tiling.heads);
}

// A segment of the task with this index. Whatever `task` was before.
inline void set_up_task(const Tiling& tiling, const ForwardParams& p, std::int64_t index,
                        const Segment& segment, float* scratch, Task& task) {
  const TaskRange sequence = sequence_of(tiling, p, index);
  const std::int64_t first = sequence.head;
  const std::int64_t end = first + tiling.heads < p.heads ? first + tiling.heads : p.heads;
  task.count = 0;
  for (std::int64_t head = first; head < end; ++head) {
    TaskRange range = range_of(head_range(p, sequence.sequence, head), segment);
    range.column = index % tiling.tiles * tiling.tile_v;
    HeadTask& part = task.heads[task.count];
    set_up_head(tiling, p, range, segment, task.count, scratch, part);
    if (tiling.prefetch) {
      // The first visit of all is the task's before, if there is one.
      fetch_visits(tiling, p, range, task.count == 0 ? tokens_of_visit(tiling) : 0,
                   part.prefetcher);
    }
    ++task.count;
  }
  task.following.restart(0);
  if (tiling.prefetch && tiling.heads == 1 && segment.is_last) {
    fetch_ahead(tiling, p, index + 1, task);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention
