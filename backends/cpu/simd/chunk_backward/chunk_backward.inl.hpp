// The chunked backward kernel, compiled once per instruction set.
//
// With S the state before a chunk, D the gradient of the loss with respect to the state after it,
// o_t = scale q_t S_t, and prefix, suffix, ratio and total the decays of chunk_decays.inl.hpp,
//
//   dq_t = scale (prefix_t S do_t   + sum_{s <= t} ratio_ts (do_t . v_s) k_s)
//   dk_s =        suffix_s D v_s    + sum_{t >= s} ratio_ts (do_t . v_s) scale q_t
//   dv_s =        suffix_s D' k_s   + sum_{t >= s} ratio_ts (scale q_t . k_s) do_t
//   S   <- total S + sum_s (suffix_s k_s) v_s'
//   D   <- total D + sum_t (prefix_t scale q_t) do_t'
//
// for decays that all channels share. Decays per channel of K weigh k and q before, and dq and dk
// after the sums over channels of V; those of V the other way about.
//
// Two sweeps over the chunks of a head, neither of which keeps the states: the first goes with the
// recurrence, recomputes S and makes dq; the second goes against it with D and makes dk and dv.
// That is five products with a state where the forward pass has two: S and D are kept as [V, K] in
// panels, which do and v read by vectors, and k by broadcasting, so that D is not kept twice. Where
// there are gates, the first sweep also leaves a state every few chunks and the terms q dq (do o)
// for their gradients, see chunk_gates.inl.hpp; pairs do . v are kept from the first to the second.
#pragma once

#include "chunk_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

// ---- what both sweeps do ----

inline void side_decays(const ChunkTask& task, const ChunkSide& side, std::int64_t index,
                        const float* offsets) {
  pack_rows(side.decay.gates, task.range(index), side.channels, 1.0F, side.decay.decay);
  channel_decays(side.decay, offsets, side.width);
}

inline void prepare_decays(ChunkTask& task, std::int64_t index) {
  if (task.shared.given) {
    shared_decays(task.shared, index * task.chunk, task.present(index), task.chunk);
  }
  alignas(64) float offsets[kMaxChunk] = {};
  if (task.values.decay.given) side_decays(task, task.values, index, offsets);
  if (!task.keys.decay.given) return;
  shared_logs(task.shared, index * task.chunk, task.present(index), task.chunk, offsets);
  side_decays(task, task.keys, index, offsets);
}

// Pairs of one side, by which the sums of the other are weighed.
inline void side_pairs(const ChunkTask& task, const ChunkSide& side, const Panels& pairs) {
  if (side.decay.given) {
    channel_pairs(side.reads, side.writes, side.decay, side.width, side.local_reads,
                  side.local_writes, pairs);
  } else {
    pair_chunk(side.reads, side.writes, task.chunk, side.width, pairs);
  }
  weigh_pairs(pairs, task.shared.ratios, task.chunk);
}

// What reads a state or writes to one, decayed by the side's own channels alone.
inline const Panels& decayed_reads(const ChunkSide& side) {
  if (!side.decay.given) return side.reads;
  decay_from_start(side.decay, side.reads, side.width, side.decayed_reads);
  return side.decayed_reads;
}

inline const Panels& decayed_writes(const ChunkSide& side) {
  if (!side.decay.given) return side.writes;
  decay_to_end(side.decay, side.writes, side.width, side.decayed_writes);
  return side.decayed_writes;
}

// The same on the side of K with the decays that its channels share.
inline const Panels& weighed_by_token(const ChunkTask& task, const Panels& rows,
                                      const float* factors, const Panels& target) {
  if (!task.shared.given) return rows;
  scale_rows(rows, factors, task.chunk, task.keys.width, target);
  return target;
}

// matrix = total matrix + sum_t values[t]' keys[t]
inline void update(ChunkTask& task, const Panels& matrix, const Panels& values,
                   const Panels& keys) {
  PanelProduct product{.left = values,
                       .right = keys,
                       .target = matrix,
                       .rows = task.values.width,
                       .columns = task.keys.width,
                       .depth = task.chunk,
                       .row_scale = task.values.decay.total,
                       .column_scale = task.keys.decay.total};
  const bool by_rows = task.shared.given || task.values.decay.given;
  if (by_rows && task.keys.decay.given) {
    multiply_panels<Left::kColumns, Start::kScaleBoth>(product, task.prefetcher,
                                                       task.prefetch_rows);
  } else if (by_rows) {
    multiply_panels<Left::kColumns, Start::kScaleRows>(product, task.prefetcher,
                                                       task.prefetch_rows);
  } else if (task.keys.decay.given) {
    multiply_panels<Left::kColumns, Start::kScaleColumns>(product, task.prefetcher,
                                                          task.prefetch_rows);
  } else {
    multiply_panels<Left::kColumns, Start::kAdd>(product, task.prefetcher, task.prefetch_rows);
  }
}

