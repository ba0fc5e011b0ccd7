// The chunked kernel of recurrent attention for Hopper's tensor cores.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.chunk_wgmma": scalar decays, 16-bit q, k, v and o.
std::unique_ptr<const ErasedKernel> make_chunk_wgmma();

}  // namespace attune::cuda
