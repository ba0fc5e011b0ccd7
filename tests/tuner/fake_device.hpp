// A device in host memory whose time is simulated: kernels say what a launch costs, and a clock
// moves by that, with the drift and noise that a test asks for.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <numbers>
#include <random>
#include <stdexcept>
#include <utility>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>

namespace attune::test {

/// What the fake device, its kernels and the tuner's clock share.
struct World {
  double now_us = 0;
  double launch_us = 0;  // of the kernel that ran last; the kernel sets it
  double noise = 0;      // standard deviation of a sample, relative
  double outliers = 0;   // how often a sample takes three times as long
  double drift = 0;      // amplitude of a slow wave that moves all samples alike, relative
  std::function<double()> disturb = {};  // a sample's factor, instead of the three above
  std::mt19937_64 random{42};
  std::int64_t launches = 0;
  bool capturing = false;
  bool lost = false;  // every synchronisation fails

  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::duration<double, std::micro>(now_us)));
  }

  double take(int repeats) {
    const double us = launch_us * repeats * (disturb ? disturb() : usual_factor());
    now_us += us;
    return us;
  }

  double usual_factor() {
    constexpr double kPeriodUs = 200000;
    double factor = 1 + drift * std::sin(2 * std::numbers::pi * now_us / kPeriodUs);
    if (noise > 0) factor *= std::exp(std::normal_distribution<double>(0, noise)(random));
    if (outliers > 0 && std::bernoulli_distribution(outliers)(random)) factor *= 3;
    return factor;
  }
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(World& world, DeviceInfo info = fake_info())
      : world_(world), info_(std::move(info)) {}
  static DeviceInfo fake_info() {
    DeviceInfo info;
    info.id = {"fake", 0};
    info.name = "a fake device";
    info.arch = "none";
    info.device_class = "fake:1";
    return info;
  }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* /*stream*/) const override {
    constexpr std::size_t kAlignment = 64;
    void* memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void deallocate(void* pointer, void* /*stream*/) const noexcept override { std::free(pointer); }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void*) const override {
    std::memset(to, std::to_integer<int>(value), bytes);
  }
  void synchronize(void* /*stream*/) const override {
    if (world_.lost) throw ExecutionError("the fake device is lost");
  }
  bool is_capturing(void* /*stream*/) const noexcept override { return world_.capturing; }
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    launch(nullptr, 0);
    return world_.take(repeats);
  }

 private:
  World& world_;
  DeviceInfo info_;
};

}  // namespace attune::test
