#include "cuda/runtime/check.hpp"

#include <string_view>

#include <attune/backends/cuda.hpp>

namespace attune::cuda {
namespace {

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

[[noreturn]] void fail(cudaError_t status, std::string_view what, const char* file, int line) {
  const std::string message = str("CUDA: ", what, cudaGetErrorString(status), " (",
                                  cudaGetErrorName(status), ", ", file_name(file), ":", line, ")");
  if (is_device_fault(status)) throw DeviceFault(message);
  throw CudaError(status, message);
}

}  // namespace

bool is_device_fault(cudaError_t status) noexcept {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorCudartUnloading:
      return true;
    default:
      return false;
  }
}

void check(cudaError_t status, const char* file, int line) {
  if (status != cudaSuccess) fail(status, "", file, line);
}

void check_launch(cudaError_t status, const char* file, int line) {
  if (status == cudaSuccess) return;
  fail(status, is_device_fault(status) ? "work queued earlier on this device failed: " : "", file,
       line);
}

}  // namespace attune::cuda
