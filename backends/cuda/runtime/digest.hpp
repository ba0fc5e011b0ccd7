// Digests of arrays in a GPU's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include <attune/core/in_place.hpp>

namespace attune::cuda {

/// An array and what is found of it.
struct DigestedArray {
  DigestedArray() = default;
  explicit DigestedArray(const ConstTensorView& view);

  const void* data = nullptr;
  std::int64_t count = 0;
  int element_bytes = 1;
  int rank = 1;  // >= 1
  std::int64_t shape[Extents::kMaxRank] = {};
  std::int64_t strides[Extents::kMaxRank] = {};
  std::uint64_t exponent = 0;  // an element with all of these bits is not finite; 0: integers
  Digest digest;
};

/// Completes the digests of `there`, a copy of `arrays` in the current device's memory.
void launch_digests(std::span<const DigestedArray> arrays, DigestedArray* there,
                    cudaStream_t stream);

}  // namespace attune::cuda
