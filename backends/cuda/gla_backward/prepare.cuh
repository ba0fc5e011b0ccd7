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
  __shared__ ChunkPlace chunk;
  take_over_from_previous_launch();
  if (threadIdx.x == 0) chunk = chunk_place(p, blockIdx.x);
  __syncthreads();  // the chunk's place is there
  if (chunk.rows == 0) return;
  const ThreadPlace at;
  const int channel = static_cast<int>(blockIdx.y) * kPanelChannels + at.channel();
  const unsigned valid = valid_positions(chunk, at, channel < p.own);

  float2 logs[kRun];
  std::uint32_t x[kRun];
  std::uint32_t y[kRun];
  load_pairs<T>(x, {p.x, chunk, at, channel}, valid);
  load_pairs<T>(y, {p.y, chunk, at, channel}, valid);
  load_log_decays<T>(logs, p, chunk, at, channel, valid);
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
        pack<T>(p.scale * e.x * unpack<T>(x[i]).x, p.scale * e.y * unpack<T>(x[i]).y);
    const float2 left = times(l, unpack<T>(y[i]));
    *reinterpret_cast<std::uint32_t*>(leaving + byte) = pack<T>(left.x, left.y);
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
