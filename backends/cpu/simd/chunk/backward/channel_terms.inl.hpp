// Terms of pairs of tokens within a chunk whose channels decay each on its own.
//
// The channels of K: q reads, k writes; those of V: do reads, v writes. Decays between two tokens
// are split at the edges of blocks of kBlockTokens tokens, as in cpu/simd/chunk/scores.inl.hpp, and
// only multiplied.
#pragma once

#include "decays.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// pairs[t, s] = sum_i reads[t, i] writes[s, i] a_{s+1}[i] .. a_t[i] within a block, whose first
// token all panels point to. Leaves behind the reads decayed from the beginning of the block on and
// the writes decayed until its end.
[[gnu::noinline]] inline void pairs_of_block(Panels reads, Panels writes, Panels decays,
                                             std::int64_t width, Panels local_reads,
                                             Panels local_writes, float* pairs) {
  F32 products[kBlockTokens][kBlockTokens] = {};
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 written[kBlockTokens];
    F32 from_start{};
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) {
      const F32 read = load(reads.at(t, i));
      const F32 decay = load(decays.at(t, i));
#pragma GCC unroll 4
      for (int s = 0; s < t; ++s) {
        written[s] *= decay;
        products[t][s] = fma(read, written[s], products[t][s]);
      }
      written[t] = load(writes.at(t, i));
      products[t][t] = fma(read, written[t], products[t][t]);
      from_start = t == 0 ? decay : from_start * decay;
      store(local_reads.at(t, i), read * from_start);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kBlockTokens; ++t) store(local_writes.at(t, i), written[t]);
  }
  alignas(64) float sums[round_up_to_lanes(kBlockTokens * kBlockTokens)];
  sum_lanes<kBlockTokens * kBlockTokens>(&products[0][0], sums);
  for (int t = 0; t < kBlockTokens; ++t) {
    __builtin_memcpy(pairs + t * kPanelWidth, sums + t * kBlockTokens,
                     kBlockTokens * sizeof(float));
  }
}

// Pairs of a chunk on and below the diagonal; above it those within a block are 0, others are not
// written. `local_reads` and `local_writes` are scratch memory.
inline void channel_pairs(const Panels& reads, const Panels& writes, const ChannelDecay& decays,
                          std::int64_t width, const Panels& local_reads, const Panels& local_writes,
                          const Panels& pairs) {
  const auto from = [](const Panels& panels, std::int64_t token) {
    return Panels{panels.at(token, 0), panels.size};
  };
  for (std::int64_t t = 0; t < kChannelChunk; t += kBlockTokens) {
    pairs_of_block(from(reads, t), from(writes, t), from(decays.decay, t), width,
                   from(local_reads, t), from(local_writes, t), pairs.at(t, t));
  }
  score_blocks(local_reads, local_writes, decays.of_blocks, kChannelChunk, width, pairs);
}

// What finish_reads() and finish_writes() work on.
struct ChannelTerms {
  Panels rows;     // k or v, q or do
  Panels pairs;    // [kChannelChunk, kChannelChunk], of the other side
  Panels sums;     // in and out
  Panels decayed;  // the rows: k or v until the end of the chunk, q or do since its start
  // [kChannelChunk] or null: what else the state decayed by until a token, or since.
  const float* factors = nullptr;
};

[[gnu::always_inline]] inline float pair_at(const ChannelTerms& terms, int t, int s) {
  return terms.pairs.data[t * kPanelWidth + s];
}

[[gnu::always_inline]] inline F32 state_term(const ChannelTerms& terms, int t, std::int64_t i) {
  const F32 sum = load(terms.sums.at(t, i));
  return terms.factors ? sum * terms.factors[t] : sum;
}

// sums[t] = a_0 .. a_t factor_t sums[t] + sum_{s <= t} pairs[t][s] a_{s+1} .. a_t rows[s], which
// turns the state before the chunk, read by do, into dq, and read by q into o. What has become of
// the rows by the end of the chunk is what writes to the state.
[[gnu::noinline]] inline void finish_reads(const ChannelTerms& given, const ChannelDecay& decays,
                                           std::int64_t width) {
  const ChannelTerms terms = given;  // or each store might have changed it
  const Panels of_tokens = decays.decay;
  const float* const of_blocks = decays.of_blocks;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 written[kChannelChunk];  // decayed until the end of the block before, or until token t
    F32 before = broadcast(1.0F);
#pragma GCC unroll 4
    for (int b = 0; b < kPairBlocks; ++b) {
      const int begin = b * kBlockTokens;
      const int end = begin + kBlockTokens;
      F32 from_start = broadcast(1.0F);
#pragma GCC unroll 4
      for (int t = begin; t < end; ++t) {
        const F32 decay = load(of_tokens.at(t, i));
        from_start *= decay;
        F32 sum = state_term(terms, t, i) * before;
#pragma GCC unroll 16
        for (int s = 0; s < begin; ++s) sum = fma(broadcast(pair_at(terms, t, s)), written[s], sum);
        sum *= from_start;
        written[t] = load(terms.rows.at(t, i));
#pragma GCC unroll 4
        for (int s = begin; s < t; ++s) {
          written[s] *= decay;
          sum = fma(broadcast(pair_at(terms, t, s)), written[s], sum);
        }
        store(terms.sums.at(t, i), fma(broadcast(pair_at(terms, t, t)), written[t], sum));
      }
      const F32 of_block = load(of_blocks + b * width + i);
      before *= of_block;
#pragma GCC unroll 16
      for (int s = 0; s < begin; ++s) written[s] *= of_block;
    }
#pragma GCC unroll 16
    for (int s = 0; s < kChannelChunk; ++s) store(terms.decayed.at(s, i), written[s]);
  }
}

// sums[s] = a_{s+1} .. a_{n-1} factor_s sums[s] + sum_{t >= s} pairs[t][s] a_{s+1} .. a_t rows[t],
// which turns the gradient of the state after the chunk, read by v, into dk, and read by k into dv.
// What has become of the rows by the start of the chunk is what writes to that gradient.
[[gnu::noinline]] inline void finish_writes(const ChannelTerms& given, const ChannelDecay& decays,
                                            std::int64_t width) {
  const ChannelTerms terms = given;  // or each store might have changed it
  const Panels of_tokens = decays.decay;
  const float* const of_blocks = decays.of_blocks;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    F32 read[kChannelChunk];  // decayed since the end of the block, or since behind token s
    F32 behind = broadcast(1.0F);
#pragma GCC unroll 4
    for (int b = kPairBlocks - 1; b >= 0; --b) {
      const int begin = b * kBlockTokens;
      const int end = begin + kBlockTokens;
      F32 to_end = broadcast(1.0F);
#pragma GCC unroll 4
      for (int s = end - 1; s >= begin; --s) {
        F32 sum = state_term(terms, s, i) * behind;
#pragma GCC unroll 16
        for (int t = end; t < kChannelChunk; ++t) {
          sum = fma(broadcast(pair_at(terms, t, s)), read[t], sum);
        }
        sum *= to_end;
        read[s] = load(terms.rows.at(s, i));
#pragma GCC unroll 4
        for (int t = s; t < end; ++t) sum = fma(broadcast(pair_at(terms, t, s)), read[t], sum);
        store(terms.sums.at(s, i), sum);
        const F32 decay = load(of_tokens.at(s, i));
        to_end *= decay;
#pragma GCC unroll 4
        for (int t = s; t < end; ++t) read[t] *= decay;
      }
      const F32 of_block = load(of_blocks + b * width + i);
      behind *= of_block;
#pragma GCC unroll 16
      for (int t = end; t < kChannelChunk; ++t) read[t] *= of_block;
    }
#pragma GCC unroll 16
    for (int t = 0; t < kChannelChunk; ++t) store(terms.decayed.at(t, i), read[t]);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
