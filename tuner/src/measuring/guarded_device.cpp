#include "measuring/guarded_device.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace attune::tuning {
namespace {

constexpr std::size_t kGuardBytes = 4096;  // keeps every alignment that a device gives
constexpr std::byte kGuard{0xA5};

/// How many bytes of a guard are not as they were. The device is idle.
std::ptrdiff_t count_damage(const Device& device, const std::byte* guard) {
  std::vector<std::byte> copy(kGuardBytes);
  device.copy_to_host(copy.data(), guard, kGuardBytes, nullptr);
  device.synchronize(nullptr);
  return std::ssize(copy) - std::count(copy.begin(), copy.end(), kGuard);
}

}  // namespace

GuardedDevice::~GuardedDevice() = default;

void* GuardedDevice::allocate(std::size_t bytes, void* stream) const {
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kGuardBytes) throw std::bad_alloc();
  auto* const base = static_cast<std::byte*>(device_.allocate(bytes + 2 * kGuardBytes, stream));
  std::byte* const block = base + kGuardBytes;
  device_.fill(base, kGuard, kGuardBytes, stream);
  device_.fill(block + bytes, kGuard, kGuardBytes, stream);
  const std::lock_guard lock(mutex_);
  blocks_.emplace(block, bytes);
  return block;
}

void GuardedDevice::deallocate(void* pointer, void* stream) const noexcept {
  auto* const block = static_cast<std::byte*>(pointer);
  {
    const std::lock_guard lock(mutex_);
    blocks_.erase(block);
  }
  device_.deallocate(block - kGuardBytes, stream);
}

std::string GuardedDevice::take_damage() const {
  const std::lock_guard lock(mutex_);
  std::string damage;
  for (const auto& [block, bytes] : blocks_) {
    for (const bool before : {true, false}) {
      std::byte* const guard = before ? block - kGuardBytes : block + bytes;
      const std::ptrdiff_t count = count_damage(device_, guard);
      if (count == 0) continue;
      device_.fill(guard, kGuard, kGuardBytes, nullptr);
      if (!damage.empty()) continue;
      damage = str(count_text(count, "byte"), ' ', before ? "before" : "past the end of",
                   " a block of ", bytes);
    }
  }
  device_.synchronize(nullptr);
  return damage;
}

std::map<const void*, std::uint64_t> GuardedDevice::sums_of_unwritten(
    const std::vector<const void*>& written) const {
  const std::lock_guard lock(mutex_);
  std::map<const void*, std::uint64_t> sums;
  std::vector<std::byte> copy;
  for (const auto& [block, bytes] : blocks_) {
    const auto is_within = [begin = block, end = block + bytes](const void* pointer) {
      return pointer >= begin && pointer < end;
    };
    if (std::any_of(written.begin(), written.end(), is_within)) continue;
    copy.resize(bytes);
    device_.copy_to_host(copy.data(), block, bytes, nullptr);
    device_.synchronize(nullptr);
    sums.emplace(block, XXH3_64bits(copy.data(), copy.size()));
  }
  return sums;
}

}  // namespace attune::tuning
