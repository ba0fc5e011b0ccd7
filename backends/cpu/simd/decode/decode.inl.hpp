// The decode kernel, compiled once per instruction set.
//
// A step is a pass of one token over a state that is read and written where it lies; blocks of
// columns that are not contiguous go by way of scratch memory. It uses the pass of the recurrent
// forward kernel,
//
//   o = (scale q * a) S + (scale q . k) v        S = a * S + k v        a = exp(g + g_gamma + gk)
//
// with less around it: a step takes no longer than its state takes to come out of a cache. What is
// more than one token, or is rounded stochastically, goes by passes.inl.hpp.
#pragma once

#include "passes.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode {

using simd::decode::Instance;

// ---- the key side: coefficients of each row of the state, and scale q . k ----

static_assert(coefficient_vectors(1) == kDecodeCoefficients);

struct DecodeKeys {
  const float* q = nullptr;  // [K], readable by whole vectors, as the next two
  const float* k = nullptr;
  const float* gk = nullptr;  // null when all rows decay alike
  float log_decay = 0.0F;     // g + g_gamma
  std::int64_t rows = 0;      // K
  float scale = 1.0F;
};

inline F32 exponential(F32 x) {
  F32 values[] = {x};
  exp_each(values);
  return values[0];
}

template <bool kDecay>
float weigh_step(const DecodeKeys& keys, float* coefficients) {
  const F32 scale = broadcast(keys.scale);
  F32 decay{};
  if (kDecay && !keys.gk) decay = exponential(broadcast(keys.log_decay));
  F32 products{};
  for (std::int64_t row = 0; row < keys.rows; row += kLanes) {
    if (kDecay && keys.gk) decay = exponential(load(keys.gk + row) + keys.log_decay);
    const F32 q = load(keys.q + row) * scale;
    const F32 k = load(keys.k + row);
    products = fma(q, k, products);
    store(coefficients, kDecay ? q * decay : q);
    store(coefficients + kLanes, k);
    store(coefficients + 2 * kLanes, decay);
    coefficients += coefficient_vectors(1) * kLanes;
  }
  alignas(64) float sums[kLanes];
  sum_lanes<1>(&products, sums);
  return sums[0];
}

inline float prepare_keys(const Params& p, const DecodeTask& task, float* scratch) {
  DecodeKeys keys;
  keys.q = widened(rows_of<const char>(p.q, task.row, task.head), 0, p.key_dim,
                   scratch + p.scratch.q_rows);
  keys.k = widened(rows_of<const char>(p.fresh.k, task.row, task.kv_head), 0, p.key_dim,
                   scratch + p.scratch.k_rows);
  if (p.fresh.gk.data) {
    keys.gk = widened(rows_of<const char>(p.fresh.gk, task.row, task.head), 0, p.key_dim,
                      scratch + p.scratch.key_decays);
  }
  if (p.fresh.g.data) {
    keys.log_decay = widened_scalar(rows_of<const char>(p.fresh.g, task.row, task.head), 0);
  }
  if (p.g_gamma) keys.log_decay += p.g_gamma[task.head];
  keys.log_decay += balance_of(p, p.fresh, task, 1.0F).of(0);
  keys.rows = p.key_dim;
  keys.scale = p.scale;
  float* const coefficients = scratch + p.scratch.coefficients;
  return has_key_decay(p) ? weigh_step<true>(keys, coefficients)
                          : weigh_step<false>(keys, coefficients);
}

// ---- the value side ----

inline PassRows prepare_values(const Params& p, const DecodeTask& task, const OutputRows& o,
                               float* scratch) {
  PassRows rows;
  rows.row_decay = has_key_decay(p);
  rows.v = widened_rows<1>(rows_of<const char>(p.fresh.v, task.row, task.kv_head, task.column), 0,
                           task.columns, {scratch + p.scratch.v_rows});
  rows.o = is_direct(o.type, task.columns) ? direct_rows<float>(o, 0)
                                           : F32Rows<float>{scratch + p.scratch.o_rows};
  if (p.fresh.gv.data) {
    float* const decay = scratch + p.scratch.value_decays;
    const float* const gate = widened(
        rows_of<const char>(p.fresh.gv, task.row, task.head, task.column), 0, task.columns, decay);
    const float offset = balance_of(p, p.fresh, task, -1.0F).of(0);
    for (std::int64_t j = 0; j < task.columns; j += kLanes) {
      store(decay + j, exponential(load(gate + j) + offset));
    }
    rows.decay = {decay};
    rows.total_decay = decay;
  }
  return rows;
}

