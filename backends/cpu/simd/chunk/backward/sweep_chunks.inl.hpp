// A chunk of the sweep with the recurrence, which makes dq, and one of the sweep against it, which
// makes dk, dv and the gradients of the gates. backward.inl.hpp has the formulas.
#pragma once

#include "steps.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// ---- with the recurrence ----

// dots[t] = factors[t] rows[t] . sums[t], of the sums of K before the chunk's own pairs are added.
inline void dots_of_state(const ChunkTask& task, const Panels& rows, const float* factors,
                          float* dots) {
  const ChunkSide& keys = task.keys;
  for (std::int64_t t = 0; t < task.chunk; t += kPanelWidth) {
    dot_panel_rows({rows.at(t, 0), rows.size}, {keys.sums.at(t, 0), keys.sums.size}, keys.width,
                   dots + t);
    for (std::int64_t i = t; i < t + kPanelWidth; i += kLanes) {
      store(dots + i, load(dots + i) * load(factors + i));
    }
  }
}

// sums of K: what do reads of the state, and of the chunk's own tokens before it.
inline void make_dq(ChunkTask& task, std::int64_t index) {
  const Panels pairs = task.pairs_of(index);
  const ChunkSide& keys = task.keys;
  read_by_values(task, task.state, decayed_reads(task.values));
  if (keys.decay.given) {
    return finish_reads(
        {.rows = keys.writes, .pairs = pairs, .sums = keys.sums, .decayed = keys.decayed_writes},
        keys.decay, keys.width);
  }
  if (task.shared.given) {
    dots_of_state(task, keys.reads, task.shared.from_start, task.dots + task.token_of(index));
  }
  add_pairs<Left::kRows>(task, task.shared.from_start,
                         {.left = pairs,
                          .right = keys.writes,
                          .target = keys.sums,
                          .rows = task.chunk,
                          .columns = keys.width});
}

// sums of V: o, where the channels of V have gates.
inline void make_o(ChunkTask& task) {
  const ChunkSide& values = task.values;
  side_pairs(task, task.keys, task.key_pairs);
  read_by_keys(task, task.state, decayed_reads(task.keys));
  transpose_panels(values.transposed, values.width, task.chunk, values.sums);
  finish_reads({.rows = values.writes,
                .pairs = task.key_pairs,
                .sums = values.sums,
                .decayed = values.decayed_writes,
                .factors = task.shared.given ? task.shared.from_start : nullptr},
               values.decay, values.width);
}

// The terms of the gates' gradients that the second sweep needs.
inline void keep_terms(const ChunkTask& task, const ChunkSide& side, std::int64_t index) {
  multiply_elements(side.reads.data, side.sums.data, task.chunk * side.width,
                    task.terms_of(side, index).data);
}

inline void forward_chunk(ChunkTask& task, std::int64_t index) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  prepare_chunk(task, index, false);
  const Panels pairs = task.pairs_of(index);
  side_pairs(task, values, pairs);
  if (values.decay.given) {
    make_o(task);
    keep_terms(task, values, index);
  }
  make_dq(task, index);
  if (keys.decay.given) keep_terms(task, keys, index);
  unpack_rows(keys.sums, keys.dreads, task.range(index), keys.channels, keys.scale);
  total_row_decays(task);
  update(task, task.state, values.decay.given ? values.decayed_writes : values.writes,
         keys_of_update(task, keys.writes, task.shared.to_end, keys.decayed_writes));
}

// ---- against it ----

inline void make_dk(ChunkTask& task, std::int64_t index) {
  const Panels pairs = task.pairs_of(index);
  const ChunkSide& keys = task.keys;
  read_by_values(task, task.dstate, decayed_writes(task.values));
  if (keys.decay.given) {
    return finish_writes(
        {.rows = keys.reads, .pairs = pairs, .sums = keys.sums, .decayed = keys.decayed_reads},
        keys.decay, keys.width);
  }
  if (task.shared.given) {
    dots_of_state(task, keys.writes, task.shared.to_end, task.shared.written);
  }
  add_pairs<Left::kColumns>(task, task.shared.to_end,
                            {.left = pairs,
                             .right = keys.reads,
                             .target = keys.sums,
                             .rows = task.chunk,
                             .columns = keys.width});
}

