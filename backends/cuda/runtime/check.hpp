// From CUDA's status codes to exceptions.
#pragma once

#include <cuda_runtime_api.h>

namespace attune::cuda {

/// Whether the code means that the process's context on the device is lost.
bool is_device_fault(cudaError_t status) noexcept;

/// Throws DeviceFault or CudaError unless `status` is cudaSuccess. The defaults name the call site.
void check(cudaError_t status, const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// The same for a kernel launch. A kernel runs after its launch has returned, so a fault met here
/// is of work queued before it, and the message says so.
void check_launch(cudaError_t status, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

}  // namespace attune::cuda
