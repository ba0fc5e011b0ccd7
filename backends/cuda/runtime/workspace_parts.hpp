// Dividing a kernel's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune::cuda {

/// Hands out parts of a block of memory, or only counts their bytes where there is none.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(std::byte* memory) : memory_(memory) {}
  template <class T = void>
  T* take(std::int64_t bytes) {
    constexpr std::int64_t kAlignment = 256;
    std::byte* const part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(part);
  }
  std::size_t used() const { return static_cast<std::size_t>(used_); }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

}  // namespace attune::cuda
