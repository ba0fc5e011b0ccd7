// An NCCL communicator as an Exchange. For programs that use NCCL: they compile this header and
// link NCCL and the CUDA runtime, attune links no NCCL.
//
//   ncclCommInitRank(&communicator, size, id, rank);
//   attune::distributed::NcclExchange exchange(communicator);
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/exchange.hpp>

namespace attune::distributed {

/// Device memory is gathered by one ncclAllGather on the caller's stream, which a graph may capture
/// (NCCL 2.9 and later; every rank captures the same). Host memory is copied to the device and
/// back, and waited for; that must not happen while the stream is captured.
///
/// The communicator is the caller's and outlives this, with its time limits: who gives up calls
/// ncclCommAbort. NCCL's rules hold: one collective of a communicator at a time, in the same order
/// on all ranks, from the device that the communicator was made on.
class NcclExchange final : public Exchange {
 public:
  /// Throws ExecutionError when NCCL says no.
  explicit NcclExchange(ncclComm_t communicator) : communicator_(communicator) {
    check(ncclCommUserRank(communicator, &rank_), "ncclCommUserRank");
    check(ncclCommCount(communicator, &size_), "ncclCommCount");
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  void all_gather(const void* send, void* recv, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    auto* const queue = static_cast<cudaStream_t>(stream);
    if (is_on_device(send)) return gather(send, recv, bytes, queue);
    const std::size_t all = bytes * static_cast<std::size_t>(size_);
    const DeviceMemory staged = allocate(bytes + all);
    auto* const sent = static_cast<std::byte*>(staged.get());
    check(cudaMemcpyAsync(sent, send, bytes, cudaMemcpyHostToDevice, queue), "cudaMemcpyAsync");
    gather(sent, sent + bytes, bytes, queue);
    check(cudaMemcpyAsync(recv, sent + bytes, all, cudaMemcpyDeviceToHost, queue),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
  }

 private:
  struct Free {
    void operator()(void* pointer) const { cudaFree(pointer); }
  };
  using DeviceMemory = std::unique_ptr<void, Free>;

  static DeviceMemory allocate(std::size_t bytes) {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, bytes), "cudaMalloc");
    return DeviceMemory(pointer);
  }

  static bool is_on_device(const void* pointer) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  void gather(const void* send, void* recv, std::size_t bytes, cudaStream_t stream) const {
    check(ncclAllGather(send, recv, bytes, ncclChar, communicator_, stream), "ncclAllGather");
  }

  static void check(ncclResult_t result, const char* what) {
    if (result != ncclSuccess) throw ExecutionError(str(what, ": ", ncclGetErrorString(result)));
  }
  static void check(cudaError_t result, const char* what) {
    if (result != cudaSuccess) throw ExecutionError(str(what, ": ", cudaGetErrorString(result)));
  }

  ncclComm_t communicator_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace attune::distributed
