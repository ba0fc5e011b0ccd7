// dk and dv of the parts that the heads of a group are cut into, and their sums.
#pragma once

#include "sweep_chunks.inl.hpp"
#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// The chunks of all sequences in a row: at or behind where those of the sequences before end.
inline std::int64_t first_partial_chunk(const Params& p, std::int64_t sequence) {
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

inline PartialSums partial_sums(const Params& p, std::int64_t sequence, std::int64_t kv_head,
                                std::int64_t part) {
  const std::int64_t keys = p.chunk * round_up_to_panels(p.forward.key_dim);
  const std::int64_t values = p.chunk * round_up_to_panels(p.forward.value_dim);
  const std::int64_t step = p.partial_chunks * (keys + values);
  float* const begin = p.partial_sums + (kv_head * p.group_parts + part) * step;
  const std::int64_t first = first_partial_chunk(p, sequence);
  return {.keys = begin + first * keys,
          .values = begin + p.partial_chunks * keys + first * values,
          .part_step = step};
}

inline void sum_parts(const Params& p, float* sums, std::int64_t step, std::int64_t size) {
  for (std::int64_t part = 1; part < p.group_parts; ++part) {
    for (std::int64_t i = 0; i < size; i += kLanes) {
      store(sums + i, load(sums + i) + load(sums + part * step + i));
    }
  }
}

inline void run_chunk_backward_sum(const Params& p, std::int64_t first, std::int64_t last) {
  const ForwardParams& f = p.forward;
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

// ---- the kernel ----
//
// The chunked backward kernel, compiled once per instruction set.
//
// With S the state before a chunk, D the gradient of the loss with respect to the state after it,
// o_t = scale q_t S_t, and from_start, to_end, ratio and total the decays of decays.inl.hpp,
//
//   dq_t = scale (from_start_t S do_t + sum_{s <= t} ratio_ts (do_t . v_s) k_s)
//   dk_s =        to_end_s D v_s      + sum_{t >= s} ratio_ts (do_t . v_s) scale q_t
//   dv_s =        to_end_s D' k_s     + sum_{t >= s} ratio_ts (scale q_t . k_s) do_t
//   S   <- total S + sum_s (to_end_s k_s) v_s'
//   D   <- total D + sum_t (from_start_t scale q_t) do_t'
//
// for decays that all channels share. Decays per channel of K weigh k and q before, and dq and dk
// after the sums over channels of V; those of V the other way about.
//
// Two sweeps over the chunks of a head, neither of which keeps the states: the first goes with the
// recurrence, recomputes S and makes dq; the second goes against it with D and makes dk and dv.
// That is five products with a state where the forward pass has two: S and D are kept as [V, K] in
// panels, which do and v read by vectors, and k by broadcasting, so that D is not kept twice. Where
// there are gates, the first sweep also leaves a state every few chunks and the terms q dq (do o)
// for their gradients (gate_gradients.inl.hpp); scores do . v are kept from the first to the
// second.

// ---- the sweeps ----

// How often products with a state fetch rows in a chunk of a sweep that reads it by values and,
// `transposed` times, by keys.
inline std::int64_t fetches_of_chunk(const ChunkTask& task, int transposed) {
  const std::int64_t tiles = task.keys.width / kPanelWidth * (task.values.width / kPanelWidth);
  return tiles * (2 + transposed);
}

// What a sweep reads and writes, from the chunk after `index` on; the second one reads what was
// not kept.
inline void plan_prefetch(ChunkTask& task, std::int64_t index, bool backward) {
  const auto in_order = [&](const auto& rows) {
    return backward ? from_the_end(rows, task.tokens) : rows;
  };
  task.prefetcher =
      Prefetcher(backward ? task.tokens - index * task.chunk : (index + 1) * task.chunk);
  for (const ChunkSide* side : {&task.keys, &task.values}) {
    if (!backward || index <= task.first_kept()) {
      task.prefetcher.add(in_order(side->read_rows), side->channels);
      task.prefetcher.add(in_order(side->write_rows), side->channels);
      task.prefetcher.add(in_order(side->decay.gates), side->channels);
    }
    if (task.stream) continue;
    if (backward) task.prefetcher.add(in_order(side->dgates), side->channels);
    task.prefetcher.add(in_order(backward ? side->dwrites : side->dreads), side->channels);
  }
  const std::int64_t fetches = fetches_of_chunk(task, backward ? 1 : task.values.decay.given);
  task.prefetch_lines = (task.chunk * task.prefetcher.lines_per_token() + fetches - 1) / fetches;
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

inline void sum_gates_anew(ChunkTask& task, const float* state_after) {
  const ChunkSide& keys = task.keys;
  const ChunkSide& values = task.values;
  if (keys.decay.given || task.shared.given) {
    sum_product_columns(task.dstate, state_after, values.width, keys.width, keys.gate);
  }
  if (task.shared.given) task.shared.gate = sum_of(keys.gate, keys.width);
  if (values.decay.given) {
    sum_product_rows(task.dstate, state_after, values.width, keys.width, values.gate);
  }
}

// The gradient of what all channels of K decay by, at the current token.
inline double carried_gate(const ChunkTask& task) {
  return task.shared.given ? task.shared.gate : sum_of(task.keys.gate, task.keys.width);
}

// Before the first of `tokens` tokens that the gates were carried on over.
inline void end_segment(ChunkTask& task, const float* state_before, std::int64_t tokens) {
  const double carried = carried_gate(task);
  sum_gates_anew(task, state_before);
  if (task.dgamma) *task.dgamma -= excess_of_segment(carried, carried_gate(task), tokens);
}

inline void sweep_forward(ChunkTask& task) {
  read_state(task.initial, task, task.state);
  begin_sweep(task);
  if (task.tokens > task.chunk) plan_prefetch(task, 0, false);
  for (std::int64_t index = 0; index < task.chunks(); ++index) {
    allow_prefetch(task, index + 1, false);
    const std::int64_t token = index * task.chunk;
    if (task.has_gates && token > 0 && token % task.segment_tokens == 0) {
      float* const checkpoint =
          task.checkpoints + (token / task.segment_tokens - 1) * task.state_size;
      for (std::int64_t i = 0; i < task.state_size; i += kLanes) {
        store(checkpoint + i, load(task.state.data + i));
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
  std::int64_t segment_end = task.tokens;
  for (std::int64_t index = task.chunks() - 1; index >= 0; --index) {
    if (index > 0 && (index == task.chunks() - 1 || index == task.first_kept())) {
      plan_prefetch(task, index, true);
    }
    if (index > 0) allow_prefetch(task, index - 1, true);
    backward_chunk(task, index);
    const std::int64_t token = index * task.chunk;
    if (task.has_gates && token > 0 && token % task.segment_tokens == 0) {
      end_segment(task, task.checkpoints + (token / task.segment_tokens - 1) * task.state_size,
                  segment_end - token);
      segment_end = token;
    }
  }
  if (task.dgamma) {
    read_state(task.initial, task, task.state);
    end_segment(task, task.state.data, segment_end);
  }
  write_state(task.dstate, task, task.dinitial);
}

// ---- tasks ----

inline void run_chunk_backward(const Params& p, std::int64_t first, std::int64_t last,
                               float* scratch) {
  const std::int64_t heads_per_kv = p.forward.heads / p.forward.kv_heads;
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t part = index % p.group_parts;
    const std::int64_t kv_head = index / p.group_parts % p.forward.kv_heads;
    const std::int64_t sequence = index / p.group_parts / p.forward.kv_heads;
    const std::int64_t first_head = kv_head * heads_per_kv + part * heads_per_kv / p.group_parts;
    const std::int64_t last_head =
        kv_head * heads_per_kv + (part + 1) * heads_per_kv / p.group_parts - 1;
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
  if (p.stream) streamed_writes_done();
}

inline Instance instance() { return {.run = run_chunk_backward, .sum = run_chunk_backward_sum}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
