// A pass of a few tokens of either sweep, which backward.inl.hpp has: their rows, what they read of the state or
// its gradient, and what is made of that.
#pragma once

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward {

// Both sides at the tokens of one pass.
template <int kTokens>
struct BackwardPass {
  SideRows<kTokens> keys, values;
  alignas(64) float key_pairs[round_up_to_lanes(pair_count(kTokens))];  // scale q_t . k_s
  float* value_pairs;                                                   // do_t . v_s
};

// What goes from one pass of a sweep to the next.
struct Sweep {
  RowTraffic traffic;
  // Which of a side's sums the pass has: gradients of the one before may still be in the others.
  int turn = 0;
};

// A row that prepare_keys() read: where it lies, or its copy in fp32.
[[gnu::always_inline]] inline const float* prepared_row(const InputRows& rows, std::int64_t token,
                                                        std::int64_t channels,
                                                        const float* buffer) {
  if (is_direct(rows.type, channels)) return reinterpret_cast<const float*>(rows.row(token));
  return buffer;
}

// In place: a copy of rows just written would wait for the writes.
template <Prepare kPrepare, int kTokens>
[[gnu::always_inline]] inline void prepare_side(const BackwardSide& side, std::int64_t token,
                                                int turn, float* pairs, SideRows<kTokens>& rows) {
  prepare_keys<kTokens, kPrepare>(side.in, token, side.coefficients, pairs);
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t offset = t * side.width;
    rows.reads[t] = prepared_row(side.in.q, token + t, side.channels, side.in.q_rows + offset);
    rows.writes[t] = prepared_row(side.in.k, token + t, side.channels, side.in.k_rows + offset);
  }
  rows.width = side.width;
  rows.decay = side.decay;
  rows.decays = side.in.decays.of_token;
  rows.total = side.in.decays.total;
  rows.sums = side.sums[turn];
}

// Nobody reads q before the second sweep, but for o where the gradient of gv needs it.
template <int kTokens>
[[gnu::always_inline]] inline void prepare_forward(const BackwardTask& task, std::int64_t token,
                                                   int turn, BackwardPass<kTokens>& pass) {
  pass.value_pairs = value_pairs_of(task, token);
  if (task.values.decay != RowDecay::kNone) {
    prepare_side<Prepare{.keep_decays = true}>(task.keys, token, turn, pass.key_pairs, pass.keys);
  } else {
    constexpr Prepare kWritten{.reads = false, .scores = false, .keep_decays = true};
    prepare_side<kWritten>(task.keys, token, turn, nullptr, pass.keys);
  }
  prepare_side<Prepare{.keep_decays = true}>(task.values, token, turn, pass.value_pairs,
                                             pass.values);
}

// The pairs of V are those of the first sweep.
template <int kTokens>
[[gnu::always_inline]] inline void prepare_backward(const BackwardTask& task, std::int64_t token,
                                                    int turn, BackwardPass<kTokens>& pass) {
  pass.value_pairs = value_pairs_of(task, token);
  prepare_side<Prepare{.keep_decays = true}>(task.keys, token, turn, pass.key_pairs, pass.keys);
  constexpr Prepare kCoefficients{.scores = false, .keep_decays = true};
  prepare_side<kCoefficients>(task.values, token, turn, nullptr, pass.values);
}

inline float* terms_of(const BackwardSide& side, std::int64_t token) {
  return side.terms + token * side.in.decays.width;
}

// Not through a pointer to one of them, which takes a dozen cycles longer.
template <int kTokens, Direction kDirection>
[[gnu::always_inline]] inline void pass_over_matrix(const BackwardTask& task, const Matrix& m,
                                                    float* sums, RowTraffic& traffic) {
  const MatrixPass pass{
      .m = m, .rows = task.values.coefficients, .columns = task.keys.coefficients, .sums = sums};
  if (task.values.in.has_decay) {
    if (task.keys.in.has_decay) {
      return read_and_update<kTokens, kDirection, true, true>(pass, traffic);
    }
    return read_and_update<kTokens, kDirection, true, false>(pass, traffic);
  }
  if (task.keys.in.has_decay) {
    return read_and_update<kTokens, kDirection, false, true>(pass, traffic);
  }
  read_and_update<kTokens, kDirection, false, false>(pass, traffic);
}

// kTokens rows, a side's width apart, to the tensor's rows from `token` on: at once, or while the
// next pass computes.
template <int kTokens>
[[gnu::noinline]] void write_rows(const BackwardTask& task, const BackwardSide& side,
                                  const float* rows, const OutputRows& to, std::int64_t token,
                                  PendingRows& pending) {
  char* row = to.row(token);
  const bool whole_vectors = is_direct(to.type, side.channels);
  const auto places = reinterpret_cast<std::uintptr_t>(row) | static_cast<std::uintptr_t>(to.step);
  const bool later = task.stream && whole_vectors && places % sizeof(F32) == 0;
  for (int t = 0; t < kTokens; ++t) {
    if (later) {
      pending.add(rows, side.width / kLanes, row);
    } else if (whole_vectors) {
      for (std::int64_t i = 0; i < side.width; i += kLanes) {
        narrow(StorageType::kF32, load(rows + i), row + i * std::int64_t{sizeof(float)});
      }
    } else {
      write_row(to.type, rows, side.channels, row, task.stream);
    }
    rows += side.width;
    row += to.step;
  }
}

// Rows of the pass that follows are fetched during this one, `done` tokens of the sweep being
// behind it, and those of the one before it written.
template <int kTokens>
void begin_pass(const BackwardTask& task, std::int64_t done, bool reads_columns, Sweep& sweep) {
  const std::int64_t ahead = done + 2 * kTokens;
  sweep.traffic.fetched.allow_until(ahead < task.tokens ? ahead : task.tokens);
  spread_traffic<kTokens>(task.state, reads_columns, sweep.traffic);
}

