// The host as a Device: plain memory, no streams, the steady clock.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>

namespace attune {

bool DeviceInfo::has(std::string_view feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector
constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Puts memory on huge pages as far as it fills them, where the system does that on request. A
/// token's rows of one head are a page of 4 KiB or more apart from the next token's: kernels would
/// look up each anew (bench/notes/cpu.md, "Pages").
void use_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  // Advice that is not taken changes nothing but the time.
  static_cast<void>(madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
}

class CpuDevice final : public Device {
 public:
  CpuDevice() = default;
  explicit CpuDevice(HostThreads threads)
      : info_(read_cpu_info(threads.most)), threads_(std::move(threads)) {}

  const DeviceInfo& info() const noexcept override { return info_; }

  void* allocate(std::size_t bytes, void* /*stream*/) const override {
    const bool huge = bytes >= kHugePage;
    void* pointer = nullptr;
    if (posix_memalign(&pointer, huge ? kHugePage : kAlignment, std::max<std::size_t>(bytes, 1)) !=
        0) {
      throw std::bad_alloc();
    }
    if (huge) use_huge_pages(pointer, bytes);
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

  const HostThreads* threads() const noexcept override { return threads_ ? &*threads_ : nullptr; }

 private:
  DeviceInfo info_ = read_cpu_info();
  std::optional<HostThreads> threads_;
};

}  // namespace

const Device& cpu_device() {
  // Never destroyed: tensors with static storage may outlive every other object.
  static const auto* const device = new CpuDevice();
  return *device;
}

std::unique_ptr<const Device> make_cpu_device(HostThreads threads) {
  if (threads.most < 1) {
    throw InvalidArgument(str("max_threads: ", threads.most, ", expected at least 1"));
  }
  return std::make_unique<CpuDevice>(std::move(threads));
}

}  // namespace attune
