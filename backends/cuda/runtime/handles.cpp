#include "cuda/runtime/handles.hpp"

#include "cuda/runtime/check.hpp"

namespace attune::cuda {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event));
  return Event(event);
}

GraphExec instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0));
  return GraphExec(exec);
}

UnrelatedToCaptures::UnrelatedToCaptures() { check(cudaThreadExchangeStreamCaptureMode(&mode_)); }

UnrelatedToCaptures::~UnrelatedToCaptures() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
}

DeviceGuard::DeviceGuard(int device) {
  int current = -1;
  check(cudaGetDevice(&current));
  if (current == device) return;
  check(cudaSetDevice(device));
  previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) static_cast<void>(cudaSetDevice(previous_));
}

}  // namespace attune::cuda
