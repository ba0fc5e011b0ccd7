// The key side of a chunk, as operands of tile products. With a_t[i] the decay of channel i at
// token t and S_0 the state before the chunk of tokens 0 .. n-1,
//
//   queries  q_t * a_0 .. a_t               rows, times S_0
//   scores   P[t, s] = sum_i q_t[i] k_s[i] a_{s+1}[i] .. a_t[i], s <= t
//   writes   k_s * a_{s+1} .. a_{n-1}       channels, times v
//   decays   a_0 .. a_{n-1}                 exp of the summed logs
//
// Where all channels decay alike (g, gamma) P is q k^T times the product of decays. Where each
// decays on its own (gk) the chunk is cut into blocks of 16 tokens:
//
//   different blocks   (q from the beginning of its block) (decays of the blocks between)
//                      (k until the end of its block): no factor is above one
//   the same block     (q from the beginning of the block) (k back to it): the second is a
//                      division, so only while no log decay from there on exceeds kMaxLog, beyond
//                      which the block's scores are summed up one by one
//
// Everything else multiplies decays of different tokens or adds their logs, so a log decay of -inf
// resets exactly. What is above the diagonal is never multiplied by zero, but left out.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "operands.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// exp(60) is 1e26: both q over it and k times it are far from the ends of bf16, which are fp32's.
inline constexpr float kMaxLog = 60.0F;

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

// ---- the same decay for all channels ----

