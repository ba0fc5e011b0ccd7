// The launch of the segments' states.
#pragma once

#include "cuda/chunk_wgmma/backward/launch.hpp"
#include "cuda/chunk_wgmma/backward/segment_states.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::chunk_backward {

template <class T, int kD>
void launch_segment_instance(const ChunkBackwardParams& params, cudaStream_t stream) {
  constexpr unsigned kDirections = 2;
  const std::int64_t blocks = params.walks / params.segments * (params.segments - 1);
  launch<segment_states<T, kD>>({.grid = dim3(static_cast<unsigned>(blocks), kDirections),
                                 .block = dim3(SegmentRoles<kD>::kThreads),
                                 .shared_bytes = sizeof(SegmentShared<kD>),
                                 .overlaps_previous = true},
                                stream, params);
}

template <class T>
void launch_segment_states(const ChunkBackwardParams& params, const ChunkBackwardShape& shape,
                           cudaStream_t stream) {
  shape.channels == 64 ? launch_segment_instance<T, 64>(params, stream)
                       : launch_segment_instance<T, 128>(params, stream);
}

}  // namespace attune::cuda::chunk_backward
