// How the chunked kernels lay out a chunk of tokens in scratch memory, and how rows get there.
//
// A chunk is a few tokens of one head: `tokens` of them, a multiple of kTileRows, of which the last
// ones may be missing. Two layouts, both fp32 whatever the tensors are stored as, both padded so
// that products run over whole tiles:
//
//   panels  [channels / 16][tokens][16]: the operand that products broadcast from, element by
//           element. Sixteen channels of a token are one cache line and a token is always 64 bytes
//           after the one before, so a tile's rows are at offsets known to the compiler, whatever
//           K is, and whether they are tokens or channels.
//   matrix  [rows][columns], columns a whole number of vectors: the operand that products read by
//           vectors.
//
// Missing tokens and channels are zeros: they add nothing to any product. (Their decay is 1, a log
// decay of 0.) Nothing outside of the caller's rows is read.
#pragma once

#include "rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

inline constexpr std::int64_t kPanelWidth = 16;  // a multiple of the lanes of every instruction set
inline constexpr std::int64_t kMaxChunk = 64;

constexpr std::int64_t round_up_to_panels(std::int64_t channels) {
  return (channels + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
}

// A [tokens, channels] matrix as panels, from some token on.
struct Panels {
  float* data = nullptr;
  std::int64_t size = 0;  // floats from one panel to the next: 16 times the tokens of the chunk

  [[gnu::always_inline]] float* at(std::int64_t token, std::int64_t channel) const {
    return data + channel / kPanelWidth * size + token * kPanelWidth + channel % kPanelWidth;
  }
};

inline Panels panels_of(float* data, std::int64_t tokens) {
  return {.data = data, .size = tokens * kPanelWidth};
}

// The rows of one tensor at the tokens of a chunk, as fp32 and by whole vectors. Those that are
// missing are the zero row.
struct ChunkRows {
  const float* row[kMaxChunk];
};

// What the rows of a chunk are made of. `buffer` takes [chunk, elements rounded up to lanes]: rows
// go there that cannot be read where they lie, because they are 16 bits wide or no whole number of
// vectors. `zeros` is one row.
struct RowSource {
  InputRows rows;
  std::int64_t elements = 0;
  float* buffer = nullptr;
  const float* zeros = nullptr;
};

// Tokens [token, token + present) of a chunk of `chunk`; all zeros where the tensor is not given.
[[gnu::noinline]] inline void chunk_rows(const RowSource& source, std::int64_t token,
                                         std::int64_t present, std::int64_t chunk,
                                         ChunkRows& rows) {
  const std::int64_t given = source.rows.data ? present : 0;
  const std::int64_t step = round_up_to_lanes(source.elements);
  for (std::int64_t t = 0; t < given; ++t) {
    rows.row[t] = widened(source.rows, token + t, source.elements, source.buffer + t * step);
  }
  for (std::int64_t t = given; t < chunk; ++t) rows.row[t] = source.zeros;
}

// [chunk, columns] matrix; `columns` a whole number of vectors.
[[gnu::noinline]] inline void pack_matrix(const ChunkRows& rows, std::int64_t chunk,
                                          std::int64_t columns, float* matrix) {
  for (std::int64_t t = 0; t < chunk; ++t) {
    const float* const row = rows.row[t];
    for (std::int64_t j = 0; j < columns; j += kLanes) store(matrix + j, load(row + j));
    matrix += columns;
  }
}

// Panels of `scale` times the rows. What is behind `channels`, K, in whole vectors stays.
[[gnu::noinline]] inline void pack_panels(const ChunkRows& rows, std::int64_t chunk,
                                          std::int64_t channels, float scale,
                                          const Panels& panels) {
  const F32 factor = broadcast(scale);
  const std::int64_t whole = round_up_to_lanes(channels);
  for (std::int64_t t = 0; t < chunk; ++t) {
    const float* const row = rows.row[t];
    for (std::int64_t i = 0; i < whole; i += kLanes) store(panels.at(t, i), load(row + i) * factor);
  }
}

// The same, and besides, in `decayed`, factors[t] times row t.
[[gnu::noinline]] inline void pack_decayed_panels(const ChunkRows& rows, const float* factors,
                                                  std::int64_t chunk, std::int64_t channels,
                                                  const Panels& panels, const Panels& decayed) {
  const std::int64_t whole = round_up_to_lanes(channels);
  for (std::int64_t t = 0; t < chunk; ++t) {
    const float* const row = rows.row[t];
    const F32 factor = broadcast(factors[t]);
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      const F32 x = load(row + i);
      store(panels.at(t, i), x);
      store(decayed.at(t, i), x * factor);
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
