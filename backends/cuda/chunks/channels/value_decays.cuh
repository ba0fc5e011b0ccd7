// What state warps make of the decays of value channels: v' of the state's update, 2^-r v' of the
// chunk's outputs, and these outputs in fp32 where decays are too strong for products.
#pragma once

#include "cuda/chunks/channels/state.cuh"

namespace attune::cuda::channels {

/// y of the elements of O^T that a lane has, and of V^T, which are the same; r of its two rows.
/// Operands are bf16 where value channels decay.
template <class Shape>
struct ValueDecays {
  float y[Shape::kChunk / 8][4];
  float step[2];

  __device__ __forceinline__ ValueDecays(const Stage<Shape>& stage,
                                         const ChunkOperands<Shape>& from, int m) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        y[n][e] = stage.value_sums(8 * n + lane % 4 * 2 + e % 2)[lane_channel<Shape>(m, e / 2)];
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) step[row] = from.value_steps[lane_channel<Shape>(m, row)];
  }
  /// v' of a tile.
  __device__ __forceinline__ void decay(ValueOperands<Shape>& values) const {
#pragma unroll
    for (int at = 0; at < Shape::kChunk / 4; ++at) {  // registers, of two tokens of a row
      std::uint32_t& pair = values[at / 4][at % 4];
      const int row = at % 2;
      const float* const sums = &y[at / 2][2 * row];
      const float2 value = unpack<__nv_bfloat16>(pair);
      pair = pack<__nv_bfloat16>(value.x * exp2_approx(step[row] - sums[0]),
                                 value.y * exp2_approx(step[row] - sums[1]));
    }
  }
  /// 2^-r v'.
  __device__ __forceinline__ void grow(std::uint32_t (&values)[4]) const {
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      const float growth = exp2_approx(-step[at % 2]);
      values[at] = multiply_bf16_pairs(values[at], pack<__nv_bfloat16>(growth, growth));
    }
  }
};

/// O^T += sum_j P[i][j] 2^(y_i - y_j) v_j of one tile, in fp32.
template <class T, class Shape>
__device__ __forceinline__ void add_chunk_exactly(Outputs<Shape>& outputs,
                                                  const ValueDecays<Shape>& decays,
                                                  const Stage<Shape>& stage,
                                                  const Tile<Shape>& scores, int m) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto half_of = [](auto pair, int which) { return which == 0 ? pair.x : pair.y; };
#pragma unroll 1
  for (int j = 0; j < Shape::kChunk; ++j) {
    float y[2];
    float value[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int channel = lane_channel<Shape>(m, row);
      y[row] = stage.value_sums(j)[channel];
      const std::uint32_t pair = load_shared_4(stage.v.at(j, channel / 2 * 4));
      value[row] = half_of(unpack<T>(pair), channel % 2);
    }
#pragma unroll
    for (int at = 0; at < Shape::kChunk / 2; ++at) {
      const int n = at / 4;
      const int e = at % 4;
      const int i = 8 * n + lane % 4 * 2 + e % 2;
      if (j > i) continue;
      const float2 pair = unpack<__nv_bfloat16>(load_shared_4(scores.at(i, j / 2 * 4)));
      outputs[n][e] += half_of(pair, j % 2) * exp2_approx(decays.y[n][e] - y[e / 2]) * value[e / 2];
    }
  }
}

}  // namespace attune::cuda::channels
