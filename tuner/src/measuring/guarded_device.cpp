#include "measuring/guarded_device.hpp"

#include <algorithm>
#include <cstdint>
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

/// Memory as an array of words; an empty one where it is not whole words.
ConstTensorView words_of(const Device& device, const std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kWord = sizeof(std::int64_t);
  const bool whole = bytes % kWord == 0 && reinterpret_cast<std::uintptr_t>(memory) % kWord == 0;
  const Extents shape{whole ? static_cast<std::int64_t>(bytes / kWord) : 0};
  return ConstTensorView(memory, DType::kI64, shape, device.info().id);
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
  if (!intact_) {
    device_.synchronize(stream);
    const ConstTensorView guard = words_of(device_, base, kGuardBytes);
    intact_ = digests_of({&guard, 1}, device_).front();
  }
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

/// Those that are not known to be intact by their digests, which take a trip to the host for all of
/// them.
std::vector<GuardedDevice::Guard> GuardedDevice::suspects() const {
  std::vector<Guard> guards;
  std::vector<ConstTensorView> words;
  for (const auto& [block, bytes] : blocks_) {
    for (const bool before : {true, false}) {
      guards.push_back({before ? block - kGuardBytes : block + bytes, before, bytes});
      words.push_back(words_of(device_, guards.back().at, kGuardBytes));
    }
  }
  const std::vector<Digest> digests = digests_of(words, device_);
  std::vector<Guard> suspects;
  for (std::size_t i = 0; i < guards.size(); ++i) {
    if (words[i].empty() || digests[i] != intact_) suspects.push_back(guards[i]);
  }
  return suspects;
}

std::string GuardedDevice::take_damage() const {
  const std::lock_guard lock(mutex_);
  std::string damage;
  for (const auto& [guard, before, bytes] : suspects()) {
    const std::ptrdiff_t count = count_damage(device_, guard);
    if (count == 0) continue;
    device_.fill(guard, kGuard, kGuardBytes, nullptr);
    if (!damage.empty()) continue;
    damage = str(count_text(count, "byte"), ' ', before ? "before" : "past the end of",
                 " a block of ", bytes);
  }
  device_.synchronize(nullptr);
  return damage;
}

std::map<const void*, std::uint64_t> GuardedDevice::sums_of_unwritten(
    const std::vector<const void*>& written) const {
  const std::lock_guard lock(mutex_);
  std::map<const void*, std::uint64_t> sums;
  std::vector<ConstTensorView> unwritten;
  for (const auto& [block, bytes] : blocks_) {
    const auto is_within = [begin = block, end = block + bytes](const void* pointer) {
      return pointer >= begin && pointer < end;
    };
    if (std::any_of(written.begin(), written.end(), is_within)) continue;
    unwritten.push_back(words_of(device_, block, bytes));
    if (unwritten.back().empty()) {
      std::vector<std::byte> copy(bytes);
      device_.copy_to_host(copy.data(), block, bytes, nullptr);
      device_.synchronize(nullptr);
      sums.emplace(block, XXH3_64bits(copy.data(), copy.size()));
    }
  }
  const std::vector<Digest> digests = digests_of(unwritten, device_);
  for (std::size_t i = 0; i < digests.size(); ++i) {
    sums.emplace(unwritten[i].data, digests[i].sum);  // the host's, where it has one, stays
  }
  return sums;
}

}  // namespace attune::tuning
