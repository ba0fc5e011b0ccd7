// Summaries of sequences, of what their segments add to the state: where keys alone have decays of
// their own.
#pragma once

#include "cuda/chunks/channels/segment_states.cuh"

namespace attune::cuda::channels {

/// A thread joins words of four elements, as one of those that saved the segments' states had them
/// in its registers. Blocks (word, value tile, head, sequence).
template <class Shape>
__global__ __launch_bounds__(Shape::kStateThreads) void join_segments(
    const __grid_constant__ Params p) {
  static_assert(Shape::kKeysDecay && !Shape::kValuesDecay);
  constexpr unsigned kWords = Shape::kKeys / 8;
  constexpr int kUnroll = 4;  // loads in flight
  const auto j = static_cast<int>(blockIdx.x % kWords);
  unsigned rest = blockIdx.x / kWords;
  Walk walk;
  walk.value_tile = static_cast<int>(rest % p.value_tiles);
  walk.first_value = walk.value_tile * Shape::kValues;
  rest /= p.value_tiles;
  walk.head = static_cast<int>(rest % p.heads);
  walk.sequence = rest / p.heads;
  const StateView final = state_of(p.summaries.final_state, walk.sequence);
  if (final.data == nullptr) return;
  const ConstStateView initial = state_of(p.summaries.initial, walk.sequence);

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int key = 8 * j + lane % 4 * 2;
  const float* const decays =
      p.segment_decays + sum_index(p, walk, 0) * Shape::kKeys;  // of the first segment
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
    float x[4] = {};
    float total[2] = {1.0F, 1.0F};
#pragma unroll kUnroll
    for (int segment = 0; segment < p.segments; ++segment) {
      const auto decay = *reinterpret_cast<const float2*>(decays + segment * Shape::kKeys + key);
      const float4 added =
          saved_elements<Shape>(p, walk, sum_index(p, walk, segment), m)[j * kWarpSize];
      x[0] = fmaf(x[0], decay.x, added.x);
      x[1] = fmaf(x[1], decay.y, added.y);
      x[2] = fmaf(x[2], decay.x, added.z);
      x[3] = fmaf(x[3], decay.y, added.w);
      total[0] *= decay.x;
      total[1] *= decay.y;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int k = key + e % 2;
      const int v = walk.first_value + lane_channel<Shape>(m, e / 2);
      if (k >= p.key_channels || v >= p.value_channels) continue;
      float value = p.summaries.scale * x[e];
      if (initial.data != nullptr) {
        value +=
            total[e % 2] * initial.data[walk.head * initial.head + k * initial.k + v * initial.v];
      }
      final.data[walk.head * final.head + k * final.k + v * final.v] = value;
    }
  }

  const int summed = 8 * j + static_cast<int>(threadIdx.x);
  const StateView sums = state_of(p.summaries.key_sums, walk.sequence);
  if (sums.data == nullptr || walk.value_tile > 0 || threadIdx.x >= 8 || summed >= p.key_channels)
    return;
  float log = 0.0F;
  for (int segment = 0; segment < p.segments; ++segment) {
    log += logf(decays[segment * Shape::kKeys + summed]);
  }
  sums.data[walk.head * sums.head + summed * sums.k] = log;
}

}  // namespace attune::cuda::channels
