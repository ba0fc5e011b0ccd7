// The launch of the kernel of pairs.
#pragma once

#include "cuda/gla_backward/launch.hpp"
#include "cuda/gla_backward/pairs.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::gla_backward {

/// A block per chunk and head.
template <class T, int kD>
__global__ __launch_bounds__(kBlockThreads,
                             2) void pairs(const __grid_constant__ GlaBackwardParams p) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<PairsShared<kD>*>(shared_bytes);
  take_over_from_previous_launch();
  if (threadIdx.x == 0) shared.chunk = chunk_place(p, blockIdx.x);
  __syncthreads();  // the chunk's place is there
  if (shared.chunk.rows == 0) {
    if (p.dgamma_parts != nullptr && threadIdx.x == 0) p.dgamma_parts[blockIdx.x] = 0.0F;
    return;
  }
  Pairs<T, kD> block(p, shared);
  block.start_load(shared.u, p.u);
  block.start_load(shared.z, p.z);
  copy_async_commit();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockWarps * kRun * kRun; i += kBlockThreads) {
    (&shared.a_near[0][0][0])[i] = 0.0F;
  }
  copy_async_wait<0>();
  __syncthreads();  // all rows of u and z are there
  block.make_p();
#pragma unroll 1
  for (int panel = 0; panel * kPanelChannels < p.own; ++panel) block.take_channels(panel);
  block.put_shared_gradients();
  block.make_a();
  __syncthreads();  // A is there, and the halves are free
  block.template make_other<true>(p.dz, shared.u, p.z_flow);
  if (p.du.data != nullptr) block.template make_other<false>(p.du, shared.z, p.u_flow);
}

template <class T, int kD>
void launch_pairs(const GlaBackwardParams& p, cudaStream_t stream) {
  launch<pairs<T, kD>>({.grid = dim3(static_cast<unsigned>(p.slots * p.heads)),
                        .block = dim3(kBlockThreads),
                        .shared_bytes = sizeof(PairsShared<kD>),
                        .overlaps_previous = true},
                       stream, p);
}

}  // namespace attune::cuda::gla_backward
