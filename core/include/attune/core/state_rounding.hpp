// Rounding of states that are stored in 16 bits.
//
// To nearest, ties to even (dtype.hpp), a state forgets what it is given in steps of less than half
// a unit in the last place: one that decays slowly stops short of where it should go. Stochastic
// rounding takes the upper neighbour with the probability that makes the mean right, so that such
// steps count on average (Croci et al., "Stochastic rounding: implementation, error analysis and
// applications", Royal Society Open Science 9, 2022).
//
// Its random bits come from a generator that counts rather than remembers. An element's counter is
// its position [s, h, i, j] in a pool of states [S, H, K, V]: the same seed gives the same bits on
// every device, whatever the strides, the config and the number of threads. A value that needs no
// rounding is never changed. Use another seed in each call: with one seed an element would be
// rounded by the same random number every time.
//
// The functions are templates over a word of 32 bits, std::uint32_t or a vector of such, and are
// inlined always: kernels that are compiled for several instruction sets share no code.
#pragma once

#include <cstdint>

namespace attune {

/// How states are rounded when they are stored.
struct StateRounding {
  enum class Kind : std::int32_t { kNearest, kStochastic };
  Kind kind = Kind::kNearest;
  std::uint64_t seed = 0;  // of kStochastic
};

/// `.state_rounding = stochastic(step)`
constexpr StateRounding stochastic(std::uint64_t seed) {
  return {StateRounding::Kind::kStochastic, seed};
}

namespace state_rounding {

/// What the random bits of a state's row depend on.
struct RowKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// Output function of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
[[gnu::always_inline]] constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// `row` is (s * H + h) * K + i for row [s, h, i, :] of a pool [S, H, K, V]. The keys are the
/// numbers of SplitMix64, begun at a mixed seed.
[[gnu::always_inline]] constexpr RowKey row_key(std::uint64_t seed, std::int64_t row) {
  const std::uint64_t counter = static_cast<std::uint64_t>(row) + 1;
  const std::uint64_t key = mixed(mixed(seed) + counter * 0x9e3779b97f4a7c15U);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}

/// 32 random bits of a column of the row: the rounds of MurmurHash3's finaliser, keyed.
template <class Word>
[[gnu::always_inline]] constexpr Word random_bits(const RowKey& key, Word column) {
  Word x = column * 0x9e3779b1U + key.first;
  x = (x ^ (x >> 16U)) * 0x85ebca6bU;
  x = (x ^ (x >> 13U)) + key.second;
  x = x * 0xc2b2ae35U;
  return x ^ (x >> 16U);
}

/// The bits of a bf16, in the lower half of the word, from those of a float: the upper neighbour
/// where `random`'s lower half is above what the float leaves to it. A NaN stays one.
template <class Word>
[[gnu::always_inline]] constexpr Word to_bf16(Word bits, Word random) {
  const Word magnitude = bits & 0x7fffffffU;
  const Word rounded = (bits + (random & 0xffffU)) >> 16U;
  const Word quiet_nan = (bits >> 16U) | 0x40U;
  return magnitude > 0x7f800000U ? quiet_nan : rounded;
}

/// `value` in each element of a word like `like`.
template <class Word>
[[gnu::always_inline]] constexpr Word all(const Word& like, std::uint32_t value) {
  return (like & 0U) + value;
}

/// The same for f16. Below 2^-14 its values are multiples of 2^-24.
template <class Word>
[[gnu::always_inline]] constexpr Word to_f16(Word bits, Word random) {
  const Word magnitude = bits & 0x7fffffffU;
  const Word least_normal = all(bits, 113U << 23U);
  const Word normal = (magnitude - (112U << 23U) + (random & 0x1fffU)) >> 13U;

  // fraction / 2^below is the value in units of 2^-24. What a shift of more than 31 bits leaves out
  // first is less than any random number tells apart.
  const Word fraction = (magnitude & 0x7fffffU) | 0x800000U;
  const Word most = all(bits, 31U);
  const Word below = magnitude < least_normal ? 126U - (magnitude >> 23U) : all(bits, 14U);
  const Word shift = below > most ? most : below;
  const Word extra = below - shift;
  const Word kept = extra > most ? all(bits, 0U) : fraction >> (extra & 31U);
  const Word subnormal = (kept + (random & ((all(bits, 1U) << shift) - 1U))) >> shift;

  const Word finite = magnitude < least_normal ? subnormal : normal;
  const Word special = magnitude > 0x7f800000U ? all(bits, 0x7e00U) : all(bits, 0x7c00U);
  return (magnitude >= 0x47800000U ? special : finite) | ((bits >> 16U) & 0x8000U);
}

}  // namespace state_rounding
}  // namespace attune
