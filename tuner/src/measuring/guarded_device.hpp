// A device that finds writes out of bounds: each allocation lies between two guards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/in_place.hpp>

namespace attune::tuning {

/// Passes everything on to another device. The guards on both sides of a block are filled with a
/// pattern, which take_damage() looks for.
class GuardedDevice final : public Device, public InPlaceDevice {
 public:
  /// `device` outlives this.
  explicit GuardedDevice(const Device& device) : device_(device) {}
  ~GuardedDevice() override;

  /// What was written outside of a block since the last call, "3 bytes before a block of 64", or
  /// "". Restores the guards. The device is idle.
  std::string take_damage() const;

  /// The checksum of each block that none of `written` points into, by the block's address. The
  /// device is idle.
  std::map<const void*, std::uint64_t> sums_of_unwritten(
      const std::vector<const void*>& written) const;

  const DeviceInfo& info() const noexcept override { return device_.info(); }
  void* allocate(std::size_t bytes, void* stream) const override;
  void deallocate(void* pointer, void* stream) const noexcept override;
  void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) const override {
    device_.copy_to_device(to, from, bytes, stream);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) const override {
    device_.copy_to_host(to, from, bytes, stream);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override {
    device_.fill(to, value, bytes, stream);
  }
  void synchronize(void* stream) const override { device_.synchronize(stream); }
  std::vector<Digest> digests(std::span<const ConstTensorView> views) const override {
    return digests_of(views, device_);
  }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) const override {
    copy_within(device_, to, from, bytes, stream);
  }
  bool is_capturing(void* stream) const noexcept override { return device_.is_capturing(stream); }
  double time_us(FunctionRef<void(void*, int)> launch, int repeats) const override {
    return device_.time_us(launch, repeats);
  }

 private:
  struct Guard {
    std::byte* at;
    bool before;        // the block; else behind it
    std::size_t bytes;  // of the block
  };
  std::vector<Guard> suspects() const;

  const Device& device_;
  mutable std::mutex mutex_;
  mutable std::map<std::byte*, std::size_t> blocks_;  // what was asked for, by address
  mutable std::optional<Digest> intact_;              // of a guard
};

}  // namespace attune::tuning