inline void make_dv(ChunkTask& task, std::int64_t index) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  if (keys.decay.given) side_pairs(task, keys, task.key_pairs);
  read_by_keys(task, task.dstate, writes_of_pairs(keys));
  if (!keys.decay.given) {
    // What score_chunk() makes, in half the time now that the keys are transposed.
    multiply_panels<Left::kRows, Start::kZero>({.left = keys.reads,
                                                .right = keys.transposed,
                                                .target = task.key_pairs,
                                                .rows = task.chunk,
                                                .columns = task.chunk,
                                                .depth = keys.width});
    if (task.shared.given) {
      step_pairs(task.pairs_of(index), task.key_pairs, task.chunk, task.shared.of_pairs);
    }
    weigh_pairs(task.key_pairs, task.shared.ratios, task.chunk);
  }
  transpose_panels(values.transposed, values.width, task.chunk, values.sums);
  if (!values.decay.given) {
    return add_pairs<Left::kColumns>(task, task.shared.to_end,
                                     {.left = task.key_pairs,
                                      .right = values.reads,
                                      .target = values.sums,
                                      .rows = task.chunk,
                                      .columns = values.width});
  }
  finish_writes({.rows = values.reads,
                 .pairs = task.key_pairs,
                 .sums = values.sums,
                 .decayed = values.decayed_reads,
                 .factors = task.shared.given ? task.shared.to_end : nullptr},
                values.decay, values.width);
}

inline void write_dg(const ChunkTask& task, std::int64_t token, double gradient) {
  if (task.dg.data) {
    const auto rounded = static_cast<float>(gradient);
    __builtin_memcpy(task.dg.row(token), &rounded, sizeof(rounded));
  }
  if (task.dgamma) *task.dgamma += gradient;
}

// dgk or dgv; `totals` become their sums over channels.
inline void channel_gate_gradients(const ChunkTask& task, const ChunkSide& side, std::int64_t index,
                                   float* totals) {
  const Panels terms = task.terms_of(side, index);
  step_channel_gates({.terms = terms,
                      .writes = side.writes,
                      .dwrites = side.sums,
                      .shared = task.shared.given ? task.shared.decay : nullptr},
                     side.decay, side.width, side.gate, totals);
  unpack_rows(terms, side.dgates, task.range(index), side.channels, 1.0F);
}

inline void shared_gate_gradients(ChunkTask& task, std::int64_t index) {
  SharedDecay& shared = task.shared;
  const std::int64_t token = task.token_of(index);
  double of_pairs = 0.0;
  for (std::int64_t t = task.present(index) - 1; t >= 0; --t) {
    shared.gate +=
        static_cast<double>(task.dots[token + t]) - static_cast<double>(shared.written[t]);
    of_pairs += static_cast<double>(shared.of_pairs[t]);
    if (shared.decay[t] == 0.0F) shared.gate = of_pairs = 0.0;
    write_dg(task, token + t, shared.gate + of_pairs);
  }
}

inline void gate_gradients(ChunkTask& task, std::int64_t index) {
  alignas(64) float totals[kMaxChunk];
  if (task.values.decay.given) channel_gate_gradients(task, task.values, index, totals);
  if (task.shared.given) shared_gate_gradients(task, index);
  if (task.keys.decay.given) {
    channel_gate_gradients(task, task.keys, index, totals);
    for (std::int64_t t = task.present(index) - 1; t >= 0; --t) {
      write_dg(task, task.token_of(index) + t, static_cast<double>(totals[t]));
    }
  }
}

// dk or dv: to the caller's tensor, or added to those of the heads before.
inline void write_shared(const ChunkTask& task, const ChunkSide& side, std::int64_t index) {
  const std::int64_t size = task.chunk * side.width;
  float* const sum = side.group_sum + index * size;
  if (!task.place.is_first) {
    for (std::int64_t i = 0; i < size; i += kLanes) {
      store(side.sums.data + i, load(sum + i) + load(side.sums.data + i));
    }
  }
  if (task.place.is_last && !task.place.is_partial) {
    return unpack_rows(side.sums, side.dwrites, task.range(index), side.channels, 1.0F);
  }
  for (std::int64_t i = 0; i < size; i += kLanes) store(sum + i, load(side.sums.data + i));
}

inline void backward_chunk(ChunkTask& task, std::int64_t index) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  prepare_chunk(task, index, index >= task.first_kept());
  make_dk(task, index);
  make_dv(task, index);
  if (task.has_gates) gate_gradients(task, index);
  write_shared(task, keys, index);
  write_shared(task, values, index);
  total_row_decays(task);
  update(task, task.dstate, values.decay.given ? values.decayed_reads : values.reads,
         keys_of_update(task, keys.reads, task.shared.from_start, keys.decayed_reads));
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
