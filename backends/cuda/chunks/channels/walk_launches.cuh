// The launches of walk.cuh: with segments, what goes ahead of the walk, and the walk.
#pragma once

#include <algorithm>

#include "cuda/chunks/channels/segment_join.cuh"
#include "cuda/chunks/channels/walk.cuh"
#include "cuda/chunks/segment_starts.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::channels {

template <class Shape>
SegmentSums sums_of(const Params& p) {
  const int values = p.value_tiles * Shape::kValues;
  return {.states = p.segment_states,
          .key_decays = Shape::kKeysDecay ? p.segment_decays : nullptr,
          .value_decays = Shape::kValuesDecay ? p.segment_value_decays : nullptr,
          .value_row = values,
          .owners = p.sequence_count * p.heads * p.slices,
          .places = saved_states_of(p.segments),
          .count = p.segments - 1,
          .keys = Shape::kKeys,
          .values = values};
}

/// Nothing is published.
inline __global__ void begin_publications(const LateStarts late) {
#if __CUDA_ARCH__ >= 900
  dependents_launch();
#endif
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < late.flags; i += step) late.published[i] = 0;
}

/// Queues a part, or everything: with more than one segment, what finds their states first.
template <class T, Gated kGated, Products kProducts, class Advance, class Config>
void launch_walks(const Params& params, const Config& config, cudaStream_t stream) {
  with_shape<kProducts, kGated>(params.slice_keys, config, [&]<class Shape>() {
    const std::size_t kept_bytes =
        static_cast<std::size_t>(params.late.in_shared) * Shape::kKeyTileBytes;
    const auto launch_walk = [&]<bool kWithOutputs, WalkedIn kIn>(int segments) {
      launch<walk_chunks<T, Shape, kWithOutputs, kIn, Advance>>(
          {.grid = dim3(block_count(params, segments), static_cast<unsigned>(params.slices)),
           .block = Shape::kBlockThreads,
           .shared_bytes = shared_bytes<Shape>(params.stages) + kept_bytes,
           .overlaps_previous = kIn == WalkedIn::kLateStarts},
          stream, params);
    };
    const bool sums =
        params.is_cut() ? params.part != Part::kWalk : params.part == Part::kSummaries;
    launch_part_places(params, stream);
    if constexpr (Shape::kHasLateStarts) {
      if (params.late.are_given()) {
        constexpr std::int64_t kThreads = 256, kMostBlocks = 16;
        const std::int64_t blocks =
            std::min((params.late.flags + kThreads - 1) / kThreads, kMostBlocks);
        launch<begin_publications>(
            {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)}, stream,
            params.late);
        return launch_walk.template operator()<true, WalkedIn::kLateStarts>(params.segments);
      }
    }
    if (sums) {
      // Parts are of walks here, as those of late starts have no launch ahead of them.
      constexpr WalkedIn kCut = Shape::kHasLateStarts ? WalkedIn::kSegments : WalkedIn::kParts;
      with_value<WalkedIn::kSegments, kCut>(
          params.parts.tokens > 0 ? kCut : WalkedIn::kSegments, [&]<WalkedIn kIn>() {
            launch_walk.template operator()<false, kIn>(first_launch_blocks(params));
          });
    }
    if (params.part == Part::kSummaries) {
      if constexpr (!Shape::kValuesDecay) {
        constexpr int kWords = Shape::kKeys / 8;
        launch<join_segments<Shape>>(
            {.grid = block_count(params, kWords), .block = Shape::kStateThreads}, stream, params);
      }
      return;
    }
    if (params.has_starts) launch_segment_starts(sums_of<Shape>(params), stream);
    with_value_of<kWalkedIn>(walked_in(params), [&]<WalkedIn kIn>() {
      launch_walk.template operator()<true, kIn>(params.segments);
    });
  });
}

}  // namespace attune::cuda::channels
