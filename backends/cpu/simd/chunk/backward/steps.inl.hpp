// What both sweeps of the chunked backward pass do with a chunk: its decays, the pairs of its
// tokens, and the products with a state that is kept as [V, K].
#pragma once

#include "task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

inline void side_decays(const ChunkTask& task, const ChunkSide& side, std::int64_t index,
                        const float* offsets) {
  const Panels& decay = side.decay.decay;
  pack_rows(side.decay.gates, task.range(index), side.channels, 1.0F, decay);
  if (task.shared.balance.gv.data) {
    // Channels that do not exist must not grow: inf there would make NaN of their zeros.
    for (std::int64_t t = 0; t < task.chunk; ++t) {
      const float no_growth = offsets[t] > 0.0F ? -offsets[t] : 0.0F;
      for (std::int64_t i = side.channels; i < side.width; ++i) *decay.at(t, i) = no_growth;
    }
  }
  channel_decays(side.decay, offsets, side.width);
}

// The decays of channels, which lie beside the packed rows.
inline void pack_decays(const ChunkTask& task, std::int64_t index) {
  alignas(64) float offsets[kMaxChunk] = {};
  if (task.values.decay.given) {
    for (std::int64_t t = 0; t < task.present(index); ++t) {
      offsets[t] = task.values.decay.balance.of(index * task.chunk + t);
    }
    side_decays(task, task.values, index, offsets);
  }
  if (!task.keys.decay.given) return;
  shared_logs(task.shared, index * task.chunk, task.present(index), task.chunk, offsets);
  side_decays(task, task.keys, index, offsets);
}

// The rows of chunk `index`, and what its tokens decay by; what is packed is there already when the
// chunk was kept.
inline void prepare_chunk(ChunkTask& task, std::int64_t index, bool is_packed) {
  place_packed(task, index);
  if (is_packed) return;
  if (task.shared.given) {
    shared_decays(task.shared, task.token_of(index), task.present(index), task.chunk);
  }
  for (const ChunkSide* side : {&task.keys, &task.values}) {
    pack_rows(side->read_rows, task.range(index), side->channels, side->scale, side->reads);
    pack_rows(side->write_rows, task.range(index), side->channels, 1.0F, side->writes);
  }
  pack_decays(task, index);
}

// Pairs of one side, by which the sums of the other are weighed.
inline void side_pairs(const ChunkTask& task, const ChunkSide& side, const Panels& pairs) {
  if (side.decay.given) {
    channel_pairs(side.reads, side.writes, side.decay, side.width, side.local_reads,
                  side.local_writes, pairs);
  } else {
    score_chunk(side.reads, side.writes, task.chunk, side.width, pairs);
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

// The same where side_pairs() has just left them behind.
inline const Panels& writes_of_pairs(const ChunkSide& side) {
  return side.decay.given ? side.local_writes : side.writes;
}

// What updates a state on the side of K: `rows`, decayed by token where its channels share their
// decays. Where each has its own, finish_reads() or finish_writes() has left the rows in `decayed`.
inline const Panels& keys_of_update(const ChunkTask& task, const Panels& rows, const float* factors,
                                    const Panels& decayed) {
  if (task.keys.decay.given) return decayed;
  if (!task.shared.given) return rows;
  scale_rows(rows, factors, task.chunk, task.keys.width, decayed);
  return decayed;
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
                       .row_scale = task.shared.given ? task.row_totals : task.values.decay.total,
                       .column_scale = task.keys.decay.total};
  const bool by_rows = task.shared.given || task.values.decay.given;
  if (by_rows && task.keys.decay.given) {
    multiply_panels<Left::kColumns, Start::kScaleBoth>(product, task.prefetcher,
                                                       task.prefetch_lines);
  } else if (by_rows) {
    multiply_panels<Left::kColumns, Start::kScaleRows>(product, task.prefetcher,
                                                       task.prefetch_lines);
  } else if (task.keys.decay.given) {
    multiply_panels<Left::kColumns, Start::kScaleColumns>(product, task.prefetcher,
                                                          task.prefetch_lines);
  } else {
    multiply_panels<Left::kColumns, Start::kAdd>(product, task.prefetcher, task.prefetch_lines);
  }
}

// The decays of whole rows of a state: of the channels of V, and what those of K share.
inline void total_row_decays(const ChunkTask& task) {
  if (!task.shared.given) return;
  for (std::int64_t j = 0; j < task.values.width; j += kLanes) {
    const F32 own = task.values.decay.given ? load(task.values.decay.total + j) : broadcast(1.0F);
    store(task.row_totals + j, own * *task.shared.total);
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
                                             task.prefetcher, task.prefetch_lines);
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
                                             task.prefetcher, task.prefetch_lines);
}

template <Left kLeft>
void add_pairs(const ChunkTask& task, const float* factors, PanelProduct product) {
  product.depth = task.chunk;
  product.triangular = true;
  product.row_scale = factors;
  if (task.shared.given) return multiply_panels<kLeft, Start::kScaleRows>(product);
  multiply_panels<kLeft, Start::kAdd>(product);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