// The decays of whole rows of a state: of the channels of V, and what those of K share.
inline void total_row_decays(const ChunkTask& task) {
  if (!task.shared.given) return;
  float* const totals = task.values.decay.total;
  for (std::int64_t j = 0; j < task.values.width; j += kLanes) {
    const F32 own = task.values.decay.given ? load(totals + j) : broadcast(1.0F);
    store(totals + j, own * task.shared.total);
  }
}

// sums[t, :] = sum_j values[t, j] matrix[j, :]
inline void read_by_values(ChunkTask& task, const Panels& matrix, const Panels& values) {
  multiply_panels<Left::kRows, Start::kZero>({.left = values,
                                              .right = matrix,
                                              .target = task.keys.sums,
                                              .rows = task.chunk,
                                              .columns = task.keys.width,
                                              .depth = task.values.width},
                                             task.prefetcher, task.prefetch_rows);
}

// target[j, t] = sum_i matrix[j, i] keys[t, i]; `target` [V, chunk] is the transposed of the
// values.
inline void read_by_keys(ChunkTask& task, const Panels& matrix, const Panels& keys) {
  transpose_panels(keys, task.chunk, task.keys.width, task.keys.transposed);
  multiply_panels<Left::kRows, Start::kZero>({.left = matrix,
                                              .right = task.keys.transposed,
                                              .target = task.values.transposed,
                                              .rows = task.values.width,
                                              .columns = task.chunk,
                                              .depth = task.keys.width},
                                             task.prefetcher, task.prefetch_rows);
}

template <Left kLeft>
void add_pairs(const ChunkTask& task, const float* factors, PanelProduct product) {
  product.depth = task.chunk;
  product.triangular = true;
  product.row_scale = factors;
  if (task.shared.given) return multiply_panels<kLeft, Start::kScaleRows>(product);
  multiply_panels<kLeft, Start::kAdd>(product);
}

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

// The terms of the gates' gradients that the second sweep needs, in the rows of these.
inline void keep_terms(const ChunkTask& task, const ChunkSide& side, std::int64_t index) {
  multiply_elements(side.reads.data, side.sums.data, task.chunk * side.width, side.terms.data);
  unpack_rows(side.terms, side.dgates, task.range(index), side.channels, 1.0F);
}

inline void keep_dots(const ChunkTask& task, const Panels& a, const Panels& b, float* dots) {
  for (std::int64_t t = 0; t < task.chunk; t += kPanelWidth) {
    dot_panel_rows({a.at(t, 0), a.size}, {b.at(t, 0), b.size}, task.keys.width, dots + t);
  }
}

inline void forward_chunk(ChunkTask& task, std::int64_t index) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  pack_rows(values.read_rows, task.range(index), values.channels, 1.0F, values.reads);
  pack_rows(values.write_rows, task.range(index), values.channels, 1.0F, values.writes);
  pack_rows(keys.write_rows, task.range(index), keys.channels, 1.0F, keys.writes);
  if (task.has_gates) {
    pack_rows(keys.read_rows, task.range(index), keys.channels, keys.scale, keys.reads);
  }
  prepare_decays(task, index);
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
  update(task, task.state, decayed_writes(values),
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
  read_by_keys(task, task.dstate, decayed_writes(keys));
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
  const InputRows kept{side.dgates.data, side.dgates.step, side.dgates.type};
  pack_rows(kept, task.range(index), side.channels, 1.0F, side.terms);
  step_channel_gates({.terms = side.terms,
                      .writes = side.writes,
                      .dwrites = side.sums,
                      .shared = task.shared.given ? task.shared.decay : nullptr},
                     side.decay, side.width, side.gate, totals);
  unpack_rows(side.terms, side.dgates, task.range(index), side.channels, 1.0F);
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
  pack_rows(values.read_rows, task.range(index), values.channels, 1.0F, values.reads);
  pack_rows(values.write_rows, task.range(index), values.channels, 1.0F, values.writes);
  pack_rows(keys.write_rows, task.range(index), keys.channels, 1.0F, keys.writes);
  pack_rows(keys.read_rows, task.range(index), keys.channels, keys.scale, keys.reads);
  prepare_decays(task, index);
  make_dk(task, task.pairs_of(index));
  make_dv(task);
  if (task.has_gates) gate_gradients(task, index);
  write_shared(task, keys, index);
  write_shared(task, values, index);
  total_row_decays(task);
  update(task, task.dstate, decayed_reads(values),
         weighed_by_token(task, decayed_reads(keys), task.shared.prefix, keys.decayed_reads));
}

