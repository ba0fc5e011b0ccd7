// Which tile of a state a block of the decode kernels takes.
#pragma once

#include <attune/core/device.hpp>

#include "cuda/decode/decode.hpp"

namespace attune::cuda::decode {

/// Columns of a thread side by side, where states' rows are vectors.
int thread_columns(const ops::RecurrentDecodeProblem& problem);

/// Of shared memory, that the kernel of any step needs.
int step_bytes(const ops::RecurrentDecodeProblem& problem, DecodeConfig config);
/// Of shared memory, that products on tensor cores need.
int product_bytes(const ops::RecurrentDecodeProblem& problem, const DecodeConfig& config);

/// Many threads that hold little each, whose states make room in the L2 cache for what follows.
DecodeConfig small_tile(const ops::RecurrentDecodeProblem& problem, const DeviceInfo& device,
                        int max_warps_v);
/// Fewer threads that hold more each, in longer rows.
DecodeConfig large_tile(const ops::RecurrentDecodeProblem& problem, const DeviceInfo& device,
                        int max_warps_v);
/// The tile of the kernel of any step. All of a row's tokens have their place in shared memory: a
/// block takes less of K where that is not enough.
DecodeConfig step_tile(const ops::RecurrentDecodeProblem& problem, const DeviceInfo& device,
                       int max_warps_v);
/// The tile of products on tensor cores: all of K, where that has room in a block.
DecodeConfig product_tile(const ops::RecurrentDecodeProblem& problem, const DeviceInfo& device,
                          DecodeConfig config, int max_warps_v);

/// The one that is expected to be the fastest.
DecodeConfig best_tile(const ops::RecurrentDecodeProblem& problem, const DeviceInfo& device);
/// The same where the device is not known: none that some would not take.
DecodeConfig config_of_any_gpu(const ops::RecurrentDecodeProblem& problem);

}  // namespace attune::cuda::decode
