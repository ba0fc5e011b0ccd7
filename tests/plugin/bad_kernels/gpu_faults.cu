// The faults of a GPU. Each but the last few runs well, and then does the one thing that its name
// says.
#undef NDEBUG  // asserts are one of them
#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>

#include "gpu_kernels.hpp"

namespace doubling {
namespace {

using Problem = DoublingProblem;
using Args = DoublingArgs;
using Site = const attune::LaunchSite&;

constexpr unsigned kThreads = 256;
constexpr std::int64_t kFarAway = std::int64_t{1} << 44;  // bytes: past all that is mapped

unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

cudaStream_t stream_of(Site site) { return static_cast<cudaStream_t>(site.stream); }

/// Throws what a launch has come to.
void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

__global__ void double_elements(const float* x, float* y, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

/// Runs f() on one thread.
template <class F>
__global__ void once(F f) {
  f();
}

void run_elements(const Args& args, std::int64_t n, Site site) {
  double_elements<<<blocks_for(n), kThreads, 0, stream_of(site)>>>(args.x, args.y, n);
}

/// Runs well, and then f(x, y, n) on one thread.
template <class F>
void run_then(const Problem& problem, const Args& args, Site site, F f) {
  run_elements(args, problem.n, site);
  const float* x = args.x;
  float* y = args.y;
  const std::int64_t n = problem.n;
  once<<<1, 1, 0, stream_of(site)>>>([=] __device__() { f(x, y, n); });
  check(cudaGetLastError());
}

void leaves_the_tail(const Problem& p, const Args& a, Site site) { run_elements(a, p.n - 1, site); }

void leaves_its_output(const Problem&, const Args&, Site) {}

void is_a_little_wrong(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site,
           [] __device__(const float*, float* y, std::int64_t n) { y[n / 2] *= 1.01F; });
}

void gives_nan(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t) { y[0] = NAN; });
}

void is_wrong_when_large(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t n) {
    if (n > 1000) y[1000] = INFINITY;
  });
}

void reads_its_output(const Problem& p, const Args& a, Site site) {
  float* y = a.y;
  float* kept = reinterpret_cast<float*>(site.workspace.data());
  once<<<1, 1, 0, stream_of(site)>>>([=] __device__() { *kept = y[0]; });
  run_elements(a, p.n, site);
  once<<<1, 1, 0, stream_of(site)>>>([=] __device__() { y[0] += 1e-9F * *kept; });
}

/// Counts without atomics: how many of the increments are lost differs from run to run, and shows
/// in the last bits of y[0].
__global__ void count(volatile unsigned* counter) {
  for (int i = 0; i < 16; ++i) *counter = *counter + 1;
}

void races(const Problem& p, const Args& a, Site site) {
  run_elements(a, p.n, site);
  auto* counter = reinterpret_cast<unsigned*>(site.workspace.data());
  float* y = a.y;
  const float last_bit = std::numeric_limits<float>::epsilon();
  count<<<128, kThreads, 0, stream_of(site)>>>(counter);
  once<<<1, 1, 0, stream_of(site)>>>(
      [=] __device__() { y[0] *= 1 + static_cast<float>(*counter % 32) * last_bit; });
}

void writes_past_the_end(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t n) { y[n] = 1; });
}

void writes_before_the_beginning(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t) { y[-1] = 1; });
}

void writes_past_its_workspace(const Problem& p, const Args& a, Site site) {
  std::byte* end = site.workspace.data() + site.workspace.size();
  run_then(p, a, site, [=] __device__(const float*, float*, std::int64_t) { *end = std::byte{1}; });
}

void changes_its_input(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float* x, float*, std::int64_t n) {
    const_cast<float*>(x)[n / 2] = 0;
  });
}

void writes_far_away(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t) {
    y[kFarAway / static_cast<std::int64_t>(sizeof(float))] = 1;
  });
}

void is_misaligned(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t) {
    auto* bytes = reinterpret_cast<volatile char*>(y) + 1;
    *reinterpret_cast<volatile float*>(bytes) = 1;
  });
}