// ---- with the recurrence ----

template <int kTokens>
void forward_pass(const BackwardTask& task, std::int64_t token, Sweep& sweep) {
  const BackwardSide& keys = task.keys;
  const BackwardSide& values = task.values;
  begin_pass<kTokens>(task, token, values.decay != RowDecay::kNone, sweep);
  BackwardPass<kTokens> pass;
  prepare_forward(task, token, sweep.turn, pass);
  if (values.decay != RowDecay::kNone) {
    read_by_columns<kTokens>(task.state, keys.coefficients, 0, pass.keys.sums, pass.values.sums,
                             values.width, sweep.traffic);
    finish_reads(pass.values, pass.key_pairs, 1.0F, terms_of(values, token));
  }
  pass_over_matrix<kTokens, Direction::kForward>(task, task.state, pass.keys.sums, sweep.traffic);
  finish_reads(pass.keys, pass.value_pairs, keys.in.scale, terms_of(keys, token));
  write_rows<kTokens>(task, keys, pass.keys.sums, keys.dreads, token, sweep.traffic.pending);
  sweep.turn ^= 1;
}

template <int kTokens>
void forward_passes(const BackwardTask& task, std::int64_t token, std::int64_t end, Sweep& sweep) {
  for (; end - token >= kTokens; token += kTokens) forward_pass<kTokens>(task, token, sweep);
  if constexpr (kTokens > 1) forward_passes<kTokens / 2>(task, token, end, sweep);
}

// ---- against it ----

// dk or dv of a pass, or its share of a group's.
template <int kTokens>
void write_shared(const BackwardTask& task, const BackwardSide& side, float* gradients,
                  std::int64_t token, PendingRows& pending) {
  const GroupPlace& place = task.place;
  float* const sums = side.group_sum + token * side.width;
  const std::int64_t size = kTokens * side.width;
  if (!place.is_first) {
    for (std::int64_t i = 0; i < size; i += kLanes) {
      store(gradients + i, load(sums + i) + load(gradients + i));
    }
  }
  if (place.is_last) {
    return write_rows<kTokens>(task, side, gradients, side.dwrites, token, pending);
  }
  for (std::int64_t i = 0; i < size; i += kLanes) store(sums + i, load(gradients + i));
}

// dgk or dgv of a pass.
template <int kTokens>
void write_gates(const BackwardTask& task, const BackwardSide& side, std::int64_t token,
                 PendingRows& pending) {
  if (!side.dgates.data) return;
  write_rows<kTokens>(task, side, terms_of(side, token), side.dgates, token, pending);
}

// dk of a pass, and with it the gradients of what the channels of K decay by.
template <int kTokens>
void finish_keys(const BackwardTask& task, const BackwardPass<kTokens>& pass, std::int64_t token,
                 PendingRows& pending) {
  const BackwardSide& side = task.keys;
  alignas(64) float dg[round_up_to_lanes(kTokens)];
  finish_writes(pass.keys, pass.value_pairs, side.in.scale,
                {.terms = terms_of(side, token), .gate = side.gate, .totals = dg});
  if (side.decay == RowDecay::kNone) return;
  write_gates<kTokens>(task, side, token, pending);
  for (int t = kTokens - 1; t >= 0; --t) {
    if (task.dg.data) __builtin_memcpy(task.dg.row(token + t), &dg[t], sizeof(dg[t]));
    if (task.dgamma) *task.dgamma += static_cast<double>(dg[t]);
  }
}

// dv of a pass, and dgv.
template <int kTokens>
void finish_values(const BackwardTask& task, const BackwardPass<kTokens>& pass, std::int64_t token,
                   PendingRows& pending) {
  const BackwardSide& side = task.values;
  alignas(64) float totals[round_up_to_lanes(kTokens)];
  finish_writes(pass.values, pass.key_pairs, 1.0F,
                {.other = pass.keys.decay == RowDecay::kShared ? pass.keys.decays : nullptr,
                 .terms = terms_of(side, token),
                 .gate = side.gate,
                 .totals = totals});
  if (side.decay != RowDecay::kNone) write_gates<kTokens>(task, side, token, pending);
}

template <int kTokens>
void backward_pass(const BackwardTask& task, std::int64_t token, Sweep& sweep) {
  const BackwardSide& keys = task.keys;
  const BackwardSide& values = task.values;
  begin_pass<kTokens>(task, task.tokens - token - kTokens, true, sweep);
  BackwardPass<kTokens> pass;
  prepare_backward(task, token, sweep.turn, pass);
  PendingRows& pending = sweep.traffic.pending;
  read_by_columns<kTokens>(task.dstate, keys.coefficients, kTokens, pass.keys.sums,
                           pass.values.sums, values.width, sweep.traffic);
  pass_over_matrix<kTokens, Direction::kBackward>(task, task.dstate, pass.keys.sums, sweep.traffic);
  finish_keys(task, pass, token, pending);
  finish_values(task, pass, token, pending);
  write_shared<kTokens>(task, keys, pass.keys.sums, token, pending);
  write_shared<kTokens>(task, values, pass.values.sums, token, pending);
  sweep.turn ^= 1;
}

// The passes of forward_passes(), from the last one on.
template <int kTokens>
void backward_passes(const BackwardTask& task, std::int64_t begin, std::int64_t end, Sweep& sweep) {
  std::int64_t token = end - (end - begin) % kTokens;
  if constexpr (kTokens > 1) backward_passes<kTokens / 2>(task, token, end, sweep);
  for (; token > begin; token -= kTokens) {
    backward_pass<kTokens>(task, token - kTokens, sweep);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::recurrent_attention::backward