[[gnu::noinline]] inline void sum_scores(const TileKeys& keys, const ChunkSpan& span) {
  for (std::int64_t t = 0; t < span.blocks(); t += 2) {
    for (std::int64_t s = 0; s <= t; s += 2) {
      zero_block<2>();
      add_block<2>(keys.queries, t, keys.keys, s, keys.depth());
      store_block<2>({{keys.sums.at(t, s), keys.sums.at(t, s + 1), keys.sums.at(t + 1, s),
                       keys.sums.at(t + 1, s + 1)}});
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

inline void prepare_shared_decay(const TileKeys& keys, const ChunkSpan& span, const HalfRows& q,
                                 const HalfRows& k, const TokenLogs& logs) {
  pack_queries(keys, span, q);
  pack_keys(keys, span, k);
  sum_scores(keys, span);
  if (!keys.has_decay) {
    join_scores<false>(keys, span, nullptr);
    return pack_writes(keys, span, k);
  }
  alignas(64) float of_token[kMaxChunk];
  alignas(64) float through[kMaxChunk];
  alignas(64) float behind[kMaxChunk];
  const F32 total = decays_of_tokens(logs, span.padded, of_token, through, behind, keys.carries);
  for (std::int64_t i = 0; i < keys.width; i += kLanes) store(keys.decays + i, total);
  join_scores<true>(keys, span, of_token);
  pack_queries(keys, span, ScaledRows{q, through});
  pack_writes(keys, span, ScaledRows{k, behind});
}

// ---- a decay for every channel ----

// Tokens of one block: rows of the chunk, and what g and gamma add to the logs of each.
struct TileKeyBlock {
  const HalfRows& q;
  const HalfRows& k;
  const ChunkRows& gk;  // of the block
  const float* log;
  std::int64_t index;

  std::int64_t token() const { return index * kTileRows; }
};

// Decays of 16 tokens in a vector of channels: each of them, and the sum of their logs. `largest`
// is raised to the largest magnitude of a log from the first token on.
struct BlockDecays {
  F32 of_token[kTileRows];
  F32 log_sum;
};

[[gnu::always_inline]] inline void decays_of_block(const float* const* gates, const float* logs,
                                                   std::int64_t channel, BlockDecays& decays,
                                                   F32& largest) {
  decays.log_sum = F32{};
#pragma GCC unroll 4
  for (int t = 0; t < kTileRows; t += 4) {
    F32 decay[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      decay[i] = load(gates[t + i] + channel) + logs[t + i];
      decays.log_sum += decay[i];
      const F32 magnitude = as_f32(as_bits(decays.log_sum) & 0x7fffffffU);
      // The other way round a NaN would pass.
      largest = magnitude <= largest ? largest : magnitude;
    }
    exp_each(decay);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) decays.of_token[t + i] = decay[i];
  }
}

[[gnu::always_inline]] inline bool is_small(F32 largest) {
  for (int i = 0; i < kLanes; ++i) {
    if (!(largest[i] <= kMaxLog)) return false;
  }
  return true;
}

// Returns whether keys may be divided by decays of the block.
[[gnu::noinline]] inline bool decay_key_block(const TileKeys& keys, const TileKeyBlock& block) {
  F32 largest{};
  for (std::int64_t i = 0; i < keys.channels; i += kLanes) {
    BlockDecays decays;
    decays_of_block(block.gk.row, block.log + block.token(), i, decays, largest);
    F32 product = broadcast(1.0F);
#pragma GCC unroll 16
    for (int t = 0; t < kTileRows; ++t) {
      product *= decays.of_token[t];
      store(keys.token_decays + t * keys.width + i, decays.of_token[t]);
      store(keys.relative + t * keys.width + i, block.q.vector(block.token() + t, i) * product);
    }
    store(keys.block_decay(block.index) + i, product);
    F32 after = broadcast(1.0F);
#pragma GCC unroll 16
    for (int t = kTileRows; t-- > 0;) {
      const std::int64_t token = block.token() + t;
      store(keys.ends + token * keys.width + i, block.k.vector(token, i) * after);
      after *= decays.of_token[t];
    }
    store(keys.decays + i, load(keys.decays + i) + decays.log_sum);
    F32 inverse[1] = {-decays.log_sum};
    exp_each(inverse);
    store(keys.inverses + i, inverse[0]);
  }
  return is_small(largest);
}

// Scores of one block without a division: sum_i q_t[i] k_s[i] a_{s+1}[i] .. a_t[i].
[[gnu::noinline]] inline void sum_block_scores_exactly(const TileKeys& keys,
                                                       const TileKeyBlock& block) {
  float* const tile = keys.sums.at(block.index, block.index);
  for (std::int64_t s = 0; s < kTileRows; ++s) {
    F32 sums[kTileRows] = {};
    for (std::int64_t i = 0; i < keys.channels; i += kLanes) {
      F32 key = block.k.vector(block.token() + s, i);
      for (std::int64_t t = s; t < kTileRows; ++t) {
        if (t > s) key *= load(keys.token_decays + t * keys.width + i);
        sums[t] = fma(block.q.vector(block.token() + t, i), key, sums[t]);
      }
    }
    alignas(64) float column[kTileRows];
    sum_lanes<kTileRows>(sums, column);
    for (std::int64_t t = s; t < kTileRows; ++t) tile[t * kLanes + s] = column[t];
  }
}

// One tile of sums.
[[gnu::noinline]] inline void sum_tile(const float* a, const float* b, std::int64_t depth,
                                       float* target) {
  zero_tile<0>();
  for (std::int64_t i = 0; i < depth; ++i) {
    load_tile<4>(a + i * kTileFloats);
    load_tile<6>(b + i * kTileFloats);
    multiply_tiles<0, 4, 6>();
  }
  store_tile<0>(target);
}

[[gnu::noinline]] inline void multiply_rows(float* rows, std::int64_t count, std::int64_t width,
                                            const float* factors) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const F32 factor = load(factors + i);
    for (std::int64_t t = 0; t < count; ++t) {
      float* const x = rows + t * width + i;
      store(x, load(x) * factor);
    }
  }
}

// Scores of a block with the ones before it; leaves the block's queries from the beginning of the
// chunk on.
inline void pair_key_block(const TileKeys& keys, std::int64_t block) {
  float* const queries = keys.queries.at(block, 0);
  const FloatRows relative{keys.relative, keys.width};
  for (std::int64_t before = block; before-- > 0;) {
    sum_tile(queries, keys.keys.at(before, 0), keys.depth(), keys.sums.at(block, before));
    multiply_rows(keys.relative, kTileRows, keys.width, keys.block_decay(before));
    pack_tokens(relative, 0, keys.width, queries);
  }
}

