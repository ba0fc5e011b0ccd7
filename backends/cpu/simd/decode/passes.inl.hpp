// Steps of several tokens, with replay or kept states, and stochastic rounding.
//
// A row's tokens, committed ones first, are taken by passes of up to four (pass_keys.inl.hpp). A
// task prepares all of its passes and then runs them over one block of columns after the other: the
// block is read from the pool once, stays in the first cache from pass to pass, and is written once
// to each slot that it goes to, rounded from sums in fp32 that the next pass goes on from.
#pragma once

#include "cpu/simd/vector/pass.inl.hpp"
#include "stored_state.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode {

struct StepPass {
  int tokens = 1;
  std::int64_t first = 0;    // of them, among those of its kind
  std::int64_t target = -1;  // the slot that the state goes to after it; negative: none
  PassRows rows;
  alignas(64) float scores[round_up_to_lanes(pair_count(int{kMaxPassTokens}))];
};

// A task and what it prepares.
struct Step {
  DecodeTask task;
  RowSlots slots;
  KeySide keys;  // of the kind of tokens that is prepared, as what follows
  InputRows v, gv;
  Decays value_decays;
  Balance value_balance;
  OutputRows o;
  float* coefficients = nullptr;  // of the next pass
  float* v_rows = nullptr;        // of its tokens
  float* o_dump = nullptr;        // what committed tokens would read
  StepPass passes[kMaxPasses];
  int count = 0;           // of passes
  int largest_pass = 1;    // in tokens
  Prefetcher state{0};     // of the state of the task behind
  std::int64_t ahead = 0;  // rows of it to fetch for each vector of rows
};

// Tokens of one kind. Carries go on from those before.
inline void set_up_tokens(const Params& p, const TokenTensors& tokens, float* scratch, Step& step) {
  const DecodeTask& task = step.task;
  KeySide& keys = step.keys;
  keys.k = rows_of<const char>(tokens.k, task.row, task.kv_head);
  keys.g = rows_of<const char>(tokens.g, task.row, task.head);
  keys.gk = rows_of<const char>(tokens.gk, task.row, task.head);
  keys.gamma = p.g_gamma ? p.g_gamma[task.head] : 0.0F;
  keys.scale = p.scale;
  keys.has_decay = has_key_decay(p);
  keys.balance = balance_of(p, tokens, task, 1.0F);
  keys.rows = p.key_dim;
  keys.q_rows = scratch + p.scratch.q_rows;
  keys.k_rows = scratch + p.scratch.k_rows;
  keys.decays = {.of_token = scratch + p.scratch.key_decays,
                 .carry = scratch + p.scratch.key_carry,
                 .width = tokens.gk.data ? round_up_to_lanes(p.key_dim) : kLanes};
  step.v = rows_of<const char>(tokens.v, task.row, task.kv_head, task.column);
  step.gv = rows_of<const char>(tokens.gv, task.row, task.head, task.column);
  step.value_balance = balance_of(p, tokens, task, -1.0F);
}

inline void set_up_step(const Params& p, float* scratch, Step& step) {
  step.count = 0;
  step.largest_pass = 1;
  step.coefficients = scratch + p.scratch.coefficients;
  step.v_rows = scratch + p.scratch.v_rows;
  step.o_dump = scratch + p.scratch.o_rows + p.tokens * p.tile_v;
  step.value_decays = {.of_token = scratch + p.scratch.value_decays,
                       .total = scratch + p.scratch.value_totals,
                       .carry = scratch + p.scratch.value_carry,
                       .width = round_up_to_lanes(step.task.columns)};
  float* const key_carry = scratch + p.scratch.key_carry;
  for (std::int64_t i = 0; i < round_up_to_lanes(p.key_dim); ++i) key_carry[i] = 0.0F;
  for (std::int64_t i = 0; i < step.value_decays.width; ++i) step.value_decays.carry[i] = 0.0F;
}

// ---- the passes of a task ----

template <int kTokens>
void prepare_value_decays(Step& step, StepPass& pass) {
  Decays& decays = step.value_decays;
  pass.rows.decay = {decays.of_token, decays.width};
  pass.rows.total_decay = decays.total;
  LogDecays<kTokens> logs;
  logs.gates = widened_rows<kTokens>(step.gv, pass.first, step.task.columns,
                                     {decays.of_token, decays.width});
  for (int t = 0; t < kTokens; ++t) logs.set_offset(t, step.value_balance.of(pass.first + t));
  for (std::int64_t i = 0; i < decays.width; i += kLanes) {
    store_decays<kTokens>(exponentiate<kTokens>(logs, i, decays.carry + i), i, decays);
  }
  decays.of_token += kTokens * decays.width;
  decays.total += decays.width;
}

template <int kTokens>
void prepare_pass(const Params& p, const F32Rows<float>& o, Step& step, StepPass& pass) {
  prepare_keys<kTokens>(step.keys, pass.first, step.coefficients, pass.scores);
  pass.rows = {
      .v = widened_rows<kTokens>(step.v, pass.first, step.task.columns, {step.v_rows, p.tile_v}),
      .o = o,
      .decay = {},
      .coefficients = step.coefficients,
      .scores = pass.scores,
      .row_decay = step.keys.has_decay};
  if (step.gv.data) prepare_value_decays<kTokens>(step, pass);
  step.coefficients += coefficient_vectors(kTokens) * round_up_to_lanes(p.key_dim);
  step.v_rows += kTokens * p.tile_v;
}

// Passes of at most `most` tokens over `tokens` of them, whose outputs go to rows of `o`.
inline void add_passes(const Params& p, std::int64_t tokens, std::int64_t most,
                       const F32Rows<float>& o, Step& step) {
  for (std::int64_t first = 0; first < tokens;) {
    const std::int64_t left = tokens - first < most ? tokens - first : most;
    const int now = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    StepPass& pass = step.passes[step.count++];
    pass.tokens = now;
    pass.first = first;
    pass.target = -1;
    if (step.largest_pass < now) step.largest_pass = now;
    const F32Rows<float> rows{o.row(first), o.step};
    with_tokens_per_pass(now, [&]<int kTokens>() { prepare_pass<kTokens>(p, rows, step, pass); });
    first += now;
  }
}

inline void prepare_committed(const Params& p, float* scratch, Step& step) {
  if (step.slots.committed == 0) return;
  set_up_tokens(p, p.committed, scratch, step);
  step.keys.q = step.keys.k;  // nobody reads what it makes
  add_passes(p, step.slots.committed, kMaxPassTokens, {step.o_dump, 0}, step);
  step.passes[step.count - 1].target = step.slots.start;
}

inline void prepare_fresh(const Params& p, float* scratch, Step& step) {
  set_up_tokens(p, p.fresh, scratch, step);
  step.keys.q = rows_of<const char>(p.q, step.task.row, step.task.head);
  const F32Rows<float> o = is_direct(step.o.type, step.task.columns)
                               ? direct_rows<float>(step.o, 0)
                               : F32Rows<float>{scratch + p.scratch.o_rows, p.tile_v};
  const int first = step.count;
  add_passes(p, p.tokens, p.kept ? 1 : kMaxPassTokens, o, step);
  if (p.stores_last) step.passes[step.count - 1].target = step.slots.start;
  if (!p.kept) return;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    step.passes[first + t].target = p.kept[step.task.row * p.tokens + t];
  }
}

// ---- the passes over a block of columns ----

inline void read_state(const Params& p, const Step& step, const BlockRange& block, float* packed) {
  if (p.state_type != StorageType::kF32) {
    return read_half_block(p, half_state_of(p, step.task, step.slots.start), block, packed);
  }
  const StateView<float*> view = f32_state_of(p, step.task, step.slots.start);
  read_block({view.data, view.key_stride, view.value_stride}, p.key_dim, block, packed);
}

inline void write_state(const Params& p, const Step& step, std::int64_t slot,
                        const BlockRange& block, const float* packed) {
  if (p.state_type != StorageType::kF32) {
    return write_half_block(p, half_state_of(p, step.task, slot), block, packed);
  }
  write_block(f32_state_of(p, step.task, slot), p.key_dim, block, packed);
}

template <int kTokens, int kVectors, class Element>
void run_step_block(const PassRows& rows, const BlockRange& block,
                    const StateRowsOf<Element>& state, Prefetcher& prefetcher,
                    std::int64_t prefetch_rows) {
  if constexpr (kVectors > 1) {
    if (block.vectors < kVectors) {
      return run_step_block<kTokens, kVectors / 2>(rows, block, state, prefetcher, prefetch_rows);
    }
  }
  run_pass<kTokens, kVectors>(rows, block.first, state, prefetcher, prefetch_rows);
}

template <class Element>
void run_pass_on(const StateRowsOf<Element>& state, const BlockRange& block, const StepPass& pass,
                 Step& step) {
  with_tokens_per_pass(pass.tokens, [&]<int kTokens>() {
    run_step_block<kTokens, kDecodeBlockVectors / kTokens>(pass.rows, block, state, step.state,
                                                           step.ahead);
  });
}

// Whether the pool in 16 bits is read and written in one pass, which rounds to nearest.
inline bool is_one_pass_in_16_bits(const Params& p, const Step& step) {
  return p.state_type != StorageType::kF32 && !p.stochastic && step.count == 1 &&
         step.passes[0].target == step.slots.start && p.state.value_stride == 1;
}

template <class Element>
void run_half_pass(const Params& p, Step& step, const BlockRange& block) {
  const HalfState half = half_state_of(p, step.task, step.slots.start);
  auto* const data = reinterpret_cast<Element*>(half.data) + block.first;
  run_pass_on(StateRowsOf<Element>{.rows = p.key_dim,
                                   .source = data,
                                   .source_step = half.key_stride,
                                   .target = data,
                                   .target_step = half.key_stride,
                                   .ahead = p.prefetch_columns},
              block, step.passes[0], step);
}

