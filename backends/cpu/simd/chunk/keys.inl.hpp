// The key side of a chunk: what every column of the state needs to know about its tokens.
//
// With a_t[i] the decay of channel i at token t, S_0 the state before the chunk and tokens 0 .. n-1
// in it,
//
//   o_t          = (scale q_t * a_0 .. a_t) S_0 + sum_{s <= t} scores[t, s] v_s
//   S_{n-1}      = (a_0 .. a_{n-1}) S_0 + sum_s (k_s * a_{s+1} .. a_{n-1}) v_s
//   scores[t, s] = scale * sum_i q_t[i] k_s[i] a_{s+1}[i] .. a_t[i]
//
// Made of it: `reads`, the bracket of the first line and the scores behind it, one operand of
// multiply_tokens(); `writes`, the bracket in the sum of the second; `decays`, its first bracket,
// as exp of the summed logs. Where all channels decay alike (g, gamma) `reads` has q alone and the
// decay is the product's `from_start`. Decays of different tokens are only multiplied, or their
// logs added, never divided or subtracted: a zero (a log decay of -inf) is exact and nothing
// overflows.
#pragma once

#include "cpu/simd/vector/decays.inl.hpp"
#include "scores.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk {

struct ChunkKeys {
  RowSource q, k, gk;
  InputRows g;
  float gamma = 0.0F;
  Balance balance;
  float scale = 1.0F;
  bool has_decay = false;     // any of g, gamma and gk
  std::int64_t chunk = 0;     // tokens
  std::int64_t channels = 0;  // K
  std::int64_t padded = 0;    // K in whole panels
  Panels reads;               // [chunk, padded + chunk]
  Panels relative;  // [chunk, padded]: with a gk, q from the beginning of its block, else k
  Panels writes;    // [chunk, padded]
  float* from_start = nullptr;          // [chunk]: decays up to a token, itself included
  float* to_end = nullptr;              // [chunk]: and those after it
  float* decays = nullptr;              // [padded], as all below
  float* carries = nullptr;             // log of what rounding took from the decays so far
  float* log_sums = nullptr;            // with a gk, as all below
  float* channel_from_start = nullptr;  // decays through the end of the last block
  float* block_decays = nullptr;        // [chunk / kBlockTokens, padded]

  /// Whether decays are those of tokens, the same for all channels.
  bool has_shared_decay() const { return has_decay && !gk.rows.data; }
  Panels scores() const { return {reads.at(0, padded), reads.size}; }
};

// ---- the same decay for all channels ----

using Lanes = U32;

template <std::size_t... kIndex>
[[gnu::always_inline]] inline Lanes lane_numbers(std::index_sequence<kIndex...>) {
  return Lanes{std::uint32_t(kIndex)...};
}

// scores[t, s] *= a_{s+1} .. a_t where s <= t, and 0 where it is not.
template <bool kDecay>
[[gnu::noinline]] void decay_scores(const float* decays, std::int64_t chunk, const Panels& scores) {
  for (std::int64_t first = 0; first < chunk; first += kLanes) {
    const Lanes source = lane_numbers(std::make_index_sequence<kLanes>()) + std::uint32_t(first);
    F32 decay = broadcast(1.0F);
    float* pair = scores.at(first, first);
    for (std::int64_t t = first; t < chunk; ++t, pair += kPanelWidth) {
      const auto token = static_cast<std::uint32_t>(t);
      F32 decayed = load(pair);
      if constexpr (kDecay) {
        decay = source < token ? decay * decays[t] : decay;
        decayed *= decay;
      }
      store(pair, source <= token ? decayed : F32{});
    }
  }
}

[[gnu::noinline]] inline void token_decays(const ChunkKeys& keys, const TokenLogs& logs,
                                           float* of_token) {
  const F32 total =
      decays_of_tokens(logs, keys.chunk, of_token, keys.from_start, keys.to_end, keys.carries);
  for (std::int64_t i = 0; i < keys.padded; i += kLanes) store(keys.decays + i, total);
}

inline void prepare_shared_decay(const ChunkKeys& keys, const ChunkRows& q, const ChunkRows& k,
                                 const TokenLogs& logs) {
  alignas(64) float of_token[kMaxChunk];
  token_decays(keys, logs, of_token);
  pack_panels(q, keys.chunk, keys.channels, keys.scale, keys.reads);
  pack_decayed_panels(k, keys.to_end, keys.chunk, keys.channels, keys.relative, keys.writes);
  score_chunk(keys.reads, keys.relative, keys.chunk, keys.padded, keys.scores());
  decay_scores<true>(of_token, keys.chunk, keys.scores());
}

inline void prepare_without_decay(const ChunkKeys& keys, const ChunkRows& q, const ChunkRows& k) {
  pack_panels(q, keys.chunk, keys.channels, keys.scale, keys.reads);
  pack_panels(k, keys.chunk, keys.channels, 1.0F, keys.writes);
  score_chunk(keys.reads, keys.writes, keys.chunk, keys.padded, keys.scores());
  decay_scores<false>(nullptr, keys.chunk, keys.scores());
}

