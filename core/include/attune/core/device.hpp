// Devices: where memory lives and kernels run. One is registered for each device of a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/function_ref.hpp>
#include <attune/core/tensor.hpp>

namespace attune {

struct HostThreads;  // parallel_for.hpp

/// What a device is. Kernels decide by it what they support; rows of the database are keyed by
/// `device_class`.
struct DeviceInfo {
  DeviceId id;
  std::string name;  // for people: "AMD EPYC 9B45", "NVIDIA H200"
  std::string arch;  // "x86-64", "aarch64", "sm_90"
  /// Instruction sets, lower case: "avx2", "avx512f", "avx512_bf16", ...
  std::vector<std::string> features;
  int cores = 1;              // usable: CPU cores that calls may take, or SMs
  std::int64_t l1_bytes = 0;  // per core
  std::int64_t l2_bytes = 0;  // per core (CPU) or of the device (GPU)
  std::int64_t l3_bytes = 0;  // 0 when there is none
  std::int64_t memory_bytes = 0;
  std::string driver;  // driver and toolkit, "" for a CPU
  /// Devices of one class share tuned configs: everything above that changes which config is best,
  /// and nothing that does not (two H200s are one class). Text without spaces:
  /// "cpu:x86-64:avx512_bf16:2c:l2=2M:l3=32M".
  std::string device_class;

  bool has(std::string_view feature) const;
};

/// Where memory is allocated and work is ordered. Streams are the backend's own handles, opaque
/// here; a CPU has none and runs each call to its end. Implementations are immutable and safe to
/// use from several threads.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const noexcept = 0;

  /// At least 64-byte aligned memory, usable by work queued on `stream` after this. Throws
  /// std::bad_alloc.
  virtual void* allocate(std::size_t bytes, void* stream) const = 0;
  /// Releases memory once the work queued on `stream` before this has run.
  virtual void deallocate(void* pointer, void* stream) const noexcept = 0;

  virtual void copy_to_device(void* to, const void* from_host, std::size_t bytes,
                              void* stream) const = 0;
  virtual void copy_to_host(void* to_host, const void* from, std::size_t bytes,
                            void* stream) const = 0;
  virtual void fill(void* to, std::byte value, std::size_t bytes, void* stream) const = 0;

  /// Waits for all work queued on `stream`. Throws ExecutionError when it failed.
  virtual void synchronize(void* stream) const = 0;

  /// Whether `stream` is recording a graph: then nothing may be allocated, waited for or tuned.
  virtual bool is_capturing(void* /*stream*/) const noexcept { return false; }

  /// What kernels may use of the host's threads; null: all that the process may.
  virtual const HostThreads* threads() const noexcept { return nullptr; }

  /// Runs `launch(stream, 0) ... launch(stream, repeats - 1)` back to back on a stream of its own
  /// and returns the microseconds from the first's start to the last's end, without the cost of
  /// queueing where the backend can tell them apart. What a tuner times with; tests replace it by a
  /// clock of their own.
  virtual double time_us(FunctionRef<void(void* stream, int repeat)> launch, int repeats) const = 0;
};

/// The host. Lives as long as the process.
const Device& cpu_device();

/// The host for calls that keep to `threads`. Its `cores`, and those that its device class counts,
/// are as many as they may take: the class of a process that is restricted to them. Throws
/// InvalidArgument unless threads.most >= 1.
std::unique_ptr<const Device> make_cpu_device(HostThreads threads);

/// Reads affinity, cgroup quota, caches and instruction sets of this machine; cpu_device() keeps
/// one such reading. With `most_cores` >= 1, as a process that may use no more of them would.
DeviceInfo read_cpu_info(int most_cores = std::numeric_limits<int>::max());

}  // namespace attune
