// Linear attention with a decay for every channel on tensor cores, for every GPU from sm_80 on.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.gla_mma": recurrent_attention in f16 and bf16 with gk, gv or both, with or without g and
/// gamma.
std::unique_ptr<const ErasedKernel> make_gla_mma();

}  // namespace attune::cuda
