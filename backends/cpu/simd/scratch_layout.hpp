// Offsets of arrays in a thread's scratch memory.
#pragma once

#include <cstdint>

namespace attune::cpu::simd {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Lays arrays of floats out one behind the other, each from a cache line of its own on.
class ScratchLayout {
 public:
  /// Where `floats` of them begin, in floats.
  std::int64_t reserve(std::int64_t floats) {
    const std::int64_t offset = size_;
    size_ += round_up(floats, kCacheLineFloats);
    return offset;
  }
  std::int64_t size() const { return size_; }

 private:
  static constexpr std::int64_t kCacheLineFloats = 16;
  std::int64_t size_ = 0;
};

}  // namespace attune::cpu::simd