// Keys until the end of their blocks, with the decays of the blocks behind.
struct BlockEndRows {
  const float* rows;
  const float* block_factors;
  std::int64_t width;

  [[gnu::always_inline]] F32 pair(std::int64_t t, std::int64_t i) const {
    const F32 factor = load(block_factors + t / kTileRows * width + i);
    return pair_bf16(load(rows + t * width + i) * factor,
                     load(rows + (t + 1) * width + i) * factor);
  }
};

// From each block's decay to that of all blocks after it.
inline void decays_after_blocks(float* decays, std::int64_t blocks, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 after = broadcast(1.0F);
    for (std::int64_t block = blocks; block-- > 0;) {
      float* const decay = decays + block * width + i;
      const F32 own = load(decay);
      store(decay, after);
      after *= own;
    }
  }
}

inline void prepare_channel_decays(const TileKeys& keys, const ChunkSpan& span, const HalfRows& q,
                                   const HalfRows& k, const TokenLogs& logs) {
  for (std::int64_t i = 0; i < keys.width; i += kLanes) store(keys.decays + i, F32{});
  for (std::int64_t index = 0; index < span.blocks(); ++index) {
    const std::int64_t token = index * kTileRows;
    const std::int64_t present = span.present_in_block(index);
    ChunkRows gk;
    chunk_rows(keys.gk, span.token + token, present, kTileRows, gk);
    if (keys.balance.gv.data) keep_padding(keys.gk, logs.log + token, present);
    const TileKeyBlock block{.q = q, .k = k, .gk = gk, .log = logs.log, .index = index};
    const bool divides = decay_key_block(keys, block);
    pack_tokens(FloatRows{keys.relative, keys.width}, 0, keys.width, keys.queries.at(index, 0));
    pack_tokens_across(FloatRows{keys.ends, keys.width}, token, keys.width, keys.keys.at(index, 0));
    if (divides) {
      pack_tokens_across(FloatRows{keys.ends, keys.width, keys.inverses}, token, keys.width,
                         keys.near_keys);
      sum_tile(keys.queries.at(index, 0), keys.near_keys, keys.depth(), keys.sums.at(index, index));
    } else {
      sum_block_scores_exactly(keys, block);
    }
    pair_key_block(keys, index);
  }
  join_scores<false>(keys, span, nullptr);
  decays_after_blocks(keys.block_decays, span.blocks(), keys.width);
  pack_writes(keys, span, BlockEndRows{keys.ends, keys.block_decays, keys.width});
  exp_with_carry(keys.decays, keys.carries, keys.width);
}

// ---- a chunk ----

// Before the first chunk: what is behind K stays zero.
inline void reset_keys(const TileKeys& keys) {
  zero_floats(keys.carries, keys.width);
  if (!keys.gk.rows.data) return;
  const std::int64_t chunk = keys.sums.across * kTileRows;
  zero_floats(keys.relative, kTileRows * keys.width);
  zero_floats(keys.ends, chunk * keys.width);
  zero_floats(keys.inverses, keys.width);
  zero_floats(keys.block_decays, chunk / kTileRows * keys.width);
}

inline void prepare_keys(const TileKeys& keys, const ChunkSpan& span) {
  HalfRows q, k;
  half_rows(keys.q, span.token, span.present, span.padded, q);
  half_rows(keys.k, span.token, span.present, span.padded, k);
  TokenLogs logs;
  token_logs(keys.g, keys.gamma, span.token, span.present, span.padded, logs);
  balance_logs(keys.balance, span.token, span.present, logs);
  if (keys.gk.rows.data) return prepare_channel_decays(keys, span, q, k, logs);
  prepare_shared_decay(keys, span, q, k, logs);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
