// Processes of a host, each with a GPU of its own and NCCL between them, and graphs of what they do.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include <attune/attune.hpp>
#include <attune/distributed/nccl.hpp>

namespace attune::bench {

inline void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw ExecutionError(str(what, ": ", cudaGetErrorString(result)));
}

/// A process with its GPU.
class Rank {
 public:
  explicit Rank(ncclComm_t communicator)
      : context_(make_context({.policy = Policy::kHeuristic, .database = ""})),
        device_(context_->registry().device({.backend = ShortName("gpu")})),
        exchange_(communicator) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { cudaStreamDestroy(stream_); }

  Context& context() { return *context_; }
  const Device& device() const { return device_; }
  distributed::NcclExchange& exchange() { return exchange_; }
  cudaStream_t stream() const { return stream_; }
  bool is_first() const { return exchange_.rank() == 0; }

  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  /// One number of each rank.
  std::vector<double> of_all(double own) {
    std::vector<double> all(static_cast<std::size_t>(exchange_.size()));
    exchange_.all_gather(&own, all.data(), sizeof own, stream_);
    return all;
  }
  double slowest(double own) { return std::ranges::max(of_all(own)); }
  double fastest(double own) { return std::ranges::min(of_all(own)); }

 private:
  std::unique_ptr<Context> context_;
  const Device& device_;
  distributed::NcclExchange exchange_;
  cudaStream_t stream_ = nullptr;
};

/// What a stream is given once, to be replayed.
class Graph {
 public:
  Graph(const Rank& rank, const std::function<void()>& work) : stream_(rank.stream()) {
    work();  // what is made at a first use is not captured
    rank.wait();
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin of a capture");
    work();
    check(cudaStreamEndCapture(stream_, &graph), "end of a capture");
    check(cudaGraphInstantiate(&replay_, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaGraphExecDestroy(replay_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  void launch() const { check(cudaGraphLaunch(replay_, stream_), "cudaGraphLaunch"); }
  /// Microseconds of one of `count` replays.
  double us(int count) const {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    for (int i = 0; i < count; ++i) launch();
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return 1e3 * ms / count;
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t replay_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Runs `work` on as many processes, each with the GPU of its number. True when all return true in
/// time; who has not, or whose neighbour has failed, is killed. NVLink multicast (NVLS) stays off.
bool on_ranks(int ranks, int limit_s, const std::function<bool(Rank&)>& work);

}  // namespace attune::bench