// ---- a decay for every channel ----

// Tokens of one block: rows, and what g and gamma add to the logs of each.
struct KeyBlock {
  const float* const* q = nullptr;
  const float* const* k = nullptr;
  const float* const* gk = nullptr;
  const float* log = nullptr;
  std::int64_t token = 0;  // of the chunk
};

[[gnu::noinline]] inline void decay_key_block(const ChunkKeys& keys, const KeyBlock& block) {
  constexpr int kPairs = kBlockTokens * (kBlockTokens + 1) / 2;
  const F32 scale = broadcast(keys.scale);
  float* const block_decay = keys.block_decays + block.token / kBlockTokens * keys.padded;
  F32 products[kPairs];
#pragma GCC unroll 16
  for (F32& product : products) product = F32{};
  for (std::int64_t i = 0; i < keys.channels; i += kLanes) {
    F32 decay[kBlockTokens];
    F32 log_sum = load(keys.log_sums + i);
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) {
      decay[t] = load(block.gk[t] + i) + block.log[t];
      log_sum += decay[t];
    }
    store(keys.log_sums + i, log_sum);
    exp_each(decay);

    const F32 before = load(keys.channel_from_start + i);
    F32 in_block{};
    F32 written[kBlockTokens];
    int pair = 0;
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) {
      const F32 q = load(block.q[t] + i) * scale;
#pragma GCC unroll 4
      for (int s = 0; s < t; ++s, ++pair) {
        written[s] *= decay[t];
        products[pair] = fma(q, written[s], products[pair]);
      }
      written[t] = load(block.k[t] + i);
      products[pair] = fma(q, written[t], products[pair]);
      ++pair;
      in_block = t == 0 ? decay[0] : in_block * decay[t];
      const F32 relative = q * in_block;
      store(keys.relative.at(block.token + t, i), relative);
      store(keys.reads.at(block.token + t, i), relative * before);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) store(keys.writes.at(block.token + t, i), written[t]);
    store(block_decay + i, in_block);
    store(keys.channel_from_start + i, before * in_block);
  }
  alignas(64) float sums[round_up_to_lanes(kPairs)];
  sum_lanes<kPairs>(products, sums);
  const float* sum = sums;
  for (int t = 0; t < kBlockTokens; ++t) {
    for (int s = 0; s <= t; ++s) *keys.scores().at(block.token + t, block.token + s) = *sum++;
  }
}

inline void decay_channels(const ChunkKeys& keys, const ChunkRows& q, const ChunkRows& k,
                           const ChunkRows& gk, const TokenLogs& logs) {
  for (std::int64_t i = 0; i < keys.padded; i += kLanes) {
    store(keys.channel_from_start + i, broadcast(1.0F));
    store(keys.log_sums + i, F32{});
  }
  for (std::int64_t t = 0; t < keys.chunk; t += kBlockTokens) {
    decay_key_block(
        keys, {.q = q.row + t, .k = k.row + t, .gk = gk.row + t, .log = logs.log + t, .token = t});
  }
  score_blocks(keys.relative, keys.writes, keys.block_decays, keys.chunk, keys.padded,
               keys.scores());
  for (std::int64_t i = 0; i < keys.padded; i += kLanes) {
    store(keys.decays + i, load(keys.log_sums + i));
  }
  exp_with_carry(keys.decays, keys.carries, keys.padded);
}

// ---- a chunk ----

// Before the first chunk. What is behind K in the panels, and above the diagonal of the scores,
// stays zero.
inline void reset_keys(const ChunkKeys& keys) {
  const auto zero = [](float* data, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kLanes) store(data + i, F32{});
  };
  const std::int64_t chunk_panels = round_up_to_panels(keys.chunk) * keys.chunk;
  zero(keys.reads.data, keys.padded * keys.chunk + chunk_panels);
  zero(keys.writes.data, keys.padded * keys.chunk);
  zero(keys.carries, keys.padded);
  zero(keys.relative.data, keys.padded * keys.chunk);
  if (!keys.gk.rows.data) return;
  zero(keys.block_decays, keys.padded * (keys.chunk / kBlockTokens));
}

// Tokens [token, token + present).
inline void prepare_chunk_keys(const ChunkKeys& keys, std::int64_t token, std::int64_t present) {
  ChunkRows q, k;
  chunk_rows(keys.q, token, present, keys.chunk, q);
  chunk_rows(keys.k, token, present, keys.chunk, k);
  TokenLogs logs;
  token_logs(keys.g, keys.gamma, token, present, keys.chunk, logs);
  balance_logs(keys.balance, token, present, logs);
  if (keys.gk.rows.data) {
    ChunkRows gk;
    chunk_rows(keys.gk, token, present, keys.chunk, gk);
    if (keys.balance.gv.data) keep_padding(keys.gk, logs.log, present);
    return decay_channels(keys, q, k, gk, logs);
  }
  if (keys.has_decay) return prepare_shared_decay(keys, q, k, logs);
  prepare_without_decay(keys, q, k);
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk
