// dk and dv of the parts that the heads of a group are cut into, and their sums.
#pragma once

#include "chunk_task.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

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
