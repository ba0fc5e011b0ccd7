// The value side of a pass: a few tokens applied to a block of the state's columns.
#pragma once

#include "pass_keys.inl.hpp"
#include "prefetch.inl.hpp"
#include "rows.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE {

// Elements of a state in 16 bits; rounded to nearest when they are stored.
struct StoredBf16 {
  std::uint16_t bits;
};
struct StoredF16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline F32 load_state(const float* source) { return load(source); }
[[gnu::always_inline]] inline F32 load_state(const StoredBf16* source) {
  return widen(StorageType::kBF16, reinterpret_cast<const char*>(source));
}
[[gnu::always_inline]] inline F32 load_state(const StoredF16* source) {
  return widen(StorageType::kF16, reinterpret_cast<const char*>(source));
}

[[gnu::always_inline]] inline void store_state(float* target, F32 x) { store(target, x); }
[[gnu::always_inline]] inline void store_state(StoredBf16* target, F32 x) {
  narrow(StorageType::kBF16, x, reinterpret_cast<char*>(target));
}
[[gnu::always_inline]] inline void store_state(StoredF16* target, F32 x) {
  narrow(StorageType::kF16, x, reinterpret_cast<char*>(target));
}

// Rows of the state for one block of columns. Source and target differ on the first and the last
// pass only, when the caller's state is read or written where it lies.
template <class Element>
struct StateRowsOf {
  std::int64_t rows = 0;            // K
  const Element* source = nullptr;  // null for a state of zeros, as run_pass() allows
  std::int64_t source_step = 0;     // in elements
  Element* target = nullptr;        // null for one that nobody will read, likewise
  std::int64_t target_step = 0;
  // How far in front of the rows a pass of one token fetches the source, in elements. Such a pass
  // waits for memory more than it computes.
  std::int64_t ahead = 0;
  // Write the target past the caches; it is fp32 and its rows begin at whole vectors then.
  bool stream = false;
};
using StateRows = StateRowsOf<float>;

// The address may lie outside of the state, where fetching does no harm but a pointer may not
// point.
template <class Element>
[[gnu::always_inline]] inline void fetch(const Element* from, std::int64_t ahead) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead) * sizeof(Element);
  __builtin_prefetch(reinterpret_cast<const void*>(address), 1);
}

// What the value side of a pass works with, a row for each token.
struct PassRows {
  F32Rows<const float> v;
  F32Rows<float> o;
  F32Rows<const float> decay;  // per column, null without gv
  const float* total_decay = nullptr;
  const float* coefficients = nullptr;
  const float* scores = nullptr;
  bool row_decay = false;  // whether rows of the state decay in this pass
};

template <int kTokens, int kVectors>
using Block = F32[kTokens][kVectors];

// out += sum_{s <= t} scores[t][s] v[s]
template <int kTokens, int kVectors>
[[gnu::always_inline]] inline void add_scored(const float* scores,
                                              const Block<kTokens, kVectors>& v, int t, F32* out) {
#pragma GCC unroll 8
  for (int s = 0; s <= t; ++s) {
    const F32 weight = in_register(broadcast(scores[pair_index(t, s)]));
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) out[j] = fma(weight, v[s][j], out[j]);
  }
}

// A decay per column commutes with the sum over rows, so it stays outside the loop over rows except
// for the decay of the state itself. Leaves in `v` what each token has become by the end of the
// pass, in `scored` what the tokens of this pass give to each output.
template <int kTokens, int kVectors>
[[gnu::always_inline]] inline void decay_values(const PassRows& pass, std::int64_t column,
                                                Block<kTokens, kVectors>& v,
                                                Block<kTokens, kVectors>& scored) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const F32 decay = load(pass.decay.row(t) + column + j * kLanes);
#pragma GCC unroll 8
      for (int s = 0; s < t; ++s) v[s][j] *= decay;
      scored[t][j] = F32{};
    }
    add_scored<kTokens, kVectors>(pass.scores, v, t, scored[t]);
  }
}

// Rows handled together. Their chains of additions are independent and, interleaved with the
// outputs', just long enough to hide the latency of one another; that takes some 28 registers.
template <int kVectors>
constexpr int rows_together() {
#if defined(__AVX512F__) || defined(__aarch64__)
  return kVectors <= 2 ? 2 : 1;
#else
  return 1;
#endif
}

// What a pass does with the state. kUpdate neither fetches rows nor streams.
enum class Access { kUpdate, kUpdateAndMore, kRead, kWrite };

// kRows rows of the loop below. `c` points at the coefficients of the first one.
template <int kTokens, int kVectors, int kRows, bool kRowDecay, bool kColumnDecay, Access kAccess,
          class Element>
