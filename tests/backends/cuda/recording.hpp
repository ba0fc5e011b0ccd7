// A stream of its own, what was recorded on it as a CUDA graph, and the replay.
#pragma once

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

namespace attune::test {

class Recording {
 public:
  Recording() { expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Recording() {
    cudaGraphExecDestroy(replay_);
    cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cudaStream_t stream() const { return stream_; }

  void begin() { expect_success(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal)); }
  void end() {
    expect_success(cudaStreamEndCapture(stream_, &graph_));
    expect_success(cudaGraphInstantiate(&replay_, graph_, 0));
  }
  /// Returns when what was recorded is done.
  void replay() {
    expect_success(cudaGraphLaunch(replay_, stream_));
    expect_success(cudaStreamSynchronize(stream_));
  }

 private:
  static void expect_success(cudaError_t status) {
    EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
  }

  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t replay_ = nullptr;
};

}  // namespace attune::test
