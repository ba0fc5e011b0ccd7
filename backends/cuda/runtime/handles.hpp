// Owners of CUDA's handles. Plain cudaStream_t, cudaEvent_t and T* borrow.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace attune::cuda {

/// Ignores errors: a destructor has nobody to tell.
template <auto kDestroy>
struct Destroyer {
  template <class Handle>
  void operator()(Handle handle) const noexcept {
    static_cast<void>(kDestroy(handle));
  }
};
template <class Handle, auto kDestroy>
using Unique = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<kDestroy>>;

using Stream = Unique<cudaStream_t, cudaStreamDestroy>;
using Event = Unique<cudaEvent_t, cudaEventDestroy>;
using Graph = Unique<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Unique<cudaGraphExec_t, cudaGraphExecDestroy>;
using MemoryPool = Unique<cudaMemPool_t, cudaMemPoolDestroy>;

/// On the current device; ordered with no other stream.
Stream make_stream();
Event make_event();
GraphExec instantiate(cudaGraph_t graph);

/// Lets this thread allocate and wait while another one records a graph: by default such calls
/// would be refused, and end that recording. Until the end of the scope.
class UnrelatedToCaptures {
 public:
  UnrelatedToCaptures();
  ~UnrelatedToCaptures();
  UnrelatedToCaptures(const UnrelatedToCaptures&) = delete;
  UnrelatedToCaptures& operator=(const UnrelatedToCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // of the other two: this thread's
};

/// Makes a device current until the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;  // -1: nothing to restore
};

}  // namespace attune::cuda
