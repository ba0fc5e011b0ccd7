// The key side of a pass: what every column of the state needs to know about the next few tokens.
//
// With a_t[i] the decay of row i at token t, S_0 the state before the pass and tokens 0 .. n-1 in
// it,
//
//   o_t          = (scale q_t * a_0 .. a_t) S_0 + sum_{s <= t} scores[t][s] v_s
//   S_{n-1}      = (a_0 .. a_{n-1}) S_0 + sum_s (k_s * a_{s+1} .. a_{n-1}) v_s
//   scores[t][s] = scale * sum_i q_t[i] k_s[i] a_{s+1}[i] .. a_t[i]
//
// which reads and writes the state once for n tokens and decays it once. Decays are only ever
// multiplied, never divided and never formed from differences of sums, so a zero (a gate of -inf)
// is exact.
#pragma once

#include "decays.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// Calls run.operator()<n>() for the n of kTokensPerPass that `tokens` is.
template <class Run, int kFirst = 0>
[[gnu::always_inline]] inline void with_tokens_per_pass(int tokens, const Run& run) {
  constexpr int kTokens = kTokensPerPass[kFirst];
  if (tokens == kTokens) return run.template operator()<kTokens>();
  if constexpr (kFirst + 1 < sizeof(kTokensPerPass) / sizeof(int)) {
    with_tokens_per_pass<Run, kFirst + 1>(tokens, run);
  }
}

struct KeySide {
  InputRows q, k, g, gk;
  float gamma = 0.0F;
  float scale = 1.0F;
  bool has_decay = false;
  Balance balance;
  std::int64_t rows = 0;    // K
  float* q_rows = nullptr;  // [kTokens, K padded], for rows that cannot be read where they lie
  float* k_rows = nullptr;  // as q_rows
  Decays decays;            // its width is one vector when all rows decay alike (g, g_gamma)
};

constexpr int pair_count(int tokens) { return tokens * (tokens + 1) / 2; }
constexpr int pair_index(int t, int s) { return pair_count(t) + s; }

// For each vector of rows: kTokens of decayed q, kTokens of decayed k and the decay of the state.
constexpr int coefficient_vectors(int tokens) { return 2 * tokens + 1; }

template <int kTokens>
[[gnu::always_inline]] inline LogDecays<kTokens> key_logs(const KeySide& side, std::int64_t token) {
  const F32Rows<float> buffer{side.decays.of_token, side.decays.width};
  LogDecays<kTokens> logs;
  logs.gates = {buffer.data, buffer.step};
  if (side.gk.data) logs.gates = widened_rows<kTokens>(side.gk, token, side.rows, buffer);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    float offset = side.gamma + (side.g.data ? widened_scalar(side.g, token + t) : 0.0F);
    offset += side.balance.of(token + t);
    logs.set_offset(t, offset);
    if (!side.gk.data) {
      store(buffer.row(t), F32{});
    } else if (side.balance.gv.data) {
      // Channels that do not exist must not grow: inf there would make NaN of their zeros.
      const float no_growth = offset > 0.0F ? -offset : 0.0F;
      for (std::int64_t i = side.rows; i < buffer.step; ++i) buffer.row(t)[i] = no_growth;
    }
  }
  return logs;
}

enum class RowDecay { kNone, kShared, kPerRow };

// What prepare_keys() makes besides the coefficients of k and of the state's decay.
struct Prepare {
  bool reads = true;  // coefficients of q
  bool scores = true;
  bool keep_decays = false;  // decays stay in side.decays
};

template <int kTokens, bool kKeepDecays>
[[gnu::always_inline]] inline VectorDecays<kTokens> decays_of_rows(const LogDecays<kTokens>& logs,
                                                                   std::int64_t row,
                                                                   const Decays& kept) {
  const VectorDecays<kTokens> decays = exponentiate<kTokens>(logs, row, kept.carry + row);
  if constexpr (kKeepDecays) store_decays<kTokens>(decays, row, kept);
  return decays;
}

template <int kTokens, RowDecay kRowDecay, Prepare kPrepare>
[[gnu::always_inline]] inline void weigh_keys(const KeySide& side,
                                              const F32Rows<const float>& q_rows,
                                              const F32Rows<const float>& k_rows,
                                              const LogDecays<kTokens>& logs, float* coefficients,
                                              float* scores) {
  constexpr bool kDecay = kRowDecay != RowDecay::kNone;
  constexpr bool kUsesReads = kPrepare.reads || kPrepare.scores;
  const Decays kept = side.decays;
  const F32 scale = broadcast(side.scale);
  const std::int64_t rows = side.rows;
  VectorDecays<kTokens> decays;
  if constexpr (kRowDecay == RowDecay::kShared) {
    decays = decays_of_rows<kTokens, kPrepare.keep_decays>(logs, 0, kept);
  }
  F32 products[pair_count(kTokens)];
#pragma GCC unroll 64
  for (F32& product : products) product = F32{};
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    if constexpr (kRowDecay == RowDecay::kPerRow) {
      decays = decays_of_rows<kTokens, kPrepare.keep_decays>(logs, row, kept);
    }
    F32 written[kTokens];
    F32 from_start{};
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const F32 q = kUsesReads ? load(q_rows.row(t) + row) * scale : F32{};
      const F32 decay = kDecay ? decays.of_token[t] : F32{};
#pragma GCC unroll 8
      for (int s = 0; s < t; ++s) {
        if constexpr (kDecay) written[s] *= decay;
        if constexpr (kPrepare.scores) {
          products[pair_index(t, s)] = fma(q, written[s], products[pair_index(t, s)]);
        }
      }
      written[t] = load(k_rows.row(t) + row);
      if constexpr (kPrepare.scores) {
        products[pair_index(t, t)] = fma(q, written[t], products[pair_index(t, t)]);
      }
      if constexpr (!kPrepare.reads) continue;
      if constexpr (kDecay) {
        from_start = t == kTokens - 1 ? decays.total : t == 0 ? decay : from_start * decay;
      }
      store(coefficients + t * kLanes, kDecay ? q * from_start : q);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) store(coefficients + (kTokens + t) * kLanes, written[t]);
    if constexpr (kDecay) store(coefficients + 2 * kTokens * kLanes, decays.total);
    coefficients += coefficient_vectors(kTokens) * kLanes;
  }
  if constexpr (kPrepare.scores) sum_lanes<pair_count(kTokens)>(products, scores);
}

template <int kTokens, Prepare kPrepare = Prepare{}>
[[gnu::noinline]] void prepare_keys(const KeySide& side, std::int64_t token, float* coefficients,
                                    float* scores) {
  const std::int64_t padded_rows = round_up_to_lanes(side.rows);
  const F32Rows<const float> q =
      widened_rows<kTokens>(side.q, token, side.rows, {side.q_rows, padded_rows});
  const F32Rows<const float> k =
      widened_rows<kTokens>(side.k, token, side.rows, {side.k_rows, padded_rows});
  if (!side.has_decay) {
    return weigh_keys<kTokens, RowDecay::kNone, kPrepare>(side, q, k, {}, coefficients, scores);
  }
  const LogDecays<kTokens> logs = key_logs<kTokens>(side, token);
  if (side.decays.width > kLanes) {
    weigh_keys<kTokens, RowDecay::kPerRow, kPrepare>(side, q, k, logs, coefficients, scores);
  } else {
    weigh_keys<kTokens, RowDecay::kShared, kPrepare>(side, q, k, logs, coefficients, scores);
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
