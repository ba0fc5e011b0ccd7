// From what a launch asks for to the instance of a kernel that does it.
#pragma once

#include "cuda/runtime/launch.hpp"
#include "shape.cuh"

namespace attune::cuda {

/// Calls f.operator()<Shape>(). The config fits.
template <class F>
void dispatch_shape(const SegmentWalkParams& params, const ChunkMmaConfig& config, F&& f) {
  const auto with_keys = [&]<int kKeys>() {
    dispatch(config, [&]<class Config>() {
      if constexpr (is_compiled(kKeys, Config::kValue))
        f.template operator()<Shape<kKeys, Config>>();
    });
  };
  switch (padded_keys(params.key_channels)) {
    case 64:
      return with_keys.template operator()<64>();
    case 128:
      return with_keys.template operator()<128>();
    case 192:
      return with_keys.template operator()<192>();
    case 256:
      return with_keys.template operator()<256>();
  }
}

inline unsigned block_count(const SegmentWalkParams& params, int segments) {
  return static_cast<unsigned>(params.sequence_count * params.heads * params.value_tiles *
                               segments);
}

}  // namespace attune::cuda
