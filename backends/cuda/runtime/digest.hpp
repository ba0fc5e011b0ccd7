// Digests of arrays in a GPU's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <attune/core/in_place.hpp>

namespace attune::cuda {

/// Adds the elements of `view` to `digest`; both are in the current device's memory.
void launch_digest(const ConstTensorView& view, Digest* digest, cudaStream_t stream);

}  // namespace attune::cuda
