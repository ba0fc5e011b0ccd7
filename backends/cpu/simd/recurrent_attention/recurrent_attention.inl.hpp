// The recurrent forward kernel, compiled once per instruction set.
//
// A task keeps its tile of the state in scratch memory as blocks of a few vectors of columns, each
// block contiguous, so that it streams through L1 or L2 whatever the caller's strides. The first
// pass reads the caller's initial state and the last one writes the final state directly where the
// columns are contiguous.
#pragma once

#include "deferred.inl.hpp"
#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention {

inline BlockRange block_of(const HeadTask& task, std::int64_t column) {
  return block_at(task.columns, task.block_vectors, column);
}

inline void pass_state_through(const HeadTask& task) {
  if (!task.final.data) return;
  for (std::int64_t column = 0; column < task.columns;) {
    const BlockRange block = block_of(task, column);
    read_block(task.initial, task.keys.rows, block, task.state);
    write_block(task.final, task.keys.rows, block, task.state);
    column += block.width();
  }
}

// ---- a visit: a few passes over one block of columns after the other ----
//
// The columns of a block stay in the first cache from one pass to the next, whatever the size of
// the state.

template <int kTokens>
struct Visit {
  int passes = 0;
  PassRows rows[kMaxPasses];
  alignas(64) float scores[kMaxPasses][round_up_to_lanes(pair_count(kTokens))];
};

// The value side of pass `pass` as rows of fp32; its tokens are from `token` on. In place: a copy
// of what was just written in parts waits until all stores in front of it are done.
template <int kTokens>
void prepare_values(const HeadTask& task, std::int64_t token, int pass, PassRows& rows) {
  const ValueSide& side = task.values;
  const std::int64_t buffer = pass * kTokens * task.tile_v;
  rows.v = widened_rows<kTokens>(side.v, token, task.columns, {side.v_rows + buffer, task.tile_v});
  rows.o = is_direct(side.o.type, task.columns) ? direct_rows<float>(side.o, token)
                                                : F32Rows<float>{side.o_rows + buffer, task.tile_v};
  if (!side.gv.data) return;
  Decays decays = side.decays;
  decays.of_token += pass * kTokens * decays.width;
  decays.total += pass * decays.width;
  rows.decay = {decays.of_token, decays.width};
  rows.total_decay = decays.total;
  LogDecays<kTokens> logs;
  logs.gates = widened_rows<kTokens>(side.gv, token, task.columns, {decays.of_token, decays.width});
  for (int t = 0; t < kTokens; ++t) logs.set_offset(t, side.balance.of(token + t));
  for (std::int64_t i = 0; i < decays.width; i += kLanes) {
    store_decays<kTokens>(exponentiate<kTokens>(logs, i, decays.carry + i), i, decays);
  }
}

// Prepares the keys and returns whether the pass decays the rows of the state.
template <int kTokens>
bool prepare_row_decay(HeadTask& task, std::int64_t token, float* coefficients, float* scores) {
  const KeySide& keys = task.keys;
  // Decays of the values would have to be deferred as well.
  if (!keys.has_decay || task.values.gv.data) {
    prepare_keys<kTokens>(keys, token, coefficients, scores);
    return keys.has_decay;
  }
  const bool is_last = token + kTokens == task.tokens;
  bool decays_state = task.deferred == kMaxDeferred || (is_last && task.final.data);
  prepare_deferring_keys<kTokens>(keys, token, coefficients, scores, decays_state);
  task.deferred = decays_state ? 0 : task.deferred + 1;
  return decays_state;
}

template <int kTokens>
void prepare_pass(HeadTask& task, std::int64_t token, int pass, Visit<kTokens>& visit) {
  float* const coefficients =
      task.coefficients + pass * coefficient_vectors(kTokens) * round_up_to_lanes(task.keys.rows);
  PassRows& rows = visit.rows[pass];
  rows.coefficients = coefficients;
  rows.scores = visit.scores[pass];
  rows.row_decay = prepare_row_decay<kTokens>(task, token, coefficients, visit.scores[pass]);
  prepare_values<kTokens>(task, token, pass, rows);
}

template <int kTokens, int kVectors>
void run_block(const PassRows& rows, const BlockRange& block, const StateRows& state,
               Prefetcher& prefetcher, std::int64_t prefetch_rows) {
  if constexpr (kVectors > 1) {
    if (block.vectors < kVectors) {
      return run_block<kTokens, kVectors / 2>(rows, block, state, prefetcher, prefetch_rows);
    }
  }
  run_pass<kTokens, kVectors>(rows, block.first, state, prefetcher, prefetch_rows);
}

// How many rows to fetch per vector of rows, to be done with a pass's share by its end.
template <int kTokens>
std::int64_t prefetch_rows(const HeadTask& task) {
  const std::int64_t block_width = block_of(task, 0).width();
  const std::int64_t steps =
      (task.columns + block_width - 1) / block_width * ((task.keys.rows + kLanes - 1) / kLanes);
  return (kTokens * task.prefetcher.rows_per_token() + steps - 1) / steps;
}

// Whether every vector of the block begins where a vector may be written past the caches.
inline bool is_aligned(const StateView<float*>& state, std::int64_t column) {
  const auto first = reinterpret_cast<std::uintptr_t>(state.data + column);
  const std::int64_t step = state.key_stride * static_cast<std::int64_t>(sizeof(float));
  return first % sizeof(F32) == 0 && step % static_cast<std::int64_t>(sizeof(F32)) == 0;
}

