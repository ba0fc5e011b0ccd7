// A chunk of the sweep with the recurrence, which makes dq, and one of the sweep against it, which
// makes dk, dv and the gradients of the gates. chunk_backward.inl.hpp has the formulas.
#pragma once

#include "chunk_products.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// ---- with the recurrence ----

// sums of K: what do reads of the state, and of the chunk's own tokens before it.
inline void make_dq(ChunkTask& task, const Panels& pairs) {
  const ChunkSide& keys = task.keys;
  read_by_values(task, task.state, decayed_reads(task.values));
  if (keys.decay.given) {
    return finish_reads({.rows = keys.writes, .pairs = pairs, .sums = keys.sums}, keys.decay,
                        keys.width);
  }
  add_pairs<Left::kRows>(task, task.shared.prefix,
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
                .factors = task.shared.given ? task.shared.prefix : nullptr},
               values.decay, values.width);
}

// The terms of the gates' gradients that the second sweep needs.
inline void keep_terms(const ChunkTask& task, const ChunkSide& side, std::int64_t index) {
  multiply_elements(side.reads.data, side.sums.data, task.chunk * side.width,
                    task.terms_of(side, index).data);
}

inline void keep_dots(const ChunkTask& task, const Panels& a, const Panels& b, float* dots) {
  for (std::int64_t t = 0; t < task.chunk; t += kPanelWidth) {
    dot_panel_rows({a.at(t, 0), a.size}, {b.at(t, 0), b.size}, task.keys.width, dots + t);
  }
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
  make_dq(task, pairs);
  if (keys.decay.given) keep_terms(task, keys, index);
  if (task.shared.given) keep_dots(task, keys.reads, keys.sums, task.dots + index * task.chunk);
  unpack_rows(keys.sums, keys.dreads, task.range(index), keys.channels, keys.scale);
  total_row_decays(task);
  update(task, task.state, writes_of_pairs(values),
         weighed_by_token(task, decayed_writes(keys), task.shared.suffix, keys.decayed_writes));
}

// ---- against it ----

inline void make_dk(ChunkTask& task, const Panels& pairs) {
  const ChunkSide& keys = task.keys;
  read_by_values(task, task.dstate, decayed_writes(task.values));
  if (keys.decay.given) {
    return finish_writes({.rows = keys.reads, .pairs = pairs, .sums = keys.sums}, keys.decay,
                         keys.width);
  }
  add_pairs<Left::kColumns>(task, task.shared.suffix,
                            {.left = pairs,
                             .right = keys.reads,
                             .target = keys.sums,
                             .rows = task.chunk,
                             .columns = keys.width});
}

inline void make_dv(ChunkTask& task) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  if (keys.decay.given) side_pairs(task, keys, task.key_pairs);
  read_by_keys(task, task.dstate, writes_of_pairs(keys));
  if (!keys.decay.given) {
    // What pair_chunk() makes, in half the time now that the keys are transposed.
    multiply_panels<Left::kRows, Start::kZero>({.left = keys.reads,
                                                .right = keys.transposed,
                                                .target = task.key_pairs,
                                                .rows = task.chunk,
                                                .columns = task.chunk,
                                                .depth = keys.width});
    weigh_pairs(task.key_pairs, task.shared.ratios, task.chunk);
  }
  if (!values.decay.given) {
    const PanelProduct product{.left = values.reads,
                               .right = task.key_pairs,
                               .target = values.transposed,
                               .rows = values.width,
                               .columns = task.chunk,
                               .depth = task.chunk,
                               .column_scale = task.shared.suffix};
    if (task.shared.given) {
      multiply_panels<Left::kColumns, Start::kScaleColumns>(product);
    } else {
      multiply_panels<Left::kColumns, Start::kAdd>(product);
    }
  }
  transpose_panels(values.transposed, values.width, task.chunk, values.sums);
  if (!values.decay.given) return;
  finish_writes({.rows = values.reads,
                 .pairs = task.key_pairs,
                 .sums = values.sums,
                 .factors = task.shared.given ? task.shared.suffix : nullptr},
                values.decay, values.width);
}

inline void write_dg(const ChunkTask& task, std::int64_t index, const float* dg) {
  for (std::int64_t t = task.present(index) - 1; t >= 0; --t) {
    if (task.dg.data) {
      __builtin_memcpy(task.dg.row(index * task.chunk + t), dg + t, sizeof(float));
    }
    if (task.dgamma) *task.dgamma += static_cast<double>(dg[t]);
  }
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

inline void shared_gate_gradients(const ChunkTask& task, std::int64_t index) {
  alignas(64) float dg[kMaxChunk];
  keep_dots(task, task.keys.writes, task.keys.sums, dg);
  const float* const dots = task.dots + index * task.chunk;
  float gradient = task.keys.gate[0];
  for (std::int64_t t = task.chunk - 1; t >= 0; --t) {
    gradient += dots[t] - dg[t];
    if (task.shared.decay[t] == 0.0F) gradient = 0.0F;
    dg[t] = gradient;
  }
  task.keys.gate[0] = gradient;
  write_dg(task, index, dg);
}

inline void gate_gradients(const ChunkTask& task, std::int64_t index) {
  alignas(64) float totals[kMaxChunk];
  if (task.values.decay.given) channel_gate_gradients(task, task.values, index, totals);
  if (task.shared.given) shared_gate_gradients(task, index);
  if (task.keys.decay.given) {
    channel_gate_gradients(task, task.keys, index, totals);
    write_dg(task, index, totals);
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
  make_dk(task, task.pairs_of(index));
  make_dv(task);
  if (task.has_gates) gate_gradients(task, index);
  write_shared(task, keys, index);
  write_shared(task, values, index);
  total_row_decays(task);
  update(task, task.dstate, decayed_reads(values),
         weighed_by_token(task, decayed_reads(keys), task.shared.prefix, keys.decayed_reads));
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
