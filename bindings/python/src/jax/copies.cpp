#include "copies.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace attune_jax {
namespace {

/// cuMemcpyDtoDAsync() of CUDA's driver, which this module is not linked to.
using DeviceCopy = int (*)(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream);

DeviceCopy device_copy() {
  static const DeviceCopy found = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* const symbol = driver == nullptr ? nullptr : dlsym(driver, "cuMemcpyDtoDAsync_v2");
    return reinterpret_cast<DeviceCopy>(symbol);
  }();
  return found;
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

bool queue(const Copy& copy, attune_device device, void* stream) {
  if (copy.bytes == 0) return true;
  if (device.type == ATTUNE_CPU) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  }
  const DeviceCopy run = device_copy();
  return run != nullptr && run(address_of(copy.to), address_of(copy.from), copy.bytes, stream) == 0;
}

}  // namespace attune_jax
