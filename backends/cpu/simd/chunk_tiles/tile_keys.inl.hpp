// The tokens of a chunk and the memory of what keys.inl.hpp makes of their keys, and how that is packed.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "operands.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// The tokens of a chunk.
struct ChunkSpan {
  std::int64_t token = 0;    // the first
  std::int64_t present = 0;  // tokens there are
  std::int64_t padded = 0;   // in whole 32s

  std::int64_t blocks() const { return padded / kTileRows; }
  std::int64_t present_in_block(std::int64_t block) const {
    const std::int64_t left = present - block * kTileRows;
    return left < 0 ? 0 : left < kTileRows ? left : kTileRows;
  }
};

struct TileKeys {
  HalfSource q, k;
  RowSource gk;
  InputRows g;
  float gamma = 0.0F;
  Balance balance;
  bool has_decay = false;         // any of g, gamma and gk
  bool keeps_sums = false;        // whether `sums` are needed with their decays, too
  std::int64_t channels = 0;      // K
  std::int64_t width = 0;         // K in whole 32s
  TileMatrix queries;             // [chunk / 16][width / 32]
  TileMatrix keys;                // [chunk / 16][width / 32], tokens across
  TileMatrix writes;              // [width / 16][chunk / 32]
  TileMatrix sums;                // [chunk / 16][chunk / 16]
  TileMatrix scores;              // [chunk / 16][chunk / 32]
  float* decays = nullptr;        // [width], as the next
  float* carries = nullptr;       // log of what rounding took from the decays so far
  float* pending = nullptr;       // [width]: decays that the state has not taken yet
  float* magnitudes = nullptr;    // [width]: with a gk, as all below
  float* near_keys = nullptr;     // tiles [width / 32]
  float* token_decays = nullptr;  // [16, width]
  float* relative = nullptr;      // [16, width]: q from the beginning of a block on
  float* ends = nullptr;          // [chunk, width]: k until the end of its block
  float* inverses = nullptr;      // [width]: one over a block's decay
  float* block_decays = nullptr;  // [chunk / 16, width]

  std::int64_t depth() const { return width / kTileDepth; }
  float* block_decay(std::int64_t block) const { return block_decays + block * width; }
};

// Scores as an operand. With kDecay those of different tokens decay in between.
template <bool kDecay>
[[gnu::noinline]] void join_scores(const TileKeys& keys, const ChunkSpan& span,
                                   const float* of_token) {
  const U32 lane = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return U32{std::uint32_t(kIndex)...};
  }
  (std::make_index_sequence<kLanes>());
  for (std::int64_t first = 0; first < span.padded; first += kTileDepth) {
    const U32 sources[2] = {lane + std::uint32_t(first), lane + std::uint32_t(first + kLanes)};
    F32 decay[2] = {broadcast(1.0F), broadcast(1.0F)};
    for (std::int64_t t = first; t < span.padded; ++t) {
      const auto token = static_cast<std::uint32_t>(t);
      const std::int64_t row = t % kTileRows * kLanes;
      F32 pair[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        float* const sum =
            keys.sums.at(t / kTileRows, first / kTileRows + std::int64_t{half}) + row;
        pair[half] = load(sum);
        if constexpr (kDecay) {
          decay[half] = sources[half] < token ? decay[half] * of_token[t] : decay[half];
          pair[half] *= decay[half];
        }
        pair[half] = sources[half] <= token ? pair[half] : F32{};
        if (keys.keeps_sums) store(sum, pair[half]);
      }
      store(keys.scores.at(t / kTileRows, first / kTileDepth) + row, join_bf16(pair[0], pair[1]));
    }
  }
}

template <class Source>
[[gnu::noinline]] void pack_queries(const TileKeys& keys, const ChunkSpan& span,
                                    const Source& rows) {
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    pack_tokens(rows, block * kTileRows, keys.width, keys.queries.at(block, 0));
  }
}

template <class Source>
[[gnu::noinline]] void pack_keys(const TileKeys& keys, const ChunkSpan& span, const Source& rows) {
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    pack_tokens_across(rows, block * kTileRows, keys.width, keys.keys.at(block, 0));
  }
}

template <class Source>
[[gnu::noinline]] void pack_writes(const TileKeys& keys, const ChunkSpan& span,
                                   const Source& rows) {
  for (std::int64_t t = 0; t < span.padded; t += kTileDepth) {
    pack_channels(rows, t, keys.width, keys.writes);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