void traps(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float*, std::int64_t) { __trap(); });
}

void asserts(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float*, std::int64_t n) { assert(n < 0); });
}

void loops_for_ever(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float* y, std::int64_t) {
    while (*static_cast<volatile float*>(y) != -1) {
    }
  });
}

/// Right where it is checked, on the default stream, and as good as free where it is timed.
void ignores_its_stream(const Problem& p, const Args& a, Site) {
  double_elements<<<blocks_for(p.n), kThreads>>>(a.x, a.y, p.n);
}

void takes_too_much_shared_memory(const Problem& p, const Args& a, Site site) {
  double_elements<<<blocks_for(p.n), kThreads, 1 << 20, stream_of(site)>>>(a.x, a.y, p.n);
  check(cudaGetLastError());
}

/// Does not look either, so that whoever asks next is told.
void takes_too_many_threads(const Problem& p, const Args& a, Site site) {
  double_elements<<<1, 4096, 0, stream_of(site)>>>(a.x, a.y, p.n);
}

/// What it takes stays taken.
void uses_all_memory(const Problem&, const Args&, Site) {
  void* block = nullptr;
  for (std::size_t bytes = std::size_t{1} << 40; bytes >= std::size_t{1} << 20; bytes /= 2) {
    while (cudaMalloc(&block, bytes) == cudaSuccess) {
    }
  }
  static_cast<void>(cudaGetLastError());
  throw std::bad_alloc();
}

void resets_the_device(const Problem& p, const Args& a, Site site) {
  run_elements(a, p.n, site);
  check(cudaDeviceReset());
}

void is_slow(const Problem& p, const Args& a, Site site) {
  run_then(p, a, site, [] __device__(const float*, float*, std::int64_t) {
    for (int i = 0; i < 20; ++i) __nanosleep(1'000'000);
  });
}

void is_wrong_later(const Problem& p, const Args& a, Site site) {
  static int calls = 0;
  // Right as long as it is checked, and the fastest there is once it is timed.
  run_elements(a, ++calls > 50 ? p.n / 4 : p.n, site);
}

void traps_later(const Problem& p, const Args& a, Site site) {
  static int calls = 0;
  run_elements(a, p.n, site);
  if (++calls > 500) once<<<1, 1, 0, stream_of(site)>>>([] __device__() { __trap(); });
}

constexpr std::size_t kPebibyte = std::size_t{1} << 50;

constexpr Fault kFaults[] = {
    {"leaves_the_tail", leaves_the_tail},
    {"leaves_its_output", leaves_its_output},
    {"is_a_little_wrong", is_a_little_wrong},
    {"gives_nan", gives_nan},
    {"is_wrong_when_large", is_wrong_when_large},
    {"reads_its_output", reads_its_output},
    {"races", races},
    {"writes_past_the_end", writes_past_the_end},
    {"writes_before_the_beginning", writes_before_the_beginning},
    {"writes_past_its_workspace", writes_past_its_workspace},
    {"changes_its_input", changes_its_input},
    {"writes_far_away", writes_far_away},
    {"is_misaligned", is_misaligned},
    {"traps", traps},
    {"asserts", asserts},
    {"loops_for_ever", loops_for_ever},
    {"ignores_its_stream", ignores_its_stream},
    {"takes_too_much_shared_memory", takes_too_much_shared_memory},
    {"takes_too_many_threads", takes_too_many_threads},
    {"uses_all_memory", uses_all_memory},
    {"needs_a_pebibyte", run_on_gpu, kPebibyte},
    {"resets_the_device", resets_the_device},
    {"is_slow", is_slow},
    {"is_wrong_later", is_wrong_later},
    {"traps_later", traps_later},
};

}  // namespace

void run_on_gpu(const DoublingProblem& problem, const DoublingArgs& args, Site site) {
  run_elements(args, problem.n, site);
  check(cudaGetLastError());
}

std::span<const Fault> gpu_faults() { return kFaults; }

}  // namespace doubling
