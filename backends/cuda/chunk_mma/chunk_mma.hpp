// Scalar-decay linear attention on tensor cores, for every GPU from sm_80 on.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.chunk_mma": recurrent_attention in f16 and bf16, gates g and gamma.
std::unique_ptr<const ErasedKernel> make_chunk_mma();

}  // namespace attune::cuda
