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

/// A function of a library that torch has loaded, which may lack it: so this one must not be linked to
/// it. Null where there is none.
template <class Function>
Function find(const char* library, const char* name) {
  void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function>(loaded == nullptr ? nullptr : dlsym(loaded, name));
}

}  // namespace

void* current_stream(const torch::stable::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  using CurrentStream = std::int32_t (*)(std::int32_t device, void** stream);
  static const auto ask =  // builds of torch for the CPU have no such library
      find<CurrentStream>("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream");
  void* stream = nullptr;
  if (ask == nullptr || ask(tensor.get_device_index(), &stream) != 0) {
    throw std::runtime_error("attune: torch does not tell the current CUDA stream");
  }
  return stream;
}

std::string last_failure() {
  using What = const char* (*)();
  static const auto ask =
      find<What>("libtorch_cpu.so", "torch_exception_get_what_without_backtrace");
  const char* const what = ask == nullptr ? nullptr : ask();
  return what == nullptr ? "" : what;
}

}  // namespace attune_torch
