// How large the current device is, for grids that are made for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/runtime/check.hpp"

namespace attune::cuda {

inline std::int64_t multiprocessor_count() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace attune::cuda
