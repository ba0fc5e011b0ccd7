#include "cuda/runtime/gpu_device.hpp"

#include <algorithm>
#include <new>

#include "cuda/runtime/check.hpp"
#include "cuda/runtime/digest.hpp"

namespace attune::cuda {
namespace {

/// What the pool keeps of memory that was given back: allocating calls then find the last call's.
constexpr std::uint64_t kKeptBytes = std::uint64_t{1} << 30;

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

MemoryPool make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;  // the only one there is: device memory
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device};
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties));
  MemoryPool owner(pool);
  std::uint64_t kept = kKeptBytes;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  return owner;
}

/// The launches as a graph; null when one of them cannot be recorded.
Graph record(FunctionRef<void(void* stream, int repeat)> launch, int repeats, cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  try {
    for (int i = 0; i < repeats; ++i) launch(stream, i);
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    Graph owner(graph);
    throw;
  }
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  Graph owner(graph);
  if (ended == cudaErrorStreamCaptureInvalidated || ended == cudaErrorStreamCaptureUnsupported) {
    return nullptr;
  }
  check(ended);
  return owner;
}

}  // namespace

GpuDevice::GpuDevice(int index) : index_(index), info_(read_gpu_info(index)) {}

cudaMemPool_t GpuDevice::pool() const {
  std::call_once(pool_made_, [this] { pool_ = make_pool(index_); });
  return pool_.get();
}

void* GpuDevice::allocate(std::size_t bytes, void* stream) const {
  const DeviceGuard guard(index_);
  const UnrelatedToCaptures unrelated;
  void* pointer = nullptr;
  const cudaError_t status =
      cudaMallocFromPoolAsync(&pointer, std::max<std::size_t>(bytes, 1), pool(), as_stream(stream));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // or the host's next check would find it
    throw std::bad_alloc();
  }
  check(status);
  return pointer;
}

void GpuDevice::deallocate(void* pointer, void* stream) const noexcept {
  if (pointer != nullptr) static_cast<void>(cudaFreeAsync(pointer, as_stream(stream)));
}

void GpuDevice::copy_to_device(void* to, const void* from_host, std::size_t bytes,
                               void* stream) const {
  const DeviceGuard guard(index_);
  check(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, as_stream(stream)));
}

void GpuDevice::copy_to_host(void* to_host, const void* from, std::size_t bytes,
                             void* stream) const {
  const DeviceGuard guard(index_);
  const UnrelatedToCaptures unrelated;
  check(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, as_stream(stream)));
  check(cudaStreamSynchronize(as_stream(stream)));
}

void GpuDevice::fill(void* to, std::byte value, std::size_t bytes, void* stream) const {
  const DeviceGuard guard(index_);
  check(cudaMemsetAsync(to, std::to_integer<int>(value), bytes, as_stream(stream)));
}

void GpuDevice::synchronize(void* stream) const {
  const DeviceGuard guard(index_);
  const UnrelatedToCaptures unrelated;
  check(cudaStreamSynchronize(as_stream(stream)));
}

void GpuDevice::copy(void* to, const void* from, std::size_t bytes, void* stream) const {
  const DeviceGuard guard(index_);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, as_stream(stream)));
}

std::vector<Digest> GpuDevice::digests(std::span<const ConstTensorView> views) const {
  const DeviceGuard guard(index_);
  std::vector<DigestedArray> arrays(views.begin(), views.end());
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(arrays));
  Tensor there(DType::kI64, {static_cast<std::int64_t>(bytes.size() / sizeof(std::int64_t))},
               *this);
  copy_to_device(there.view().data, bytes.data(), bytes.size(), nullptr);
  launch_digests(arrays, static_cast<DigestedArray*>(there.view().data), nullptr);
  copy_to_host(bytes.data(), there.view().data, bytes.size(), nullptr);
  std::vector<Digest> digests;
  for (const DigestedArray& array : arrays) digests.push_back(array.digest);
  return digests;
}

bool GpuDevice::is_capturing(void* stream) const noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // The legacy default stream cannot capture, and asking about it while another stream does is an
  // error of its own.
  if (stream == nullptr) return false;
  return cudaStreamIsCapturing(as_stream(stream), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

GpuDevice::Stopwatch GpuDevice::take_stopwatch() const {
  const std::lock_guard lock(stopwatches_mutex_);
  if (stopwatches_.empty()) return {};
  Stopwatch last = std::move(stopwatches_.back());
  stopwatches_.pop_back();
  return last;
}

void GpuDevice::put_back(Stopwatch stopwatch) const {
  const std::lock_guard lock(stopwatches_mutex_);
  stopwatches_.push_back(std::move(stopwatch));
}

double GpuDevice::time_us(FunctionRef<void(void* stream, int repeat)> launch, int repeats) const {
  const DeviceGuard guard(index_);
  const UnrelatedToCaptures unrelated;
  // It is lost where a launch throws: its stream may be capturing.
  Stopwatch stopwatch = take_stopwatch();
  const auto& [stream, begin, end] = stopwatch;
  GraphExec replay;
  if (const Graph graph = record(launch, repeats, stream.get())) {
    std::size_t nodes = 0;
    check(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
    if (nodes == 0) return 0;  // there was nothing to do, or it went to another stream
    replay = instantiate(graph.get());
    check(cudaGraphUpload(replay.get(), stream.get()));
  }
  check(cudaEventRecord(begin.get(), stream.get()));
  if (replay) {
    check(cudaGraphLaunch(replay.get(), stream.get()));
  } else {
    for (int i = 0; i < repeats; ++i) launch(stream.get(), i);
  }
  check(cudaEventRecord(end.get(), stream.get()));
  check(cudaEventSynchronize(end.get()));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  put_back(std::move(stopwatch));
  return static_cast<double>(milliseconds) * 1e3;
}

}  // namespace attune::cuda
