// Where a tensor is, and the stream that torch queues its work on.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <attune/attune.h>

namespace attune_torch {

/// Throws std::runtime_error for a device that attune has no kernels for.
attune_device device_of(const torch::stable::Tensor& tensor);

/// The current stream of the tensor's device; null for a CPU.
void* current_stream(const torch::stable::Tensor& tensor);

}  // namespace attune_torch
