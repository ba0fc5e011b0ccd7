#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/runtime/launch.hpp"
#include "cuda/walks/decay_sums.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda {
inline namespace decay_sums_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kUnroll = 8;  // loads in flight

/// One channel of one head of a gate.
struct GateColumn {
  GateView gate;
  std::int64_t offset = 0;  // from the start of a token
};

__device__ __forceinline__ GateColumn column_of(const DecaySumParams& p, std::int64_t column) {
  const auto of = [](const GateView& gate, std::int64_t at, std::int64_t width) {
    return GateColumn{gate, at / width * gate.rows.head + at % width};
  };
  if (column < p.shared_columns()) return of(p.shared_gate, column, 1);
  column -= p.shared_columns();
  if (column < p.key_columns()) return of(p.key_gate, column, p.keys);
  return of(p.value_gate, column - p.key_columns(), p.values);
}

/// The sum of `count` elements, `stride` apart.
template <class Element>
__device__ __forceinline__ double strided_sum(const Element* at, std::int64_t stride,
                                              std::int64_t count) {
  double sum = 0.0;
#pragma unroll kUnroll
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(to_float(at[i * stride]));
  return sum;
}

/// A block sums up one part for 32 columns: lanes take columns, warps every eighth token.
template <class T>
__global__ __launch_bounds__(kThreads) void sum_parts(const __grid_constant__ DecaySumParams p) {
  __shared__ double sums[kWarps][kWarpSize];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t chunks = ceil_div(p.columns(), kWarpSize);
  const std::int64_t part = block_number() / chunks;
  const std::int64_t column = block_number() % chunks * kWarpSize + lane;
  if (part >= p.part_count()) return;
  const std::int64_t n = sequence_of_part(p.sequences, p.sequence_count, part, kTokensOfDecaySum);
  const SequenceSpan span = span_of(p.sequences, n);
  const std::int64_t first =
      (part - first_part(p.sequences, n, span, kTokensOfDecaySum)) * kTokensOfDecaySum;
  if (first < 0 || first >= span.length) return;
  const std::int64_t tokens = min(kTokensOfDecaySum, span.length - first);

  double sum = 0.0;
  if (column < p.columns()) {
    const GateColumn from = column_of(p, column);
    const ConstTokenView& rows = from.gate.rows;
    const std::int64_t at =
        span.batch * rows.batch + (span.begin + first + warp) * rows.token + from.offset;
    const std::int64_t stride = kWarps * rows.token;
    const std::int64_t count = ceil_div(tokens - warp, kWarps);
    sum = from.gate.is_f32 ? strided_sum(static_cast<const float*>(rows.data) + at, stride, count)
                           : strided_sum(static_cast<const T*>(rows.data) + at, stride, count);
  }
  sums[warp][lane] = sum;
  __syncthreads();  // all warps have their sums
  if (warp > 0 || column >= p.columns()) return;
  for (int i = 1; i < kWarps; ++i) sum += sums[i][lane];
  p.parts[part * p.columns() + column] = sum;
}

/// The sums of the parts of one sequence.
struct SequenceParts {
  const double* first = nullptr;
  std::int64_t columns = 0;
  std::int64_t count = 0;

  __device__ double sum(std::int64_t column) const {
    double sum = 0.0;
#pragma unroll kUnroll
    for (std::int64_t i = 0; i < count; ++i) sum += first[i * columns + column];
    return sum;
  }
};

/// A thread a channel of the keys or values of a head: adds up its parts.
__global__ __launch_bounds__(kThreads) void add_parts(const __grid_constant__ DecaySumParams p) {
  const std::int64_t width = p.keys + p.values;
  const std::int64_t number = block_number() * kThreads + threadIdx.x;
  const std::int64_t n = number / width / p.heads;
  if (n >= p.sequence_count) return;
  const std::int64_t head = number / width % p.heads;
  const std::int64_t channel = number % width;
  const SequenceSpan span = span_of(p.sequences, n);
  const std::int64_t first = first_part(p.sequences, n, span, kTokensOfDecaySum);
  const SequenceParts parts{p.parts + first * p.columns(), p.columns(),
                            ceil_div(span.length, kTokensOfDecaySum)};

  if (channel >= p.keys) {
    const std::int64_t value = channel - p.keys;
    const StateView to = state_of(p.value_sums, n);
    to.data[head * to.head + value * to.v] = static_cast<float>(
        parts.sum(p.shared_columns() + p.key_columns() + head * p.values + value));
    return;
  }
  double sum = 0.0;
  if (span.length > 0) {
    sum = static_cast<double>(constant_decay(p.gamma, n, head)) * static_cast<double>(span.length);
  }
  if (p.shared_gate.given()) sum += parts.sum(head);
  if (p.key_gate.given()) sum += parts.sum(p.shared_columns() + head * p.keys + channel);
  const StateView to = state_of(p.key_sums, n);
  to.data[head * to.head + channel * to.k] = static_cast<float>(sum);
}

}  // namespace decay_sums_kernels

template <class T>
void launch_decay_sums(const DecaySumParams& p, cudaStream_t stream) {
  const std::int64_t chunks = ceil_div(p.columns(), kWarpSize);
  launch<sum_parts<T>>({.grid = grid_of(p.part_count() * chunks), .block = kThreads}, stream, p);
  const std::int64_t outputs = p.sequence_count * p.heads * (p.keys + p.values);
  launch<add_parts>({.grid = grid_of(ceil_div(outputs, kThreads)), .block = kThreads}, stream, p);
}

template void launch_decay_sums<float>(const DecaySumParams&, cudaStream_t);
template void launch_decay_sums<__half>(const DecaySumParams&, cudaStream_t);
template void launch_decay_sums<__nv_bfloat16>(const DecaySumParams&, cudaStream_t);

}  // namespace attune::cuda
