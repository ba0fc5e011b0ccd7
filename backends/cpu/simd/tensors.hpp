// A caller's tensors as kernels see them: raw pointers and strides, no behaviour.
//
// Strides are in elements and may be anything, zero and negative included; the last dimension of a
// token tensor is contiguous. Pointers are borrowed. A null pointer means that the tensor is not
// given (or is empty).
#pragma once

#include <cstdint>

#include "cpu/simd/storage_type.hpp"

namespace attune::cpu {

/// [B, T, heads, width], or [B, T, heads] when it has one value per head.
template <class Pointer>
struct TokenTensor {
  Pointer data = nullptr;
  StorageType type = StorageType::kF32;
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

/// [N, H, K, V] in fp32.
template <class Pointer>
struct StateTensor {
  Pointer data = nullptr;
  std::int64_t sequence_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

}  // namespace attune::cpu
