#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cub/warp/warp_reduce.cuh>

#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/segment_fold.hpp"
#include "cuda/walks/segments.cuh"

namespace attune::cuda {
inline namespace segment_fold_kernels {  // nvcc names an anonymous one anew in every build

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

/// a times b.
__device__ __forceinline__ DecayFactor product(const DecayFactor& a, const DecayFactor& b) {
  const float high = a.high * b.high;
  const float rounded_away = fmaf(a.high, b.high, -high);
  return {high, fmaf(a.high, b.low, fmaf(a.low, b.high, rounded_away))};
}

/// The log decays of one channel of a gate over every kStep-th step of [first, end).
template <class T, int kStep>
__device__ __forceinline__ float sum_of_gate(const WalkParams& p, const SequenceSegment& segment,
                                             const GateView& gate, std::int64_t head,
                                             std::int64_t channel, std::int64_t first,
                                             std::int64_t end) {
  const SequenceSpan& span = segment.span;
  const auto at = [&](std::int64_t step) {
    const std::int64_t from_begin = p.descending ? span.length - 1 - step : step;
    return row_offset(gate.rows, span.batch, span.begin + from_begin, head) + channel;
  };
  constexpr int kUnroll = 8;  // loads in flight
  float sum = 0.0F;
#pragma unroll kUnroll
  for (std::int64_t step = first; step < end; step += kStep) sum += gate_at<T>(gate, at(step));
  return sum;
}

/// A block finds the factors of one segment and head for up to 32 rows or columns: lanes take
/// channels, warps every eighth token.
template <class T>
__global__ __launch_bounds__(kThreads) void segment_factors(const __grid_constant__ WalkParams p) {
  using Reduce = cub::WarpReduce<float>;
  __shared__ typename Reduce::TempStorage scratch[kWarps];
  __shared__ float shared_sums[kWarps];
  __shared__ float channel_sums[kWarps][kWarpSize];

  const bool row_gates = p.row_gate.view.given();
  const bool column_gates = p.column_gate.view.given();
  const std::int64_t row_chunks = row_gates ? ceil_div(p.rows, kWarpSize) : 1;
  const std::int64_t chunks = row_chunks + (column_gates ? ceil_div(p.columns, kWarpSize) : 0);
  const std::int64_t number = block_number();
  const std::int64_t of_all = quotient(number, chunks);
  const std::int64_t part = quotient(of_all, p.heads);
  const std::int64_t head = of_all - part * p.heads;
  SequenceSegment segment;
  if (!find_segment(p, part, segment)) return;
  if (segment.is_first() || !has_sum(p.segments, segment.is_last)) return;

  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t own_chunk = number - of_all * chunks;
  const bool of_rows = own_chunk < row_chunks;
  const std::int64_t chunk = own_chunk - (of_rows ? 0 : row_chunks);
  const std::int64_t channel = chunk * kWarpSize + lane;
  const std::int64_t width = of_rows ? (row_gates ? p.rows : 1) : p.columns;
  const GateView& gate = of_rows ? p.row_gate.view : p.column_gate.view;
  // No first segment is here, so the token before it exists.
  const std::int64_t first = segment.first - (p.lags ? 1 : 0);
  const std::int64_t end = segment.end - (p.lags ? 1 : 0);

  float shared = 0.0F;
  if (of_rows && p.shared_gate.given()) {
    shared = sum_of_gate<T, kThreads>(p, segment, p.shared_gate, head, 0, first + threadIdx.x, end);
  }
  shared = Reduce(scratch[warp]).Sum(shared);
  if (lane == 0) shared_sums[warp] = shared;
  const bool has_channel = gate.given() && channel < width;
  channel_sums[warp][lane] =
      has_channel ? sum_of_gate<T, kWarps>(p, segment, gate, head, channel, first + warp, end)
                  : 0.0F;
  __syncthreads();  // all sums are there
  if (warp > 0 || channel >= width) return;
  const float gamma = constant_decay(p.gamma, segment.sequence, head);
  float log = of_rows ? gamma * static_cast<float>(end - first) : 0.0F;
  for (int i = 0; i < kWarps; ++i) log += channel_sums[i][lane] + shared_sums[i];
  auto* const factors =
      reinterpret_cast<DecayFactor*>(of_rows ? p.segments.row_factors : p.segments.column_factors);
  factors[(segment.part * p.heads + head) * width + channel] = decay_factor(log);
}

/// One element of a head's state in all segments of a sequence.
struct FoldedElement {
  float* states = nullptr;  // behind segment 0
  const DecayFactor* row_factors = nullptr;
  const DecayFactor* column_factors = nullptr;
  std::int64_t state_stride = 0;  // from segment to segment
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  __device__ DecayFactor factor(std::int64_t segment) const {
    const DecayFactor row = row_factors[segment * row_stride];
    return column_factors == nullptr ? row : product(row, column_factors[segment * column_stride]);
  }
};

__device__ FoldedElement element_of(const WalkParams& p, std::int64_t part, std::int64_t head,
                                    std::int64_t element) {
  const std::int64_t row = quotient(element, p.columns);
  const std::int64_t column = element - row * p.columns;
  const std::int64_t first = part * p.heads + head;
  const std::int64_t width = p.row_gate.view.given() ? p.rows : 1;
  FoldedElement e;
  e.state_stride = p.heads * p.rows * p.columns;
  e.states = p.segments.states + first * p.rows * p.columns + element;
  e.row_stride = p.heads * width;
  e.row_factors = reinterpret_cast<const DecayFactor*>(p.segments.row_factors) + first * width +
                  (width > 1 ? row : 0);
  if (p.column_gate.view.given()) {
    e.column_stride = p.heads * p.columns;
    e.column_factors = reinterpret_cast<const DecayFactor*>(p.segments.column_factors) +
                       first * p.columns + column;
  }
  return e;
}

/// Calls visit(segment, factor, sum) for segments [first, end), with the loads of a batch in flight
/// at once.
template <class Visit>
__device__ __forceinline__ void for_each_segment(const FoldedElement& e, std::int64_t first,
                                                 std::int64_t end, Visit&& visit) {
  constexpr int kBatch = 8;
  for (std::int64_t batch = first; batch < end; batch += kBatch) {
    DecayFactor factors[kBatch];
    float sums[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::int64_t at = min(batch + i, end - 1);
      factors[i] = e.factor(at);
      sums[i] = e.states[at * e.state_stride];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (batch + i < end) visit(batch + i, factors[i], sums[i]);
    }
  }
}

/// Copies an element of what a sequence starts from to the place of its last segment (start_of()).
__device__ __forceinline__ void copy_start(const WalkParams& p, std::int64_t sequence,
                                           std::int64_t last_part, std::int64_t head,
                                           std::int64_t element) {
  const ConstStateView from = state_of(p.initial, sequence);
  const std::int64_t at =
      head * from.head + element / p.columns * from.k + element % p.columns * from.v;
  p.segments.states[(last_part * p.heads + head) * p.rows * p.columns + element] =
      from.data == nullptr ? 0.0F : from.data[at];
}

/// Writes an element of the state that a sequence ends with.
__device__ __forceinline__ void store_final(const WalkParams& p, std::int64_t sequence,
                                            std::int64_t head, std::int64_t element, float value) {
  const StateView to = state_of(p.final, sequence);
  if (to.data == nullptr) return;
  to.data[head * to.head + element / p.columns * to.k + element % p.columns * to.v] = value;
}

/// A block folds some elements of one head's state, a thread an element of one of kRuns runs of
/// segments. The runs are first reduced to a factor and a sum each, then every one starts where the
/// one before it ends.
template <int kRuns>
__global__ __launch_bounds__(kThreads) void fold_segments(const __grid_constant__ WalkParams p) {
  constexpr int kElements = kThreads / kRuns;
  __shared__ DecayFactor run_factors[kRuns][kElements];
  __shared__ float run_sums[kRuns][kElements];
  const std::int64_t elements = p.rows * p.columns;
  const std::int64_t tiles = ceil_div(elements, kElements);
  const std::int64_t number = block_number();
  const std::int64_t of_all = quotient(number, tiles);
  const std::int64_t sequence = quotient(of_all, p.heads);
  const std::int64_t head = of_all - sequence * p.heads;
  if (sequence >= p.sequence_count) return;
  const SequenceSpan span = span_of(p.sequences, sequence);
  if (span.is_left_out) return;
  const bool final_only = p.segments.final_only;
  const std::int64_t sums = segment_count(p, span.length) - (has_sum(p.segments, true) ? 0 : 1);
  const int own_run = static_cast<int>(threadIdx.x) / kElements;
  const int place = static_cast<int>(threadIdx.x) % kElements;
  const std::int64_t index = (number - of_all * tiles) * kElements + place;
  const std::int64_t part = first_part(p.sequences, sequence, span, p.segments.tokens);
  if (p.ends_where_it_starts() && !final_only && sums > 0 && own_run == 0 && index < elements) {
    copy_start(p, sequence, part + sums, head, index);
  }
  if (sums < 2 && !final_only) return;  // the first is a state already

  const FoldedElement e = element_of(p, part, head, min(index, elements - 1));
  const std::int64_t per_run = ceil_div(sums - 1, kRuns);
  const std::int64_t first = 1 + own_run * per_run;
  const std::int64_t end = min(first + per_run, sums);

  float state = e.states[0];
  if constexpr (kRuns > 1) {
    DecayFactor run;
    float run_sum = 0.0F;
    for_each_segment(e, first, end, [&](std::int64_t, const DecayFactor& factor, float sum) {
      run = product(factor, run);
      run_sum = decayed_sum(factor, run_sum, sum);
    });
    run_factors[own_run][place] = run;
    run_sums[own_run][place] = run_sum;
    __syncthreads();  // all runs are reduced
    for (int i = 0; i < own_run; ++i)
      state = decayed_sum(run_factors[i][place], state, run_sums[i][place]);
  }
  if (index >= elements) return;
  for_each_segment(e, first, end, [&](std::int64_t segment, const DecayFactor& factor, float sum) {
    state = decayed_sum(factor, state, sum);
    if (!final_only) e.states[segment * e.state_stride] = state;
  });
  if (final_only && own_run == kRuns - 1) store_final(p, sequence, head, index, state);
}

}  // namespace segment_fold_kernels

template <class T>
void launch_segment_fold(const WalkParams& p, cudaStream_t stream) {
  const std::int64_t chunks = (p.row_gate.view.given() ? ceil_div(p.rows, kWarpSize) : 1) +
                              (p.column_gate.view.given() ? ceil_div(p.columns, kWarpSize) : 0);
  launch<segment_factors<T>>({.grid = grid_of(p.parts() * p.heads * chunks), .block = kThreads},
                             stream, p);
  // Of packed sequences one may have almost all segments.
  constexpr std::int64_t kMostOfOneRun = 16;
  const std::int64_t sequences = p.sequences.bounds != nullptr ? 1 : p.sequence_count;
  const int runs = p.parts() > kMostOfOneRun * sequences ? kWarps : 1;
  with_value<1, kWarps>(runs, [&]<int kRuns>() {
    const std::int64_t tiles = ceil_div(p.rows * p.columns, kThreads / kRuns);
    launch<fold_segments<kRuns>>(
        {.grid = grid_of(p.sequence_count * p.heads * tiles), .block = kThreads}, stream, p);
  });
}

template void launch_segment_fold<float>(const WalkParams&, cudaStream_t);
template void launch_segment_fold<__half>(const WalkParams&, cudaStream_t);
template void launch_segment_fold<__nv_bfloat16>(const WalkParams&, cudaStream_t);

}  // namespace attune::cuda
