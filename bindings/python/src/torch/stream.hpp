// What is asked of torch beside its tensors: where one is, the stream that its work is queued on, and
// why a call failed.
#pragma once

#include <string>

#include <torch/csrc/stable/tensor.h>

#include <attune/attune.h>

namespace attune_torch {

/// Throws std::runtime_error for a device that attune has no kernels for.
attune_device device_of(const torch::stable::Tensor& tensor);

/// The current stream of the tensor's device; null for a CPU.
void* current_stream(const torch::stable::Tensor& tensor);

/// What torch says of its call that failed last on this thread; empty before 2.13, which prints it.
std::string last_failure();

}  // namespace attune_torch
