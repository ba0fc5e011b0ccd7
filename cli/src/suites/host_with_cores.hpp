// The host with fewer cores than it has.
#pragma once

#include <attune/core/device.hpp>

namespace attune::cli {

/// What a process that may use no more than `cores` of the host's cores would find: kernels choose
/// their configs, and databases are asked, for as many. Threads run where they like.
class HostWithCores final : public Device {
 public:
  explicit HostWithCores(int cores) : info_(read_cpu_info(cores)) {}

  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override {
    return cpu_device().allocate(bytes, stream);
  }
  void deallocate(void* pointer, void* stream) const noexcept override {
    cpu_device().deallocate(pointer, stream);
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    cpu_device().copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    cpu_device().copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    cpu_device().fill(to, value, bytes, stream);
  }
  void synchronize(void* stream) const override { cpu_device().synchronize(stream); }
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    return cpu_device().time_us(launch, repeats);
  }

 private:
  DeviceInfo info_;
};

}  // namespace attune::cli
