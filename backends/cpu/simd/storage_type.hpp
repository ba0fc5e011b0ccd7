// How a tensor's elements are stored, for kernels that compute in fp32.
//
// Apart from core's DType because a translation unit compiled for one instruction set must not
// bring in inline functions that the rest of the program shares: the linker keeps one copy of each,
// possibly that one.
#pragma once

#include <cstdint>

namespace attune::cpu {

enum class StorageType : std::uint8_t { kF32, kF16, kBF16 };

[[gnu::always_inline]] constexpr std::int64_t size_of(StorageType type) {
  return type == StorageType::kF32 ? 4 : 2;
}

}  // namespace attune::cpu
