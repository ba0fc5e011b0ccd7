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

// ---- the passes ----

// Tokens [token, token + kTokens) of the value side as rows of fp32.
template <int kTokens>
PassRows<kTokens> prepare_values(const Task& task, std::int64_t token) {
  const ValueSide& side = task.values;
  PassRows<kTokens> rows;
  const float* gates[kTokens];
  const float no_offset[kTokens] = {};
  for (int t = 0; t < kTokens; ++t) {
    rows.v[t] = widened(side.v, token + t, task.columns, side.v_rows + t * task.tile_v);
    rows.o[t] =
        is_direct(side.o.type, task.columns)
            ? reinterpret_cast<float*>(side.o.row(token + t))  // an fp32 tensor holds floats
            : side.o_rows + t * task.tile_v;
    if (side.gv.data) {
      float* const buffer = side.decays.of_token + t * side.decays.width;
      gates[t] = widened(side.gv, token + t, task.columns, buffer);
      rows.decay[t] = buffer;
    }
  }
  if (side.gv.data) exponentiate<kTokens>(gates, no_offset, side.decays);
  rows.total_decay = side.decays.total;
  return rows;
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

template <int kTokens>
void run_pass(Task& task, std::int64_t token, std::int64_t prefetch_rows) {
  alignas(64) float mix[round_up_to_lanes(pair_count(kTokens))];
  prepare_keys<kTokens>(task.keys, token, task.coefficients, mix);
  PassRows<kTokens> rows = prepare_values<kTokens>(task, token);
  rows.coefficients = task.coefficients;
  rows.mix = mix;

  const std::int64_t ahead = token + kTokens + task.prefetch_tokens;
  task.prefetcher.allow_until(ahead < task.tokens ? ahead : task.tokens);
  const bool is_first = token == 0;
  const bool is_last = token + kTokens == task.tokens;
  for (std::int64_t column = 0; column < task.columns;) {
    const BlockRange block = block_at(task, column);
    float* const packed = task.state + task.keys.rows * column;
    StateRows state{task.keys.rows, packed, block.width(), packed, block.width()};
    if (is_first && is_direct(task.initial, block)) {
      state.source = task.initial.data + column;
      state.source_step = task.initial.key_stride;
    } else if (is_first) {
      read_block(task.initial, task.keys.rows, block, packed);
    }
    const bool writes_directly = is_last && is_direct(task.final, block);
    if (writes_directly) {
      state.target = task.final.data + column;
      state.target_step = task.final.key_stride;
    }
    run_block<kTokens, kSumsPerPass / kTokens>(task, rows, block, state, prefetch_rows);
    if (is_last && task.final.data && !writes_directly) {
      write_block(task.final, task.keys.rows, block, packed);
    }
    column += block.width();
  }
  const OutputRows& o = task.values.o;
  if (is_direct(o.type, task.columns)) return;
  for (int t = 0; t < kTokens; ++t) narrow_row(o.type, rows.o[t], task.columns, o.row(token + t));
}

template <int kTokens>
void run_passes(Task& task, std::int64_t token) {
  const std::int64_t prefetched = prefetch_rows<kTokens>(task);
  for (; task.tokens - token >= kTokens; token += kTokens)
    run_pass<kTokens>(task, token, prefetched);
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
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