[[gnu::always_inline]] inline void pass_over_few_rows(const float* c, const Element* source,
                                                      std::int64_t source_step, Element* target,
                                                      std::int64_t target_step,
                                                      const Block<kTokens, kVectors>& v,
                                                      const F32* column_decay, std::int64_t ahead,
                                                      bool stream, Block<kTokens, kVectors>& o) {
  F32 before[kRows][kVectors];
  F32 after[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    F32 decay{};
    if constexpr (kRowDecay) decay = in_register(broadcast(c[2 * kTokens * kLanes + r]));
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      if constexpr (kAccess == Access::kWrite) {
        after[r][j] = F32{};
        continue;
      }
      if constexpr (kTokens == 1) fetch(source + r * source_step + j * kLanes, ahead);
      before[r][j] = load_state(source + r * source_step + j * kLanes);
      after[r][j] = before[r][j];
      // Rounded here in every instance, or the compiler contracts some into the additions and some
      // not, and results would depend on the width of the block.
      if constexpr (kRowDecay) after[r][j] = in_register(after[r][j] * decay);
      if constexpr (kColumnDecay) after[r][j] = in_register(after[r][j] * column_decay[j]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows && kAccess != Access::kWrite; ++r) {
      const F32 q = in_register(broadcast(c[t * kLanes + r]));
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) o[t][j] = fma(q, before[r][j], o[t][j]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows && kAccess != Access::kRead; ++r) {
      const F32 k = in_register(broadcast(c[(kTokens + t) * kLanes + r]));
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) after[r][j] = fma(k, v[t][j], after[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows && kAccess != Access::kRead; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      Element* const to = target + r * target_step + j * kLanes;
      if (stream) {
        stream_vector(after[r][j], reinterpret_cast<char*>(to));
      } else {
        store_state(to, after[r][j]);
      }
    }
  }
}

// The loop that costs: kTokens * kVectors fused multiply-adds per row for the outputs, as many for
// the state.
template <int kTokens, int kVectors, bool kRowDecay, bool kColumnDecay, Access kAccess,
          class Element>
[[gnu::always_inline]] inline void pass_over_rows(const StateRowsOf<Element>& state,
                                                  const float* coefficients,
                                                  const Block<kTokens, kVectors>& v,
                                                  const F32* column_decay, Prefetcher& prefetcher,
                                                  std::int64_t prefetch_rows,
                                                  Block<kTokens, kVectors>& o) {
  constexpr int kRows = rows_together<kVectors>();
  const Element* source = state.source;
  Element* target = state.target;
  const std::int64_t source_step = state.source_step;
  const std::int64_t target_step = state.target_step;
  const bool stream = kAccess != Access::kUpdate && state.stream;
  for (std::int64_t left = state.rows; left > 0; left -= kLanes) {
    if constexpr (kAccess != Access::kUpdate) prefetcher.fetch_rows<2>(prefetch_rows);
    const float* c = coefficients;
    int count = left < kLanes ? static_cast<int>(left) : kLanes;
    for (; count >= kRows; count -= kRows) {
      pass_over_few_rows<kTokens, kVectors, kRows, kRowDecay, kColumnDecay, kAccess>(
          c, source, source_step, target, target_step, v, column_decay, state.ahead, stream, o);
      c += kRows;
      source += kRows * source_step;
      target += kRows * target_step;
    }
    for (; count > 0; --count) {
      pass_over_few_rows<kTokens, kVectors, 1, kRowDecay, kColumnDecay, kAccess>(
          c, source, source_step, target, target_step, v, column_decay, state.ahead, stream, o);
      ++c;
      source += source_step;
      target += target_step;
    }
    coefficients += coefficient_vectors(kTokens) * kLanes;
  }
}

// Applies the tokens of a pass to kVectors vectors of columns, from `column` of the tile on.
template <int kTokens, int kVectors, bool kRowDecay, bool kColumnDecay, Access kAccess,
          class Element>
[[gnu::noinline]] void pass_over_block(const PassRows& pass, std::int64_t column,
                                       const StateRowsOf<Element>& state, Prefetcher& prefetcher,
                                       std::int64_t prefetch_rows) {
  Block<kTokens, kVectors> v;
  Block<kTokens, kVectors> o;
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      v[t][j] = load(pass.v.row(t) + column + j * kLanes);
      o[t][j] = F32{};
    }
  }
  Block<kTokens, kVectors> scored;
  F32 total_decay[kVectors];
  if constexpr (kColumnDecay) {
    decay_values<kTokens, kVectors>(pass, column, v, scored);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      total_decay[j] = load(pass.total_decay + column + j * kLanes);
  }
  pass_over_rows<kTokens, kVectors, kRowDecay, kColumnDecay, kAccess>(
      state, pass.coefficients, v, total_decay, prefetcher, prefetch_rows, o);

  F32 from_start[kVectors];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (kColumnDecay) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const F32 decay = load(pass.decay.row(t) + column + j * kLanes);
        from_start[j] = t == kTokens - 1 ? total_decay[j] : t == 0 ? decay : from_start[j] * decay;
        o[t][j] = fma(o[t][j], from_start[j], scored[t][j]);
      }
    } else {
      // Not in front of the rows: their sums would wait for those over the lanes of products.
      add_scored<kTokens, kVectors>(pass.scores, v, t, o[t]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) store(pass.o.row(t) + column + j * kLanes, o[t][j]);
  }
}

// The same, decaying what decays. Where nothing does and there are several tokens, the state may be
// zero or dropped: half of the arithmetic. The loop without a line about anything else is 3 %
// faster; called through a pointer, each block would take 12 cycles more.
template <int kTokens, int kVectors, class Element>
[[gnu::always_inline]] inline void run_pass(const PassRows& pass, std::int64_t column,
                                            const StateRowsOf<Element>& state,
                                            Prefetcher& prefetcher, std::int64_t prefetch_rows) {
  const auto run = [&]<bool kRowDecay, bool kColumnDecay, Access kAccess>() {
    pass_over_block<kTokens, kVectors, kRowDecay, kColumnDecay, kAccess>(pass, column, state,
                                                                         prefetcher, prefetch_rows);
  };
  using enum Access;
  if (pass.decay.data) {
    if (pass.row_decay) return run.template operator()<true, true, kUpdateAndMore>();
    return run.template operator()<false, true, kUpdateAndMore>();
  }
  if (pass.row_decay) return run.template operator()<true, false, kUpdateAndMore>();
  if constexpr (kTokens > 1) {
    if (!state.source) return run.template operator()<false, false, kWrite>();
    if (!state.target) return run.template operator()<false, false, kRead>();
    if (prefetch_rows == 0 && !state.stream)
      return run.template operator()<false, false, kUpdate>();
  }
  run.template operator()<false, false, kUpdateAndMore>();
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE
