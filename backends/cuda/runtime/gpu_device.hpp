// A GPU as a Device.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <attune/core/device.hpp>
#include <attune/core/in_place.hpp>

#include "cuda/runtime/handles.hpp"

namespace attune::cuda {

/// Streams are cudaStream_t. Allocations come from a pool of attune's own, in the order of their
/// stream, and may be captured in a graph.
class GpuDevice final : public Device, public InPlaceDevice {
 public:
  /// Makes no context on the GPU; the first use does.
  explicit GpuDevice(int index);

  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void* stream) const override;
  void deallocate(void* pointer, void* stream) const noexcept override;
  void copy_to_device(void* to, const void* from_host, std::size_t bytes,
                      void* stream) const override;
  void copy_to_host(void* to_host, const void* from, std::size_t bytes,
                    void* stream) const override;
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) const override;
  void synchronize(void* stream) const override;
  std::vector<Digest> digests(std::span<const ConstTensorView> views) const override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) const override;
  bool is_capturing(void* stream) const noexcept override;

  /// Records the launches in a graph and times its replay, so that the cost of queueing is not in
  /// it. Launches that cannot be recorded are queued one by one.
  double time_us(FunctionRef<void(void* stream, int repeat)> launch, int repeats) const override;

 private:
  struct Stopwatch {
    Stream stream = make_stream();
    Event begin = make_event();
    Event end = make_event();
  };

  cudaMemPool_t pool() const;
  Stopwatch take_stopwatch() const;
  void put_back(Stopwatch stopwatch) const;

  int index_;
  DeviceInfo info_;
  mutable std::once_flag pool_made_;
  mutable MemoryPool pool_;
  mutable std::mutex stopwatches_mutex_;
  mutable std::vector<Stopwatch> stopwatches_;  // idle ones: to make one takes as long as a launch
};

/// Reads a GPU's properties without making a context on it.
DeviceInfo read_gpu_info(int index);

}  // namespace attune::cuda
