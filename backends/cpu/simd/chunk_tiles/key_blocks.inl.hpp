// The key side of a chunk, as in keys.inl.hpp, where each channel decays on its own (gk). The chunk is cut into
// blocks of 16 tokens:
//
//   different blocks   (q from the beginning of its block) (decays of the blocks between)
//                      (k until the end of its block): no factor is above one
//   the same block     (q from the beginning of the block) (k back to it): the second is a
//                      division, so only while no log decay from there on exceeds kMaxLog, beyond
//                      which the block's scores are summed up one by one
#pragma once

#include "tile_keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// exp(60) is 1e26: both q over it and k times it are far from the ends of bf16, which are fp32's.
inline constexpr float kMaxLog = 60.0F;

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

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