inline void run_passes(const Params& p, Step& step, const BlockRange& block, float* packed) {
  if (is_one_pass_in_16_bits(p, step) && block.count == block.width()) {
    if (p.state_type == StorageType::kBF16) return run_half_pass<StoredBf16>(p, step, block);
    return run_half_pass<StoredF16>(p, step, block);
  }
  const bool is_f32 = p.state_type == StorageType::kF32;
  const auto lies_direct = [&](std::int64_t slot) {
    return is_f32 && slot >= 0 && is_direct(f32_state_of(p, step.task, slot), block);
  };
  StateRows state{.rows = p.key_dim};
  if (lies_direct(step.slots.start)) {
    state.source = f32_state_of(p, step.task, step.slots.start).data + block.first;
    state.source_step = p.state.key_stride;
    state.ahead = p.prefetch_columns;
  } else {
    read_state(p, step, block, packed);
    state.source = packed;
    state.source_step = block.width();
  }
  for (int i = 0; i < step.count; ++i) {
    const StepPass& pass = step.passes[i];
    const bool is_stored_directly = lies_direct(pass.target);
    const bool is_dropped = i == step.count - 1 && pass.target < 0;
    state.target = packed;
    state.target_step = block.width();
    if (is_stored_directly) {
      state.target = f32_state_of(p, step.task, pass.target).data + block.first;
      state.target_step = p.state.key_stride;
    } else if (is_dropped && pass.tokens > 1 && !pass.rows.row_decay && !pass.rows.decay.data) {
      state.target = nullptr;
    }
    run_pass_on(state, block, pass, step);
    if (pass.target >= 0 && !is_stored_directly) {
      write_state(p, step, pass.target, block, packed);
    }
    state.source = state.target;
    state.source_step = state.target_step;
    state.ahead = 0;
  }
}

// Columns of a block: what the widest pass holds in registers, and of 16 bits that go by way of
// scratch memory a line of the cache.
inline int block_vectors(const Params& p, const Step& step) {
  constexpr int kLine = 64 / 2 / kLanes;
  const int vectors = kDecodeBlockVectors / step.largest_pass;
  const bool by_line = p.state_type != StorageType::kF32 && !is_one_pass_in_16_bits(p, step);
  return by_line && vectors > kLine ? kLine : vectors;
}

// Has the passes of this task fetch the state of the next one, whose rows lie side by side.
inline void fetch_next_state(const Params& p, std::int64_t next, int vectors, Step& step) {
  step.state.restart(0);
  step.ahead = 0;
  if (p.prefetch_columns == 0 || p.state.value_stride != 1) return;
  const DecodeTask task = decode_task(p, next);
  const std::int64_t slot = slots_of(p, task.row).start;
  if (slot < 0) return;
  const std::int64_t size = size_of(p.state_type);
  step.state.add(
      InputRows{.data = static_cast<const char*>(p.state.data) + state_offset(p, task, slot) * size,
                .step = p.state.key_stride * size,
                .type = p.state_type},
      task.columns);
  step.state.allow_until(p.key_dim);
  const std::int64_t width = block_at(step.task.columns, vectors, 0).width();
  const std::int64_t blocks = (step.task.columns + width - 1) / width;
  const std::int64_t times = blocks * step.count * ((p.key_dim + kLanes - 1) / kLanes);
  step.ahead = (p.key_dim + times - 1) / times;
}

inline void run_step(const Params& p, std::int64_t next, float* scratch, Step& step) {
  set_up_step(p, scratch, step);
  prepare_committed(p, scratch, step);
  prepare_fresh(p, scratch, step);
  const int vectors = block_vectors(p, step);
  fetch_next_state(p, next, vectors, step);
  for (std::int64_t column = 0; column < step.task.columns;) {
    const BlockRange block = block_at(step.task.columns, vectors, column);
    run_passes(p, step, block, scratch + p.scratch.state);
    column += block.width();
  }
  if (is_direct(step.o.type, step.task.columns)) return;
  const float* const rows = scratch + p.scratch.o_rows;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    narrow_row(step.o.type, rows + t * p.tile_v, step.task.columns, step.o.row(t));
  }
}

inline void run_step_tasks(const Params& p, std::int64_t first_task, std::int64_t last_task,
                           float* scratch) {
  Step step;
  for (std::int64_t index = first_task; index < last_task; ++index) {
    step.task = decode_task(p, index);
    step.slots = slots_of(p, step.task.row);
    step.o = rows_of<char>(p.o, step.task.row, step.task.head, step.task.column);
    if (step.slots.start < 0) {
      clear_outputs(p, step.task, step.o);
    } else {
      run_step(p, index + 1 < last_task ? index + 1 : index, scratch, step);
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::decode
