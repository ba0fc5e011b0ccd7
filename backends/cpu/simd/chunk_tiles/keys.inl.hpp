// The key side of a chunk, as operands of tile products. With a_t[i] the decay of channel i at
// token t and S_0 the state before the chunk of tokens 0 .. n-1,
//
//   queries  q_t * a_0 .. a_t               rows, times S_0
//   scores   P[t, s] = sum_i q_t[i] k_s[i] a_{s+1}[i] .. a_t[i], s <= t
//   writes   k_s * a_{s+1} .. a_{n-1}       channels, times v
//   decays   a_0 .. a_{n-1}                 exp of the summed logs
//
// Where all channels decay alike (g, gamma) P is q k^T times the product of decays. Where each
// decays on its own (gk) it is made block by block (key_blocks.inl.hpp).
//
// But for divisions there, decays of different tokens are multiplied and their logs added, so a log
// decay of -inf resets exactly. What is above the diagonal is never multiplied by zero, but left out.
#pragma once

#include "key_blocks.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

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
