// The kernels of this folder.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.decode": recurrent_decode, all of it.
std::unique_ptr<const ErasedKernel> make_decode();

}  // namespace attune::cuda
