// The host as a Device: plain memory, no streams, the steady clock.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include <attune/core/device.hpp>

namespace attune {

bool DeviceInfo::has(std::string_view feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

class CpuDevice final : public Device {
 public:
  const DeviceInfo& info() const noexcept override { return info_; }

  void* allocate(std::size_t bytes, void* /*stream*/) const override {
    const std::size_t rounded =
        (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded < bytes) throw std::bad_alloc();
    void* pointer = std::aligned_alloc(kAlignment, rounded);
    if (pointer == nullptr) throw std::bad_alloc();
    return pointer;
  }
  void deallocate(void* pointer, void* /*stream*/) const noexcept override { std::free(pointer); }

  void copy_to_device(void* to, const void* from, std::size_t bytes,
                      void* /*stream*/) const override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes,
                    void* /*stream*/) const override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* /*stream*/) const override {
    if (bytes != 0) std::memset(to, std::to_integer<int>(value), bytes);
  }
  void synchronize(void* /*stream*/) const override {}

  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    for (int repeat = 0; repeat < repeats; ++repeat) launch(nullptr, repeat);
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

 private:
  DeviceInfo info_ = read_cpu_info();
};

}  // namespace

const Device& cpu_device() {
  // Never destroyed: tensors with static storage may outlive every other object.
  static const auto* const device = new CpuDevice();
  return *device;
}

}  // namespace attune
