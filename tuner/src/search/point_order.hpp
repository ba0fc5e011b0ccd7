// The points of a space in an order of chance, without a list of them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace attune::tuning {

/// A permutation of 0 .. size - 1: four rounds of a Feistel network over the fewest bits that hold
/// them, walked along its cycle while it leaves the range (Black and Rogaway, "Ciphers with
/// Arbitrary Finite Domains", 2002).
class PointOrder {
 public:
  PointOrder(std::uint64_t size, std::uint64_t seed)
      : size_(size),
        half_bits_((static_cast<unsigned>(std::bit_width(size > 1 ? size - 1 : 1)) + 1) / 2) {
    for (std::uint64_t& key : keys_) key = seed = mixed(seed);
  }

  std::uint64_t size() const { return size_; }

  /// The number that comes at `place`, below size().
  std::uint64_t at(std::uint64_t place) const {
    do {
      place = permuted(place);
    } while (place >= size_);
    return place;
  }

 private:
  /// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  std::uint64_t permuted(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mixed(right ^ key) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  std::uint64_t size_;
  unsigned half_bits_;
  std::array<std::uint64_t, 4> keys_{};
};

}  // namespace attune::tuning
