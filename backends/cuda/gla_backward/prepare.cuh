// The operands with which a chunk's tokens enter the state and its gradient, and the chunk's decay.
//
// Tiles hold zeros where there is no token and no channel.
#pragma once

#include "cuda/gla_backward/gates.cuh"
#include "cuda/gla_backward/launch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

/// A block per chunk, head and 64 channels.
template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads) void prepare(
    const __grid_constant__ GlaBackwardParams p) {
  __shared__ float2 decays[kBlockWarps][kWarpSize];
  take_over_from_previous_launch();
  const ChunkPlace chunk = chunk_place(p, blockIdx.x);
  if (chunk.rows == 0) return;
  const ThreadPlace at;
  const int channel = static_cast<int>(blockIdx.y) * kPanelChannels + at.channel();

  float2 logs[kRun];
  load_log_decays<T>(logs, p, chunk, at, channel);
  float2 x[kRun];
  float2 y[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const bool valid = chunk.has(at.position(i)) && channel < p.own;
    const std::int64_t token = chunk.token + chunk.row(at.position(i));
    x[i] = load_pair<T>(p.x.data, row_offset(p.x, chunk.batch, token, chunk.head) + channel, valid);
    y[i] = load_pair<T>(p.y.data, row_offset(p.y, chunk.batch, token, chunk.head) + channel, valid);
  }
  const RunDecays run(logs);
  decays[at.warp][at.lane] = run.over();
  __syncthreads();  // all warps' decays are there
  const float2 before = over_warps(decays, 0, at.warp, at.lane);
  const float2 after = over_warps(decays, at.warp + 1, kBlockWarps, at.lane);

  unsigned char* const entering = workspace_tile<kD>(p.entering_x, chunk.index);
  unsigned char* const leaving = workspace_tile<kD>(p.leaving_y, chunk.index);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const std::uint32_t byte = tile_byte(chunk.row(at.position(i)), channel);
    const float2 e = times(before, run.since[i]);
    const float2 l = times(run.until[i], after);
    *reinterpret_cast<std::uint32_t*>(entering + byte) =
        pack<T>(p.scale * e.x * x[i].x, p.scale * e.y * x[i].y);
    *reinterpret_cast<std::uint32_t*>(leaving + byte) = pack<T>(l.x * y[i].x, l.y * y[i].y);
  }
  if (at.warp == 0) {
    *reinterpret_cast<float2*>(&p.through[chunk.index * kD + channel]) = times(run.over(), after);
  }
}

template <class T, int kD>
void launch_prepare(const GlaBackwardParams& p, cudaStream_t stream) {
  launch<prepare<T, kD>>({.grid = dim3(static_cast<unsigned>(p.slots * p.heads), kD / 64),
                          .block = dim3(kBlockThreads),
                          .overlaps_previous = true},
                         stream, p);
}

}  // namespace attune::cuda::gla_backward