// ---- the sweeps ----

// How often products with a state fetch rows in a chunk of a sweep that reads it by values and,
// `transposed` times, by keys.
inline std::int64_t fetches_of_chunk(const ChunkTask& task, int transposed) {
  const std::int64_t tiles = task.keys.width / kPanelWidth * (task.values.width / kPanelWidth);
  return tiles * (2 + transposed);
}

template <class Byte>
Rows<Byte> from_the_end(const Rows<Byte>& rows, std::int64_t tokens) {
  if (!rows.data) return {};
  return {.data = rows.row(tokens - 1), .step = -rows.step, .type = rows.type};
}

// What each sweep reads and writes, from its second chunk on.
inline void plan_prefetch(ChunkTask& task, bool backward) {
  const auto in_order = [&](const auto& rows) {
    return backward ? from_the_end(rows, task.tokens) : rows;
  };
  task.prefetcher = Prefetcher(backward ? task.present(task.chunks() - 1) : task.chunk);
  for (const ChunkSide* side : {&task.keys, &task.values}) {
    if (side == &task.values || backward || task.has_gates) {
      task.prefetcher.add(in_order(side->read_rows), side->channels);
    }
    task.prefetcher.add(in_order(side->write_rows), side->channels);
    task.prefetcher.add(in_order(side->decay.gates), side->channels);
    task.prefetcher.add(in_order(side->dgates), side->channels);
    task.prefetcher.add(in_order(backward ? side->dwrites : side->dreads), side->channels);
  }
  const std::int64_t fetches = fetches_of_chunk(task, backward ? 1 : task.values.decay.given);
  task.prefetch_rows = (task.chunk * task.prefetcher.rows_per_token() + fetches - 1) / fetches;
}

// The rows of chunk `index` may be fetched from now on.
inline void allow_prefetch(ChunkTask& task, std::int64_t index, bool backward) {
  const std::int64_t end = backward ? task.tokens - index * task.chunk : (index + 1) * task.chunk;
  task.prefetcher.allow_until(end < task.tokens ? end : task.tokens);
}

// Without decays every ratio is 1, and nothing has been rounded off yet in any.
inline void begin_sweep(ChunkTask& task) {
  task.shared.carry = 0.0F;
  for (const ChunkSide* side : {&task.keys, &task.values}) {
    if (!side->decay.given) continue;
    for (std::int64_t i = 0; i < side->width; i += kLanes) store(side->decay.carry + i, F32{});
  }
  if (task.shared.given) return;
  for (std::int64_t i = 0; i < task.chunk * task.chunk; i += kLanes) {
    store(task.shared.ratios.data + i, broadcast(1.0F));
  }
}

inline void sum_gates_anew(const ChunkTask& task, const float* state_after) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  if (keys.decay.given || task.shared.given) {
    sum_product_columns(task.dstate, state_after, values.width, keys.width, keys.gate);
  }
  if (task.shared.given) keys.gate[0] = sum_of(keys.gate, keys.width);
  if (values.decay.given) {
    sum_product_rows(task.dstate, state_after, values.width, keys.width, values.gate);
  }
}

inline void sweep_forward(ChunkTask& task) {
  read_state(task.initial, task, task.state);
  begin_sweep(task);
  if (task.tokens > task.chunk) plan_prefetch(task, false);
  for (std::int64_t index = 0; index < task.chunks(); ++index) {
    allow_prefetch(task, index + 1, false);
    const std::int64_t token = index * task.chunk;
    if (task.has_gates && token > 0 && token % task.segment_tokens == 0) {
      float* const anchor = task.anchors + (token / task.segment_tokens - 1) * task.state_size;
      for (std::int64_t i = 0; i < task.state_size; i += kLanes) {
        store(anchor + i, load(task.state.data + i));
      }
    }
    forward_chunk(task, index);
  }
}

inline void sweep_backward(ChunkTask& task) {
  if (task.dgamma) *task.dgamma = 0.0;
  read_state(task.dfinal, task, task.dstate);
  begin_sweep(task);
  if (task.has_gates) sum_gates_anew(task, task.state.data);
  if (task.tokens > task.chunk) plan_prefetch(task, true);
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0) allow_prefetch(task, index - 1, true);
    backward_chunk(task, index);
    const std::int64_t token = index * task.chunk;
    if (task.has_gates && token > 0 && token % task.segment_tokens == 0) {
      sum_gates_anew(task, task.anchors + (token / task.segment_tokens - 1) * task.state_size);
    }
  }
  write_state(task.dstate, task, task.dinitial);
}

