// The launch of cuda.gla_mma: the gates gk, gv or both, with or without g and gamma, from sm_80 on.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/gla_mma/gla_mma_config.hpp"

namespace attune::cuda::gla_mma {

/// Queues everything: with more than one segment, what finds their states first. T is __half or
/// __nv_bfloat16.
template <class T, channels::Gated kGated>
void launch_gla_mma(const channels::Params& params, const GlaMmaConfig& config,
                    cudaStream_t stream);

}  // namespace attune::cuda::gla_mma
