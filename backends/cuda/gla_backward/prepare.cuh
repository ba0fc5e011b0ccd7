// The operands with which a chunk's tokens enter the state and its gradient, the chunk's decay, and
// whether that of any 16 tokens is strong.
//
// Tiles hold zeros where there is no token and no channel.
#pragma once

#include "cuda/gla_backward/gates.cuh"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

/// Of 16 tokens, base 2: the inverse of a weaker one, and products with that, are finite.
inline constexpr float kStrongDecay = -90;

/// A block per chunk, head and 64 channels.
template <class T>
__global__ __launch_bounds__(kBlockThreads) void prepare(
    const __grid_constant__ GlaBackwardParams p) {
  __shared__ float2 logs_over[kBlockWarps][kWarpSize];
  __shared__ ChunkPlace chunk;
  const auto panels = static_cast<unsigned>(own_panels(p));
  const int panel = static_cast<int>(blockIdx.x % panels);
  take_over_from_previous_launch();
  if (threadIdx.x == 0) chunk = chunk_place(p, chunk_of_block(p, blockIdx.x / panels));
  __syncthreads();  // the chunk's place is there
  if (chunk.rows == 0) return;
  const ThreadPlace at;
  const int channel = panel * kPanelChannels + at.channel();
  const unsigned valid = valid_positions(chunk, at, channel < p.own);

  float2 logs[kRun];
  std::uint32_t x[kRun];
  std::uint32_t y[kRun];
  load_pairs<T>(x, {p.x, chunk, at, channel}, valid);
  load_pairs<T>(y, {p.y, chunk, chunk.group, at, channel}, valid);
  load_log_decays<T>(logs, p, chunk, at, channel, valid);
  logs_over[at.warp][at.lane] = sum_of(logs);
  const RunDecays run(logs);
  __syncthreads();  // all warps' decays are there
  float2 before{0.0F, 0.0F};
  float2 after{0.0F, 0.0F};
  float2 block = logs_over[at.warp ^ 1][at.lane];
  add(block, logs_over[at.warp][at.lane]);
#pragma unroll
  for (int warp = 0; warp < kBlockWarps; ++warp) {
    const float2 over = logs_over[warp][at.lane];
    if (warp < at.warp) add(before, over);
    if (warp > at.warp) add(after, over);
  }
  before = exp2_of(before);
  after = exp2_of(after);

  const float2 from_before = times({p.scale, p.scale}, before);
  const auto entering =
      rows_of(workspace_tile(p, p.entering_x, chunk.index, p.own_parts), channel, chunk, at);
  const auto leaving =
      rows_of(workspace_tile(p, p.leaving_y, chunk.index, p.own_parts), channel, chunk, at);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const float2 entered = times(times(from_before, run.since[i]), unpack<T>(x[i]));
    const float2 left = times(times(run.until[i], after), unpack<T>(y[i]));
    *reinterpret_cast<std::uint32_t*>(entering.row(i)) = pack<T>(entered.x, entered.y);
    *reinterpret_cast<std::uint32_t*>(leaving.row(i)) = pack<T>(left.x, left.y);
  }
  const bool weak = block.x >= kStrongDecay && block.y >= kStrongDecay;  // not of a NaN
  const int strong = __syncthreads_or(weak ? 0 : 1);
  if (threadIdx.x == 0) p.strong[chunk.index * panels + panel] = strong;
  if (at.warp == 0) {
    *reinterpret_cast<float2*>(&p.through[chunk.index * own_channels(p) + channel]) =
        times(run.over(), after);
  }
}

template <class T>
void launch_prepare(const GlaBackwardParams& p, cudaStream_t stream) {
  launch<prepare<T>>({.grid = dim3(static_cast<unsigned>(p.slots * p.heads * own_panels(p))),
                      .block = dim3(kBlockThreads),
                      .overlaps_previous = true},
                     stream, p);
}

}  // namespace attune::cuda::gla_backward
