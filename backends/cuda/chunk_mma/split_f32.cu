#include "split_walk.cuh"

namespace attune::cuda {
namespace {

/// Calls f.operator()<Shape>(). The config fits.
template <class F>
void dispatch_split_shape(const SegmentWalkParams& params, const ChunkMmaConfig& config, F&& f) {
  dispatch(config, [&]<class Config>() {
    if constexpr (is_compiled_split(kMostSplitKeys, Config::kValue)) {
      if (padded_keys(params.key_channels) == 64) {
        f.template operator()<Shape<64, Config>>();
      } else {
        f.template operator()<Shape<128, Config>>();
      }
    }
  });
}

}  // namespace

void launch_split_walk(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                       cudaStream_t stream) {
  dispatch_split_shape(params, config, [&]<class Shape>() {
    launch<chunk_mma_split<Shape>>({.grid = block_count(params, params.segments),
                                    .block = Shape::kThreads,
                                    .shared_bytes = split_shared_bytes(Shape::kKeys, config)},
                                   stream, params);
  });
}

void launch_split_segment_states(const SegmentWalkParams& params, const ChunkMmaConfig& config,
                                 cudaStream_t stream) {
  SegmentWalkParams narrow = params;
  narrow.value_tiles = params.value_tiles * config.warps / kSegmentWarps;
  dispatch_split_shape(params, segment_config(config), [&]<class Shape>() {
    if constexpr (Shape::kConfig.warps == kSegmentWarps) {
      launch<chunk_mma_split_segment_states<Shape>>(
          {.grid = block_count(narrow, narrow.segments - 1),
           .block = Shape::kThreads,
           .shared_bytes = 2 * (SplitStage<Shape, false>::kBytes + sizeof(SplitDecays))},
          stream, narrow);
    }
  });
}

}  // namespace attune::cuda
