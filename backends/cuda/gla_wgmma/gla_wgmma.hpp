// The launch of cuda.gla_wgmma: the gate gk or gv, with or without g and gamma, on sm_90a.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/gla_wgmma/gla_wgmma_config.hpp"

namespace attune::cuda::gla_wgmma {

/// Queues everything: with more than one segment, what finds their states first. T is __half or
/// __nv_bfloat16.
template <class T, channels::Gated kGated>
void launch_gla_wgmma(const channels::Params& params, const GlaWgmmaConfig& config,
                      cudaStream_t stream);

}  // namespace attune::cuda::gla_wgmma
