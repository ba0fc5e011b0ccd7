// Where arrays lie: in a thread's scratch memory, and in the workspace of a launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune::cpu::simd {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

inline constexpr std::size_t kCacheLineBytes = 64;  // alignment of a workspace and of its parts

/// The next `bytes` of a workspace that takes up `size` so far: where they begin, aligned.
inline std::size_t reserve_aligned(std::size_t& size, std::size_t bytes) {
  const std::size_t offset = size;
  size += (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  return offset;
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
  static constexpr std::int64_t kCacheLineFloats = kCacheLineBytes / sizeof(float);
  std::int64_t size_ = 0;
};

}  // namespace attune::cpu::simd
