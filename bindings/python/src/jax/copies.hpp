// Copies within a device, for states that XLA does not let come out where they went in: slices of
// arrays that a compiled loop goes over, on a GPU.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <attune/attune.h>

namespace attune_jax {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// cuMemcpyDtoDAsync() of CUDA's driver, which this module is not linked to.
using DeviceCopy = int (*)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);

/// The driver's, or null where there is none.
inline DeviceCopy device_copy() {
  static const DeviceCopy found = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* const symbol = driver == nullptr ? nullptr : dlsym(driver, "cuMemcpyDtoDAsync_v2");
    return reinterpret_cast<DeviceCopy>(symbol);
  }();
  return found;
}

/// Queues a copy on the device's stream, or makes it on a CPU. False where that cannot be done.
inline bool queue(const Copy& copy, attune_device device, void* stream) {
  if (copy.bytes == 0) return true;
  if (device.type == ATTUNE_CPU) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  }
  const auto address_of = [](const void* pointer) -> std::uint64_t {
    return reinterpret_cast<std::uintptr_t>(pointer);
  };
  const DeviceCopy run = device_copy();
  return run != nullptr && run(address_of(copy.to), address_of(copy.from), copy.bytes, stream) == 0;
}

}  // namespace attune_jax
