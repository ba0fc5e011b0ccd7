// The operands of a chunk's products as pairs of bf16, where the instruction set multiplies those.
// Elsewhere all of this is nothing.
//
// What is prepared in fp32 is rounded once: the state, k and q with their decays, the scores;
// values are bf16 already. Sums, and the state that lasts, stay fp32.
#pragma once

#include "chunk_params.hpp"
#include "cpu/simd/vector/product.inl.hpp"
#include "keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

using simd::chunk::Scratch;
using simd::chunk::Tiling;

#if defined(__AVX512BF16__)

struct ChunkPairs {
  float* state = nullptr;   // [paired, columns]
  float* values = nullptr;  // right behind it, [chunk / 2, columns]
  Panels reads;             // [chunk, paired + chunk / 2]
  Panels writes;            // [chunk / 2, K in whole panels]
  std::int64_t paired = 0;  // K in whole panels of pairs
};

inline ChunkPairs chunk_pairs(const Tiling& tiling, const ForwardParams& p, std::int64_t columns,
                              float* scratch) {
  const Scratch& at = tiling.scratch;
  ChunkPairs pairs;
  pairs.paired = round_up_to_panels((p.key_dim + 1) / 2);
  pairs.state = scratch + at.state_pairs;
  pairs.values = pairs.state + pairs.paired * columns;
  pairs.reads = panels_of(scratch + at.read_pairs, tiling.chunk);
  pairs.writes = panels_of(scratch + at.write_pairs, tiling.chunk / 2);
  return pairs;
}

// Rows two by two.
[[gnu::noinline]] inline void pair_matrix(const float* rows, std::int64_t count,
                                          std::int64_t columns, float* pairs) {
  for (std::int64_t row = 0; row < count; row += 2) {
    for (std::int64_t j = 0; j < columns; j += kLanes) {
      store(pairs + j, pair_rows(load(rows + j), load(rows + columns + j)));
    }
    rows += 2 * columns;
    pairs += columns;
  }
}

inline void pair_state(const float* state, std::int64_t rows, std::int64_t columns,
                       const ChunkPairs& pairs) {
  pair_matrix(state, rows, columns, pairs.state);
  for (std::int64_t i = rows / 2 * columns; i < pairs.paired * columns; i += kLanes) {
    store(pairs.state + i, F32{});
  }
}

inline void pair_values(const float* rows, std::int64_t chunk, std::int64_t columns,
                        const ChunkPairs& pairs) {
  pair_matrix(rows, chunk, columns, pairs.values);
}

// Two panels side by side as one of pairs of channels; a missing second one is zeros.
inline void pair_channels(const Panels& from, std::int64_t channel, bool has_second,
                          std::int64_t chunk, const Panels& to, std::int64_t pair) {
  for (std::int64_t t = 0; t < chunk; ++t) {
    const F32 first = load(from.at(t, channel));
    const F32 second = has_second ? load(from.at(t, channel + kPanelWidth)) : F32{};
    store(to.at(t, pair), (F32)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
  }
}

// Lets both products take pairs.
[[gnu::noinline]] inline void pair_operands(const ChunkKeys& keys, const ChunkPairs& pairs,
                                            TokensProduct& read, ChannelsProduct& update) {
  const auto pair_all = [&](const Panels& from, std::int64_t channels, std::int64_t pair) {
    for (std::int64_t i = 0; i < channels; i += 2 * kPanelWidth) {
      pair_channels(from, i, i + kPanelWidth < channels, keys.chunk, pairs.reads, pair + i / 2);
    }
  };
  pair_all(keys.reads, keys.padded, 0);
  pair_all(keys.scores(), keys.chunk, pairs.paired);
  for (std::int64_t i = 0; i < keys.padded; i += kPanelWidth) {
    for (std::int64_t t = 0; t < keys.chunk; t += 2) {
      store(pairs.writes.at(t / 2, i),
            pair_rows(load(keys.writes.at(t, i)), load(keys.writes.at(t + 1, i))));
    }
  }
  read.panels = pairs.reads;
  read.depth = pairs.paired;
  read.matrix = pairs.state;
  update.panels = pairs.writes;
  update.depth = keys.chunk / 2;
  update.matrix = pairs.values;
  update.pairs_target = pairs.state;
}

#else

struct ChunkPairs {};

inline ChunkPairs chunk_pairs(const Tiling&, const ForwardParams&, std::int64_t, float*) {
  return {};
}
inline void pair_state(const float*, std::int64_t, std::int64_t, const ChunkPairs&) {}
inline void pair_values(const float*, std::int64_t, std::int64_t, const ChunkPairs&) {}
inline void pair_operands(const ChunkKeys&, const ChunkPairs&, TokensProduct&, ChannelsProduct&) {}

#endif

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
