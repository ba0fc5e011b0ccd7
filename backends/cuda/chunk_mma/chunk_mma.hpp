// Scalar-decay linear attention on tensor cores, for every GPU from sm_80 on.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.chunk_mma": recurrent_attention with the gates g and gamma; f32 as pairs of bf16.
std::unique_ptr<const ErasedKernel> make_chunk_mma();

}  // namespace attune::cuda