template <int kVectors, class Element>
void run_decode_block(const PassRows& rows, const BlockRange& block,
                      const StateRowsOf<Element>& state) {
  if constexpr (kVectors > 1) {
    if (block.vectors < kVectors) return run_decode_block<kVectors / 2>(rows, block, state);
  }
  Prefetcher no_rows{0};
  run_pass<1, kVectors>(rows, block.first, state, no_rows, 0);
}

// `read` and `write` are for blocks that do not lie in whole vectors.
template <class Element, class Read, class Write>
void run_decode_blocks(const Params& p, const PassRows& rows, std::int64_t columns,
                       const StateView<Element*>& view, float* packed, const Read& read,
                       const Write& write) {
  for (std::int64_t column = 0; column < columns;) {
    const BlockRange block = block_at(columns, kDecodeBlockVectors, column);
    const std::int64_t width = block.width();
    if (is_direct(view, block)) {
      Element* const data = view.data + column;
      run_decode_block<kDecodeBlockVectors>(rows, block,
                                            StateRowsOf<Element>{.rows = p.key_dim,
                                                                 .source = data,
                                                                 .source_step = view.key_stride,
                                                                 .target = data,
                                                                 .target_step = view.key_stride,
                                                                 .ahead = p.prefetch_columns});
    } else {
      read(block);
      run_decode_block<kDecodeBlockVectors>(rows, block,
                                            StateRows{.rows = p.key_dim,
                                                      .source = packed,
                                                      .source_step = width,
                                                      .target = packed,
                                                      .target_step = width});
      write(block);
    }
    column += width;
  }
}

inline void run_one_token(const Params& p, const PassRows& rows, const DecodeTask& task,
                          std::int64_t slot, float* packed) {
  if (p.state_type == StorageType::kF32) {
    const StateView<float*> view = f32_state_of(p, task, slot);
    return run_decode_blocks(
        p, rows, task.columns, view, packed,
        [&](const BlockRange& block) {
          read_block({view.data, view.key_stride, view.value_stride}, p.key_dim, block, packed);
        },
        [&](const BlockRange& block) { write_block(view, p.key_dim, block, packed); });
  }
  const HalfState half = half_state_of(p, task, slot);
  const auto run = [&]<class Element>() {
    const StateView<Element*> view{reinterpret_cast<Element*>(half.data), half.key_stride,
                                   half.value_stride};
    run_decode_blocks(
        p, rows, task.columns, view, packed,
        [&](const BlockRange& block) { read_half_block(p, half, block, packed); },
        [&](const BlockRange& block) { write_half_block(p, half, block, packed); });
  };
  if (p.state_type == StorageType::kBF16) return run.template operator()<StoredBf16>();
  run.template operator()<StoredF16>();
}

// Steps of one token, rounded to nearest.
inline void run_one_token_tasks(const Params& p, std::int64_t first_task, std::int64_t last_task,
                                float* scratch) {
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const DecodeTask task = decode_task(p, index);
    const std::int64_t slot = slots_of(p, task.row).start;
    const OutputRows o = rows_of<char>(p.o, task.row, task.head, task.column);
    if (slot < 0) {
      clear_outputs(p, task, o);
      continue;
    }
    const float scores = prepare_keys(p, task, scratch);
    PassRows rows = prepare_values(p, task, o, scratch);
    rows.coefficients = scratch + p.scratch.coefficients;
    rows.scores = &scores;
    run_one_token(p, rows, task, slot, scratch + p.scratch.state);
    if (!is_direct(o.type, task.columns)) narrow_row(o.type, rows.o.data, task.columns, o.row(0));
  }
}

inline Instance instance() { return {.run_one_token = run_one_token_tasks, .run = run_step_tasks}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode
