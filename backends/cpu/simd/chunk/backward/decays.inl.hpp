// The decays of a chunk of tokens.
//
// With a_t the decay at token t of a chunk 0 .. n-1, what follows needs
//
//   from_start  a_0 .. a_t          from the state before the chunk to what token t reads
//   to_end      a_{t+1} .. a_{n-1}  from what token t writes to the state after the chunk
//   ratio       a_{s+1} .. a_t      from what token s writes to what token t reads, s <= t
//   total       a_0 .. a_{n-1}
//
// Decays that all channels share are exponentials of sums of logs, each summed up by itself: a
// difference of two sums would be NaN after a gate of -inf, and cancels after a strong one. Decays
// per channel are products of a block of kBlockTokens tokens at a time, but for the total: its
// rounding would add up over chunks, so it is the exp of a sum, and carries on what the exp rounded
// off. Missing tokens do not decay.
#pragma once

#include "cpu/simd/chunk/scores.inl.hpp"
#include "cpu/simd/vector/decays.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward {

// ---- shared by all channels of K ----

struct SharedDecay {
  bool given = false;
  InputRows g;
  float gamma = 0.0F;
  Balance balance;
  float carry = 0.0F;
  double gate = 0.0;  // E of cpu/simd/recurrent_attention/backward/gradients.inl.hpp
  Panels ratios;      // [chunk, chunk]; 0 above the diagonal, 1 below it when there is no decay
  float* decay = nullptr;  // [chunk], as the next
  float* from_start = nullptr;
  float* to_end = nullptr;
  float* total = nullptr;                 // one
  alignas(64) float written[kMaxChunk];   // k dk of the state after the chunk
  alignas(64) float of_pairs[kMaxChunk];  // what the chunk's own pairs add to the gradient
};

// Where the decays of a chunk are, or are to be.
inline void place_shared_decays(SharedDecay& shared, float* at, std::int64_t chunk) {
  shared.ratios = panels_of(at, chunk);
  shared.decay = at + chunk * chunk;
  shared.from_start = shared.decay + chunk;
  shared.to_end = shared.from_start + chunk;
  shared.total = shared.to_end + chunk;
}

inline F32 lane_numbers() {
  F32 numbers;
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = static_cast<float>(lane);
  return numbers;
}

// The log decay that all channels of K share at tokens [token, token + present).
inline void shared_logs(const SharedDecay& shared, std::int64_t token, std::int64_t present,
                        std::int64_t chunk, float* logs) {
  for (std::int64_t t = 0; t < present; ++t) {
    logs[t] = shared.gamma + (shared.g.data ? widened_scalar(shared.g, token + t) : 0.0F);
    logs[t] += shared.balance.of(token + t);
  }
  for (std::int64_t t = present; t < chunk; ++t) logs[t] = 0.0F;
}

[[gnu::noinline]] inline void shared_ratios(const float* logs, std::int64_t chunk, Panels ratios) {
  for (std::int64_t s = 0; s < chunk; s += kLanes) {
    const F32 source = lane_numbers() + static_cast<float>(s);
    F32 sum{};
    for (std::int64_t t = 0; t < chunk; t += kBlockTokens) {
      F32 ratio[kBlockTokens];
#pragma GCC unroll 4
      for (int i = 0; i < kBlockTokens; ++i) {
        sum = source < static_cast<float>(t + i) ? sum + logs[t + i] : sum;
        ratio[i] = sum;
      }
      exp_each(ratio);
#pragma GCC unroll 4
      for (int i = 0; i < kBlockTokens; ++i) {
        store(ratios.at(t + i, s), source <= static_cast<float>(t + i) ? ratio[i] : F32{});
      }
    }
  }
}

[[gnu::noinline]] inline void shared_decays(SharedDecay& shared, std::int64_t token,
                                            std::int64_t present, std::int64_t chunk) {
  alignas(64) float logs[kMaxChunk];
  shared_logs(shared, token, present, chunk, logs);
  float sum = 0.0F;
  for (std::int64_t t = 0; t < chunk; ++t) shared.from_start[t] = sum += logs[t];
  F32 total[1] = {broadcast(sum + shared.carry)};
  sum = 0.0F;
  for (std::int64_t t = chunk - 1; t >= 0; --t) {
    shared.to_end[t] = sum;
    sum += logs[t];
  }
  for (std::int64_t t = 0; t < chunk; t += kLanes) {
    F32 decay[3] = {load(logs + t), load(shared.from_start + t), load(shared.to_end + t)};
    exp_each(decay);
    store(shared.decay + t, decay[0]);
    store(shared.from_start + t, decay[1]);
    store(shared.to_end + t, decay[2]);
  }
  const float owed = exp_each(total)[0];
  shared.carry = owed == owed ? owed : 0.0F;  // a NaN stays in its chunk
  *shared.total = total[0][0];
  shared_ratios(logs, chunk, shared.ratios);
}

// pairs[t, s] times the ratio of shared decays for s <= t, and 0 above the diagonal, whatever a
// product there came to.
[[gnu::noinline]] inline void weigh_pairs(Panels pairs, Panels ratios, std::int64_t chunk) {
  for (std::int64_t s = 0; s < chunk; s += kLanes) {
    const F32 source = lane_numbers() + static_cast<float>(s);
    for (std::int64_t t = 0; t < chunk; ++t) {
      const F32 weighed = load(pairs.at(t, s)) * load(ratios.at(t, s));
      store(pairs.at(t, s), source <= static_cast<float>(t) ? weighed : F32{});
    }
  }
}

// ---- per channel ----

// A chunk with decays per channel; their loops keep a chunk of a channel in registers.
inline constexpr int kChannelChunk = 16;
inline constexpr int kPairBlocks = kChannelChunk / kBlockTokens;

struct ChannelDecay {
  bool given = false;
  InputRows gates;
  Balance balance;
  Panels decay;                // [kChannelChunk, channels]
  float* total = nullptr;      // [channels]
  float* carry = nullptr;      // [channels], see cpu/simd/vector/decays.inl.hpp
  float* of_blocks = nullptr;  // [kPairBlocks, channels]
};

// From log decays in `decays.decay`, to which `offsets` of the tokens are added.
[[gnu::noinline]] inline void channel_decays(const ChannelDecay& decays, const float* offsets,
                                             std::int64_t width) {
  const Panels of_tokens = decays.decay;
  float* const carries = decays.carry;
  float* const totals = decays.total;
  float* const of_blocks = decays.of_blocks;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    float* const column = of_tokens.at(0, i);
    F32 sum[1] = {load(carries + i)};
    for (int b = 0; b < kPairBlocks; ++b) {
      F32 decay[kBlockTokens];
      float* const rows = column + b * kBlockTokens * kPanelWidth;
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        decay[t] = load(rows + t * kPanelWidth) + offsets[b * kBlockTokens + t];
        sum[0] += decay[t];
      }
      exp_each(decay);
      F32 product = decay[0];
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        if (t > 0) product *= decay[t];
        store(rows + t * kPanelWidth, decay[t]);
      }
      store(of_blocks + b * width + i, product);
    }
    const F32 owed = exp_each(sum);
    store(carries + i, owed == owed ? owed : F32{});  // a NaN stays in its chunk
    store(totals + i, sum[0]);
  }
}

// to[t] = a_0 .. a_t from[t]
[[gnu::noinline]] inline void decay_from_start(const ChannelDecay& decays, Panels from,
                                               std::int64_t width, Panels to) {
  const Panels of_tokens = decays.decay;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const float* const decay = of_tokens.at(0, i);
    F32 from_start = broadcast(1.0F);
#pragma GCC unroll 4
    for (std::int64_t t = 0; t < kChannelChunk; ++t) {
      from_start *= load(decay + t * kPanelWidth);
      store(to.at(t, i), load(from.at(t, i)) * from_start);
    }
  }
}

// to[t] = a_{t+1} .. a_{n-1} from[t]
[[gnu::noinline]] inline void decay_to_end(const ChannelDecay& decays, Panels from,
                                           std::int64_t width, Panels to) {
  const Panels of_tokens = decays.decay;
  for (std::int64_t i = 0; i < width; i += kLanes) {
    const float* const decay = of_tokens.at(0, i);
    F32 to_end = broadcast(1.0F);
#pragma GCC unroll 4
    for (std::int64_t t = kChannelChunk - 1; t >= 0; --t) {
      store(to.at(t, i), load(from.at(t, i)) * to_end);
      to_end *= load(decay + t * kPanelWidth);
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::backward