// ---- tasks ----

// The chunks of all sequences in a row: at or behind where those of the sequences before end.
inline std::int64_t first_partial_chunk(const ChunkBackwardParams& p, std::int64_t sequence) {
  const std::int64_t* const bounds = p.forward.cu_seqlens;
  if (bounds) return bounds[sequence] / p.chunk + sequence;
  return sequence * ((p.forward.tokens + p.chunk - 1) / p.chunk);
}

// Where dk and dv of one part of a group lie, and how far apart those of two parts are.
struct PartialSums {
  float* keys = nullptr;
  float* values = nullptr;
  std::int64_t part_step = 0;
};

inline PartialSums partial_sums(const ChunkBackwardParams& p, std::int64_t sequence,
                                std::int64_t kv_head, std::int64_t part) {
  const std::int64_t keys = p.chunk * round_up_to_panels(p.forward.key_dim);
  const std::int64_t values = p.chunk * round_up_to_panels(p.forward.value_dim);
  const std::int64_t step = p.partial_chunks * (keys + values);
  float* const begin = p.partial_sums + (kv_head * p.group_parts + part) * step;
  const std::int64_t first = first_partial_chunk(p, sequence);
  return {.keys = begin + first * keys,
          .values = begin + p.partial_chunks * keys + first * values,
          .part_step = step};
}

inline void run_chunk_backward(const ChunkBackwardParams& p, std::int64_t first, std::int64_t last,
                               float* scratch) {
  const std::int64_t group = p.forward.heads / p.forward.kv_heads;
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t part = index % p.group_parts;
    const std::int64_t kv_head = index / p.group_parts % p.forward.kv_heads;
    const std::int64_t sequence = index / p.group_parts / p.forward.kv_heads;
    const std::int64_t first_head = kv_head * group + part * group / p.group_parts;
    const std::int64_t last_head = kv_head * group + (part + 1) * group / p.group_parts - 1;
    for (std::int64_t head = first_head; head <= last_head; ++head) {
      ChunkTask task = chunk_task(p, sequence, head, scratch);
      task.place = {.is_first = head == first_head,
                    .is_last = head == last_head,
                    .is_partial = p.group_parts > 1};
      if (task.place.is_partial) {
        const PartialSums sums = partial_sums(p, sequence, kv_head, part);
        task.keys.group_sum = sums.keys;
        task.values.group_sum = sums.values;
      }
      sweep_forward(task);
      sweep_backward(task);
    }
  }
}

inline void sum_parts(const ChunkBackwardParams& p, float* sums, std::int64_t step,
                      std::int64_t size) {
  for (std::int64_t part = 1; part < p.group_parts; ++part) {
    for (std::int64_t i = 0; i < size; i += kLanes) {
      store(sums + i, load(sums + i) + load(sums + part * step + i));
    }
  }
}

inline void run_chunk_backward_sum(const ChunkBackwardParams& p, std::int64_t first,
                                   std::int64_t last) {
  const RecurrentForwardParams& f = p.forward;
  const std::int64_t per_chunks = p.chunk * kChunksOfSum;
  const std::int64_t slices = (f.tokens + per_chunks - 1) / per_chunks;
  const std::int64_t key_size = p.chunk * round_up_to_panels(f.key_dim);
  const std::int64_t value_size = p.chunk * round_up_to_panels(f.value_dim);
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t kv_head = index / slices % f.kv_heads;
    const std::int64_t sequence = index / slices / f.kv_heads;
    const TaskRange range = head_range(f, sequence, kv_head * (f.heads / f.kv_heads));
    const OutputRows dk = rows_of<char>(p.dk, range, kv_head, 0);
    const OutputRows dv = rows_of<char>(p.dv, range, kv_head, 0);
    const PartialSums sums = partial_sums(p, sequence, kv_head, 0);
    std::int64_t token = index % slices * per_chunks;
    const std::int64_t end = range.tokens - token < per_chunks ? range.tokens : token + per_chunks;
    for (; token < end; token += p.chunk) {
      const std::int64_t present = end - token < p.chunk ? end - token : p.chunk;
      float* const keys = sums.keys + token / p.chunk * key_size;
      float* const values = sums.values + token / p.chunk * value_size;
      sum_parts(p, keys, sums.part_step, key_size);
      sum_parts(p, values, sums.part_step, value_size);
      unpack_rows(panels_of(keys, p.chunk), dk, {token, present, p.chunk}, f.key_dim, 1.0F);
      unpack_rows(panels_of(values, p.chunk), dv, {token, present, p.chunk}, f.value_dim, 1.0F);
    }
  }
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
