// The chunked backward pass on Hopper's tensor cores: recurrent_attention.backward with a decay per
// head, in bf16 and f16.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.chunk_wgmma.backward".
std::unique_ptr<const ErasedKernel> make_chunk_backward();

}  // namespace attune::cuda