// All passes of a visit over one block of columns.
template <int kTokens>
void visit_block(HeadTask& task, std::int64_t token, const Visit<kTokens>& visit,
                 const BlockRange& block, Prefetcher& prefetcher, std::int64_t prefetch_rows) {
  float* const packed = task.state + task.keys.rows * block.first;
  const StateRows in_scratch{task.keys.rows, packed, block.width(), packed, block.width()};
  const bool is_first = token == 0;
  const bool is_last = token + visit.passes * kTokens == task.tokens;
  const bool reads_directly = is_first && is_direct(task.initial, block);
  const bool writes_directly = is_last && is_direct(task.final, block);
  // A gate that is not a number, or inf, makes one even of a zero.
  const auto keeps_state = [&](int pass) {
    return kTokens > 1 && !visit.rows[pass].row_decay && !task.values.gv.data;
  };
  const int last_pass = visit.passes - 1;
  const bool is_zero = is_first && !task.initial.data && keeps_state(0);
  const bool is_dropped = is_last && !task.final.data && keeps_state(last_pass);
  if (is_first && !reads_directly && !is_zero) {
    read_block(task.initial, task.keys.rows, block, packed);
  }
  for (int pass = 0; pass < visit.passes; ++pass) {
    StateRows state = in_scratch;
    if (pass == 0 && reads_directly) {
      state.source = task.initial.data + block.first;
      state.source_step = task.initial.key_stride;
      state.ahead = task.prefetch_state;
    }
    if (pass == 0 && is_zero) {
      state.source = nullptr;
    } else if (pass == last_pass && is_dropped) {
      state.target = nullptr;
    }
    if (pass == last_pass && writes_directly) {
      state.target = task.final.data + block.first;
      state.target_step = task.final.key_stride;
      state.stream = task.stream && is_aligned(task.final, block.first);
    }
    run_block<kTokens, kSumsPerPass / kTokens>(visit.rows[pass], block, state, prefetcher,
                                               prefetch_rows);
    task.states.fetch_rows<2>(task.state_rows);
  }
  if (is_last && task.final.data && !writes_directly) {
    write_block(task.final, task.keys.rows, block, packed);
  }
}

template <int kTokens>
void run_visit(HeadTask& task, std::int64_t token, int passes, Prefetcher& prefetcher,
               std::int64_t prefetch_rows) {
  Visit<kTokens> visit;
  visit.passes = passes;
  for (int pass = 0; pass < passes; ++pass) {
    prepare_pass<kTokens>(task, token + pass * kTokens, pass, visit);
  }
  for (std::int64_t column = 0; column < task.columns;) {
    const BlockRange block = block_of(task, column);
    visit_block<kTokens>(task, token, visit, block, prefetcher, prefetch_rows);
    column += block.width();
  }
  const OutputRows& o = task.values.o;
  if (is_direct(o.type, task.columns)) return;
  for (int i = 0; i < passes * kTokens; ++i) {
    narrow_row(o.type, visit.rows[i / kTokens].o.row(i % kTokens), task.columns, o.row(token + i));
  }
}

// ---- a task: visits to each of its heads in turn ----

template <int kTokens>
void run_passes(Task& task, std::int64_t token) {
  const HeadTask& any = task.heads[0];
  const std::int64_t prefetched = prefetch_rows<kTokens>(any);
  while (any.tokens - token >= kTokens) {
    const std::int64_t left = (any.tokens - token) / kTokens;
    const int passes = left < any.passes ? static_cast<int>(left) : any.passes;
    const std::int64_t end = token + passes * kTokens;
    const std::int64_t next_end = end + passes * kTokens;
    for (int i = 0; i + 1 < task.count; ++i) {
      Prefetcher& next = task.heads[i + 1].prefetcher;
      next.allow_until(end);
      run_visit<kTokens>(task.heads[i], token, passes, next, prefetched);
    }
    Prefetcher& next = end < any.tokens ? task.heads[0].prefetcher : task.following;
    if (end < any.tokens) next.allow_until(next_end < any.tokens ? next_end : any.tokens);
    run_visit<kTokens>(task.heads[task.count - 1], token, passes, next, prefetched);
    token = end;
  }
  if constexpr (kTokens > 1) run_passes<kTokens / 2>(task, token);
}

inline void run_segment(const Tiling& tiling, Task& task) {
  if (task.heads[0].tokens == 0) {
    for (int i = 0; i < task.count; ++i) pass_state_through(task.heads[i]);
    return;
  }
  with_tokens_per_pass(tiling.tokens_per_pass,
                       [&]<int kTokens>() { run_passes<kTokens>(task, 0); });
}

inline void run_tasks(const Tiling& tiling, const ForwardParams& params, std::int64_t first_task,
                      std::int64_t last_task, float* scratch) {
  Task task;
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const TaskRange sequence = sequence_of(tiling, params, index);
    for (Segment segment = first_segment(params, sequence);;
         segment = next_segment(params, sequence, segment)) {
      set_up_task(tiling, params, index, segment, scratch, task);
      run_segment(tiling, task);
      for (int i = 0; i < task.count; ++i) {
        end_segment(params, task.heads[i].range, segment, task.heads[i].staged);
      }
      if (segment.is_last) break;
    }
  }
  if (tiling.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_tasks}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention
