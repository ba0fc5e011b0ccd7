// What each of many segments starts from, made of what each adds to the state, element by element:
// then the walk that makes outputs need not pass all segments before its own.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cstdint>

namespace attune::cuda {

/// What segments add to states, as the registers of their warps hold it, and their decays: the product
/// of those that there are. An owner is a head of a sequence, or a slice of its key channels.
struct SegmentSums {
  float4* states = nullptr;             // [owners, places, values / 16, keys / 8, lanes]
  const float* decays = nullptr;        // [owners, places]
  const float* key_decays = nullptr;    // [owners, places, keys]
  const float* value_decays = nullptr;  // [owners, places, value_row]
  int value_row = 0;
  std::int64_t owners = 0;
  int places = 0;  // of segments
  int count = 0;   // of them that are sums, the first ones
  int keys = 0;    // channels of a state, padded
  int values = 0;
};

/// Queues what makes each sum that of all up to it, which the next segment starts from.
void launch_segment_starts(const SegmentSums& sums, cudaStream_t stream);

}  // namespace attune::cuda
