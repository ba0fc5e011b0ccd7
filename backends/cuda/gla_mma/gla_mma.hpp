// Linear attention with a decay for every channel on tensor cores.
#pragma once

#include <memory>

#include <attune/core/kernel.hpp>

namespace attune::cuda {

/// "cuda.gla_mma": recurrent_attention in f16 and bf16 with gk, gv or both, with or without g and
/// gamma, on every GPU from sm_80 on.
std::unique_ptr<const ErasedKernel> make_gla_mma();

/// "cuda.gla_wgmma": the same without gv, on sm_90a.
std::unique_ptr<const ErasedKernel> make_gla_wgmma();

}  // namespace attune::cuda
