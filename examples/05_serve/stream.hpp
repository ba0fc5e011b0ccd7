// A stream of the GPU: copies on it, and work that is recorded once and replayed as a CUDA graph.
// On a CPU, which has no streams, and in builds without CUDA the work is done each time.
#pragma once

#include <vector>

#include <attune/attune.hpp>

#ifdef SERVE_WITH_CUDA
#include <cuda_runtime_api.h>

#include <stdexcept>
#endif

namespace serve {

using namespace attune;

class Stream {
 public:
  explicit Stream(const Device& device) : device_(device) {
#ifdef SERVE_WITH_CUDA
    if (device.info().id != DeviceId{}) check(cudaStreamCreate(&stream_));
#endif
  }
  ~Stream() {
#ifdef SERVE_WITH_CUDA
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
#endif
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* handle() const { return stream_; }

  Tensor floats(const Extents& shape) const { return {DType::kF32, shape, device_, stream_}; }
  template <class T>
  void copy(const std::vector<T>& from, Tensor& to) const {
    device_.copy_to_device(to.view().data, from.data(), to.bytes(), stream_);
  }
  template <class T>
  Tensor put(const std::vector<T>& values, const Extents& shape) const {
    Tensor there(kDTypeOf<T>, shape, device_, stream_);
    copy(values, there);
    return there;
  }
  /// When all that was queued before is done.
  std::vector<float> get(const Tensor& from) const {
    std::vector<float> values(from.bytes() / sizeof(float));
    device_.copy_to_host(values.data(), from.view().data, from.bytes(), stream_);
    return values;
  }

  /// `launches` always launches the same, on the same memory.
  template <class Launches>
  void replay(const Launches& launches) {
    if (stream_ == nullptr) return launches();
#ifdef SERVE_WITH_CUDA
    if (graph_ == nullptr) {
      cudaGraph_t recorded = nullptr;
      check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      launches();
      check(cudaStreamEndCapture(stream_, &recorded));
      check(cudaGraphInstantiate(&graph_, recorded, 0));
      check(cudaGraphDestroy(recorded));
    }
    check(cudaGraphLaunch(graph_, stream_));
#endif
  }

 private:
  const Device& device_;
#ifdef SERVE_WITH_CUDA
  static void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
  }
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
#else
  void* stream_ = nullptr;
#endif
};

/// Block `index` of the equal ones that a tensor of floats consists of.
inline TensorView part(Tensor& all, std::size_t index, const Extents& shape) {
  const auto offset = static_cast<std::int64_t>(index) * element_count(shape);
  return {static_cast<float*>(all.view().data) + offset, shape, all.view().device};
}

}  // namespace serve
