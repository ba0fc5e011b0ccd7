#include "stream.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>

namespace attune_torch {

attune_device device_of(const torch::stable::Tensor& tensor) {
  if (tensor.is_cpu()) return {ATTUNE_CPU, 0};
  if (tensor.is_cuda()) return {ATTUNE_CUDA, tensor.get_device_index()};
  throw std::runtime_error("attune: tensors on the CPU or a CUDA device are expected");
}

namespace {

using CurrentStream = std::int32_t (*)(std::int32_t device, void** stream);

/// torch's own function is in a library that builds of torch for the CPU lack, so that this one
/// must not be linked to it. Where there is a CUDA tensor, that library is loaded.
CurrentStream find_current_stream() {
  void* const cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  void* const function =
      cuda == nullptr ? nullptr : dlsym(cuda, "aoti_torch_get_current_cuda_stream");
  return reinterpret_cast<CurrentStream>(function);
}

}  // namespace

void* current_stream(const torch::stable::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  static const CurrentStream ask = find_current_stream();
  void* stream = nullptr;
  if (ask == nullptr || ask(tensor.get_device_index(), &stream) != 0) {
    throw std::runtime_error("attune: torch does not tell the current CUDA stream");
  }
  return stream;
}

}  // namespace attune_torch
