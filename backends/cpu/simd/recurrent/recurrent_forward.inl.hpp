// The recurrent forward kernel, compiled once per instruction set.
//
// A task keeps its tile of the state in scratch memory as blocks of a few vectors of columns, each
// block contiguous, so that it streams through L1 or L2 whatever the caller's strides. The first
// pass reads the caller's initial state and the last one writes the final state directly where the
// columns are contiguous.
#pragma once

#include "recurrent_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

inline BlockRange block_at(const Task& task, std::int64_t column) {
  return block_at(task.columns, task.block_vectors, column);
}

inline void pass_state_through(const Task& task) {
  if (!task.final.data) return;
  for (std::int64_t column = 0; column < task.columns;) {
    const BlockRange block = block_at(task, column);
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
  PassRows<kTokens> rows[kMostPasses];
  alignas(64) float mix[kMostPasses][round_up_to_lanes(pair_count(kTokens))];
};

// The value side of pass `pass` as rows of fp32; its tokens are from `token` on.
template <int kTokens>
PassRows<kTokens> prepare_values(const Task& task, std::int64_t token, int pass) {
  const ValueSide& side = task.values;
  PassRows<kTokens> rows;
  const float* gates[kTokens];
  float offset[kTokens];
  Decays decays = side.decays;
  decays.of_token += pass * kTokens * decays.width;
  decays.total += pass * decays.width;
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t buffer = (pass * kTokens + t) * task.tile_v;
    rows.v[t] = widened(side.v, token + t, task.columns, side.v_rows + buffer);
    rows.o[t] =
        is_direct(side.o.type, task.columns)
            ? reinterpret_cast<float*>(side.o.row(token + t))  // an fp32 tensor holds floats
            : side.o_rows + buffer;
    if (side.gv.data) {
      float* const decay = decays.of_token + t * decays.width;
      gates[t] = widened(side.gv, token + t, task.columns, decay);
      offset[t] = side.balance.of(token + t);
      rows.decay[t] = decay;
    }
  }
  if (side.gv.data) exponentiate<kTokens>(gates, offset, decays);
  rows.total_decay = decays.total;
  return rows;
}

template <int kTokens>
void prepare_pass(const Task& task, std::int64_t token, int pass, Visit<kTokens>& visit) {
  float* const coefficients =
      task.coefficients + pass * coefficient_vectors(kTokens) * round_up_to_lanes(task.keys.rows);
  prepare_keys<kTokens>(task.keys, token, coefficients, visit.mix[pass]);
  visit.rows[pass] = prepare_values<kTokens>(task, token, pass);
  visit.rows[pass].coefficients = coefficients;
  visit.rows[pass].mix = visit.mix[pass];
}

template <int kTokens, int kVectors>
void run_block(Task& task, const PassRows<kTokens>& rows, const BlockRange& block,
               const StateRows& state, std::int64_t prefetch_rows) {
  if constexpr (kVectors > 1) {
    if (block.vectors < kVectors) {
      return run_block<kTokens, kVectors / 2>(task, rows, block, state, prefetch_rows);
    }
  }
  const bool column_decay = task.values.gv.data != nullptr;
  const auto run = task.keys.has_decay
                       ? (column_decay ? &pass_over_block<kTokens, kVectors, true, true>
                                       : &pass_over_block<kTokens, kVectors, true, false>)
                       : (column_decay ? &pass_over_block<kTokens, kVectors, false, true>
                                       : &pass_over_block<kTokens, kVectors, false, false>);
  run(rows, block.first, state, task.prefetcher, prefetch_rows);
}

// How many rows to fetch per vector of rows, to be done with a pass's share by its end.
template <int kTokens>
std::int64_t prefetch_rows(const Task& task) {
  const std::int64_t block_width = block_at(task, 0).width();
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
void visit_block(Task& task, std::int64_t token, const Visit<kTokens>& visit,
                 const BlockRange& block, std::int64_t prefetch_rows) {
  float* const packed = task.state + task.keys.rows * block.first;
  const StateRows in_scratch{task.keys.rows, packed, block.width(), packed, block.width()};
  const bool is_first = token == 0;
  const bool is_last = token + visit.passes * kTokens == task.tokens;
  const bool reads_directly = is_first && is_direct(task.initial, block);
  const bool writes_directly = is_last && is_direct(task.final, block);
  if (is_first && !reads_directly) read_block(task.initial, task.keys.rows, block, packed);
  for (int pass = 0; pass < visit.passes; ++pass) {
    StateRows state = in_scratch;
    if (pass == 0 && reads_directly) {
      state.source = task.initial.data + block.first;
      state.source_step = task.initial.key_stride;
      state.ahead = task.prefetch_state;
    }
    if (pass == visit.passes - 1 && writes_directly) {
      state.target = task.final.data + block.first;
      state.target_step = task.final.key_stride;
      state.stream = task.stream && is_aligned(task.final, block.first);
    }
    run_block<kTokens, kSumsPerPass / kTokens>(task, visit.rows[pass], block, state, prefetch_rows);
  }
  if (is_last && task.final.data && !writes_directly) {
    write_block(task.final, task.keys.rows, block, packed);
  }
}

template <int kTokens>
void run_visit(Task& task, std::int64_t token, int passes, std::int64_t prefetch_rows) {
  Visit<kTokens> visit;
  visit.passes = passes;
  for (int pass = 0; pass < passes; ++pass) {
    prepare_pass<kTokens>(task, token + pass * kTokens, pass, visit);
  }
  const std::int64_t ahead = token + passes * kTokens + task.prefetch_tokens;
  task.prefetcher.allow_until(ahead < task.tokens ? ahead : task.tokens);
  for (std::int64_t column = 0; column < task.columns;) {
    const BlockRange block = block_at(task, column);
    visit_block<kTokens>(task, token, visit, block, prefetch_rows);
    column += block.width();
  }
  const OutputRows& o = task.values.o;
  if (is_direct(o.type, task.columns)) return;
  for (int i = 0; i < passes * kTokens; ++i) {
    narrow_row(o.type, visit.rows[i / kTokens].o[i % kTokens], task.columns, o.row(token + i));
  }
}

template <int kTokens>
void run_passes(Task& task, std::int64_t token) {
  const std::int64_t prefetched = prefetch_rows<kTokens>(task);
  while (task.tokens - token >= kTokens) {
    const std::int64_t left = (task.tokens - token) / kTokens;
    const int passes = left < task.passes ? static_cast<int>(left) : task.passes;
    run_visit<kTokens>(task, token, passes, prefetched);
    token += passes * kTokens;
  }
  if constexpr (kTokens > 1) run_passes<kTokens / 2>(task, token);
}

inline void run_tasks(const RecurrentForwardTiling& tiling, const RecurrentForwardParams& params,
                      std::int64_t first_task, std::int64_t last_task, float* scratch) {
  for (std::int64_t index = first_task; index < last_task; ++index) {
    Task task = make_task(tiling, params, index, scratch);
    if (task.tokens == 0) {
      pass_state_through(task);
      continue;
    }
    switch (tiling.tokens_per_pass) {
      case 1:
        run_passes<1>(task, 0);
        break;
      case 2:
        run_passes<2>(task, 0);
        break;
      default:
        run_passes<4>(task, 0);
        break;
    }
  }
  if (tiling.stream) streamed_writes_done();
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
