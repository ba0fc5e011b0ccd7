// The operands with which a chunk's tokens enter the state and its gradient, the chunk's decay, and
// whether that of a half of its tokens is strong.
//
// Rows hold zeros where there is no token, and in the channels that make them whole sectors.
#pragma once

#include "cuda/gla/decays.cuh"
#include "cuda/gla/flow_arrivals.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda::gla {

/// How much of the log decays of this warp's tokens, base 2, channels share, whatever its signs.
/// That may be above 0, or far below it, where each channel's own gate takes it back. Channels that
/// tiles have and heads have not are zeros, which must not be scaled by infinity.
template <class T, class Place>
__device__ __forceinline__ float size_of_shared_decays(const GlaParams& p, const HeadChunk& chunk,
                                                       const Place& at) {
  float2 logs[kRun] = {};
  add_shared_decays<T>(logs, p, chunk, at, valid_positions(chunk, at, true));
  float size = 0.0F;
#pragma unroll
  for (int i = 0; i < kRun; ++i) size += fabsf(logs[i].x) * kLog2E;
  return size;
}

/// Of what blocks, or walks, have done of a chunk: nothing.
__device__ __forceinline__ void begin_counts(const GlaParams& p, const HeadChunk& chunk) {
  if (p.parts_done != nullptr) p.parts_done[chunk.index] = 0;
  if (p.flow_arrivals != nullptr) p.flow_arrivals[chunk.index] = 0;
}

template <class T>
__device__ __forceinline__ void store_pair(T* to, std::uint32_t pair, bool has_room) {
  if (has_room) *reinterpret_cast<std::uint32_t*>(to) = pair;
}

/// A block's work, two channels a lane.
template <class T, int kLanes>
__device__ __forceinline__ void prepare_chunk(const GlaParams& p) {
  __shared__ float2 logs_over[kBlockWarps][kLanes];
  __shared__ float shared_over[kBlockWarps];  // sizes of what channels share
  __shared__ HeadChunk chunk;
  const auto panels = static_cast<unsigned>(p.own_panels());
  const int panel = static_cast<int>(blockIdx.x % panels);
  if (threadIdx.x == 0) {
    const unsigned index = chunk_of_block(p, blockIdx.x / panels);
    if (panel == 0 && p.slots_by_arrival != nullptr && index < p.slots) note_arrival(p, index);
    chunk = head_chunk(p, index);
  }
  __syncthreads();  // the chunk is known
  if (chunk.rows == 0) return;
  const RunLanes<kLanes> at;
  const int channel = panel * kPanelChannels + at.channel();
  const unsigned valid = valid_positions(chunk, at, channel < p.own);

  float2 logs[kRun];
  std::uint32_t x[kRun];
  std::uint32_t y[kRun];
  const unsigned entering = chunk.has_flows ? valid : 0;
  load_pairs<T>(x, {p.x, chunk, at, channel}, entering);
  load_pairs<T>(y, {p.y, chunk, chunk.kv_head, at, channel}, entering);
  load_log_decays<T>(logs, p, chunk, at, channel, valid);
  logs_over[at.warp][at.lane] = sum_of(logs);
  const bool has_missing = (panel + 1) * kPanelChannels > p.own;
  if (has_missing) {
    const float size = size_of_shared_decays<T>(p, chunk, at);
    if (at.lane == 0) shared_over[at.warp] = size;
  }
  __syncthreads();  // all warps' decays are there
  float2 before{0.0F, 0.0F};
  float2 after{0.0F, 0.0F};
  float2 half{0.0F, 0.0F};  // that with this warp's tokens
  float shared_half = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kBlockWarps; ++warp) {
    const float2 over = logs_over[warp][at.lane];
    if (warp < at.warp) add(before, over);
    if (warp > at.warp) add(after, over);
    if (warp / (kBlockWarps / 2) != at.warp / (kBlockWarps / 2)) continue;
    add(half, over);
    if (has_missing) shared_half += shared_over[warp];
  }

  const bool weak = half.x >= kStrongDecay && half.y >= kStrongDecay &&
                    shared_half <= -kStrongDecay;  // not of a NaN
  const int strong = __syncthreads_or(weak ? 0 : 1);
  if (threadIdx.x == 0) p.strong[chunk.index * panels + panel] = strong;
  if (threadIdx.x == 0 && panel == 0) begin_counts(p, chunk);
  if (!chunk.has_flows) return;

  using Pairs = RunRows<T>;
  const bool has_room = channel < p.own_rows.channels;
  const Pairs x_from_start(p.own_rows, GlaParams::kXFromStart, chunk, at, channel);
  const Pairs y_to_end(p.own_rows, GlaParams::kYToEnd, chunk, at, channel);
  float2 decay[kRun];
  float2 since = times({p.scale, p.scale}, exp2_of(before));
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    decay[i] = exp2_of(logs[i]);
    since = times(since, decay[i]);
    const float2 entered = times(since, unpack<T>(x[i]));
    store_pair(x_from_start.row(i), pack<T>(entered.x, entered.y), has_room);
  }
  float2 until = exp2_of(after);
#pragma unroll
  for (int i = kRun - 1; i >= 0; --i) {
    const float2 left = times(until, unpack<T>(y[i]));
    store_pair(y_to_end.row(i), pack<T>(left.x, left.y), has_room);
    until = times(until, decay[i]);
  }
  // No channel that is not there survives the chunk; what walks have in the place of those that no
  // block has stays zero.
  if (channel >= p.own) until.x = 0.0F;
  if (channel + 1 >= p.own) until.y = 0.0F;
  // By threads that number themselves anew: nothing waited in registers for this.
  constexpr int kChannels = 2 * kLanes;
  const int thread = unknown_thread();
  const int first = panel * kPanelChannels + thread * 2;  // of the same channels, kChannels a warp
  const bool is_last = panel + 1 == p.own_panels();
  const int end = is_last ? own_channels(p) : panel * kPanelChannels + kChannels;
  if (first >= end) return;
  *reinterpret_cast<float2*>(&p.total_decay[chunk.index * own_channels(p) + first]) =
      thread < kLanes ? until : float2{0.0F, 0.0F};
}

inline constexpr int kPrepareBlocks = 4;  // of a multiprocessor: half of a block's time is loads

/// A block per chunk, head and 64 channels, or of a head that has no more of 16 or 32. Of two sides the
/// second launch runs beside the first, behind whose last blocks it starts, which have waited for the
/// gates' shifts; what comes next waits for it alone.
template <class T, int kLanes>
__global__ __launch_bounds__(kBlockWarps* kLanes,
                             kPrepareBlocks* kWarpSize /
                                 kLanes) void prepare(const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  if (!p.prepared_beside_other) dependency_wait();
  dependents_launch();
  prepare_chunk<T, kLanes>(p);
  if (p.prepared_beside_other) dependency_wait();
#endif
}

/// Lanes that two channels of a row each are enough for.
inline int lanes_of(int channels) {
  return channels > kWarpSize       ? kWarpSize
         : channels > kWarpSize / 2 ? kWarpSize / 2
                                    : kWarpSize / 4;
}

template <class T>
void launch_prepare(const GlaParams& p, cudaStream_t stream) {
  with_value<8, 16, 32>(lanes_of(p.own_rows.channels), [&]<int kLanes>() {
    launch<prepare<T, kLanes>>(
        {.grid = dim3(static_cast<unsigned>(p.walked_slots() * p.heads * p.own_panels())),
         .block = dim3(kBlockWarps * kLanes),
         .overlaps_previous = true},
        stream, p);
  });
}

// ---- where both sides have gates
//
// Only the sum of a key's and a value's counts: the largest gate of a token's values is taken from
// them and given to its keys. A sum of at most 0 is then one of two such numbers.

inline constexpr int kShiftThreads = 256;

/// So many lanes for each head of each token, of all batches.
template <class T, int kLanes>
__global__ __launch_bounds__(kShiftThreads) void find_gate_shifts(
    const __grid_constant__ GlaParams p, std::int64_t rows, float* gate_shift) {
  take_over_from_previous_launch();
  const std::int64_t row =
      std::int64_t{blockIdx.x} * (kShiftThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float most = -INFINITY;
  if (row < rows) {
    const std::int64_t of_tokens = quotient(row, p.heads);
    const std::int64_t batch = quotient(of_tokens, p.sequences.tokens);
    const std::int64_t first =
        row_offset(p.channel_gate.rows, batch, of_tokens - batch * p.sequences.tokens,
                   row - of_tokens * p.heads);
#pragma unroll 4
    for (int i = lane; i < p.own; i += kLanes) {
      most = fmaxf(most, gate_at<T>(p.channel_gate, first + i));
    }
  }
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, apart));
  }
  if (lane == 0 && row < rows) gate_shift[row] = isfinite(most) ? most : 0.0F;
}

template <class T>
void launch_gate_shifts(const GlaParams& values, std::int64_t tokens, float* gate_shift,
                        cudaStream_t stream) {
  const std::int64_t rows = tokens * values.heads;
  // Half as many: a lane loads four channels at once, and a row's lanes then meet in fewer steps.
  with_value<8, 16, 32>(lanes_of(values.own / 2), [&]<int kLanes>() {
    launch<find_gate_shifts<T, kLanes>>(
        {.grid = dim3(static_cast<unsigned>(ceil_div(rows, kShiftThreads / kLanes))),
         .block = dim3(kShiftThreads),
         .overlaps_previous = true},
        stream, values, rows, gate_shift);
  });
}

}  // namespace attune::cuda::gla
