// The chunked backward pass with a decay for every channel, on tensor cores of sm_90a.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.gla.backward".
std::unique_ptr<const ErasedKernel> make_gla_backward();

}  // namespace attune::cuda
