// The CUDA backend: devices "gpu:0", "gpu:1", ... and the kernels of platform "cuda".
//
// A stream of a gpu is a cudaStream_t, passed as void*; null is the legacy default stream. Tensors
// are in device memory of the gpu their `device` names, however it was allocated. A call makes that
// gpu current for its own duration only.
#pragma once

#include <string>

#include <attune/core/error.hpp>
#include <attune/core/registry.hpp>

namespace attune::cuda {

/// A call of the CUDA runtime failed. A failure that leaves the device unusable is a DeviceFault.
class CudaError : public ExecutionError {
 public:
  CudaError(int code, const std::string& message) : ExecutionError(message), code_(code) {}
  int code() const { return code_; }  // a cudaError_t

 private:
  int code_;
};

/// Why there are no gpus: "no CUDA driver", "no CUDA-capable device is detected", ...; "" when
/// there are some.
std::string unavailable_reason();

/// Adds a device for each GPU of compute capability 8.0 or newer; none where there is no driver.
/// Makes no CUDA context.
void register_devices(Registry& registry);

void register_kernels(Registry& registry);

}  // namespace attune::cuda
