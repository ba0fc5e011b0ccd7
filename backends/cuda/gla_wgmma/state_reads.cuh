// What queries read of a state that lies in registers, by wgmma: the state is rounded to operands of the
// tensors' type, 16 key channels a step.
#pragma once

#include "cuda/chunks/channels/state.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::gla_wgmma {

using namespace channels;

#if ATTUNE_SM90A_CODE

/// 16 key channels a step of the state, rounded: as many as registers hold at once, beside the state.
template <class Operand, class Shape>
struct StateOperand {
  static constexpr bool kWide = Shape::kStateWarps > 4;
  static constexpr int kMost = !kWide || Shape::kKeys < 192 ? 8 : Shape::kKeys > 192 ? 3 : 4;
  static constexpr int kSteps = Shape::kKeys / 16 < kMost ? Shape::kKeys / 16 : kMost;
  std::uint32_t step[kSteps][4];

  /// From the `first`-th 16 channels on.
  __device__ __forceinline__ void round(const State<Shape>& state, int first) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s >= Shape::kKeys / 16) continue;
      const auto& low = state[2 * (first + s)];
      const auto& high = state[2 * (first + s) + 1];
      step[s][0] = pack<Operand>(low[0], low[1]);
      step[s][1] = pack<Operand>(low[2], low[3]);
      step[s][2] = pack<Operand>(high[0], high[1]);
      step[s][3] = pack<Operand>(high[2], high[3]);
    }
  }
  /// The same of the state times `scale`; returns whether a warp's is in range.
  __device__ __forceinline__ bool round_scaled(const State<Shape>& state, int first, float scale) {
    NarrowRange range;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s >= Shape::kKeys / 16) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& from = state[2 * (first + s) + i / 2];
        step[s][i] = pack<Operand>(scale * from[i % 2 * 2], scale * from[i % 2 * 2 + 1]);
        range.see(step[s][i]);
      }
    }
    return range.holds_all();
  }
  /// Behind the wait for products that read it.
  __device__ __forceinline__ void hold() const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) wgmma_hold(step[s]);
  }
};

inline constexpr int kDepthBytes = 32;  // of the 16 tokens or channels that a wgmma sums over

/// The accumulators of kCount / 4 matrices of eight columns from the `first`-th on.
template <int kCount, int kMatrices>
__device__ __forceinline__ float (&columns_of(float (&matrices)[kMatrices][4], int first))[kCount] {
  return *reinterpret_cast<float(*)[kCount]>(&matrices[first][0]);
}

/// The descriptor of what lies `bytes` further.
__device__ __forceinline__ std::uint64_t further(std::uint64_t descriptor, int bytes) {
  return descriptor + static_cast<unsigned>(bytes / 16);
}

/// Queues O^T += S^T Q'^T for key channels from the `first`-th 16 on; O^T is new where first is 0.
template <class Operand, class Shape>
__device__ __forceinline__ void queue_state_read(Outputs<Shape>& outputs,
                                                 const StateOperand<Operand, Shape>& operand,
                                                 std::uint64_t queries, int first) {
  constexpr int kStepsOfPanel = kPanelChannels / 16;
#pragma unroll
  for (int s = 0; s < StateOperand<Operand, Shape>::kSteps; ++s) {
    const int step = first + s;
    if (step >= Shape::kKeys / 16) continue;
    wgmma_n32<Operand, Major::kK>(columns_of<16>(outputs, 0), operand.step[s],
                                  further(queries, step / kStepsOfPanel * Shape::kPanelBytes +
                                                       step % kStepsOfPanel * kDepthBytes),
                                  step > 0);
  }
}

template <class Shape>
__device__ __forceinline__ void scale_outputs(Outputs<Shape>& outputs, float scale) {
#pragma unroll
  for (auto& columns : outputs) {
#pragma unroll
    for (float& output : columns) output *= scale;
  }
}

/// O^T = S^T Q'^T by operands of f16, at the scale of P.
template <class Shape>
__device__ __forceinline__ void read_narrow_state(Outputs<Shape>& output, const State<Shape>& state,
                                                  std::uint64_t queries, float growth) {
  StateOperand<__half, Shape> operand;
  constexpr int kSteps = Shape::kKeys / 16;
  constexpr int kStepsAtOnce = StateOperand<__half, Shape>::kSteps;
  float scale = kNarrowScale;
#pragma unroll
  for (int first = 0; first < kSteps; first += kStepsAtOnce) {
    if (!operand.round_scaled(state, first, scale) && scale == kNarrowScale) {
      scale *= kMoreScale;
      if (first > 0) scale_outputs<Shape>(output, kMoreScale);
      operand.round_scaled(state, first, scale);
    }
    wgmma_pin(columns_of<16>(output, 0));
    wgmma_fence();
    queue_state_read<__half, Shape>(output, operand, queries, first);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(columns_of<16>(output, 0));
    operand.hold();
  }
  scale_outputs<Shape>(output, growth / scale);
}

/// O^T = S^T Q'^T by operands of the tensors' type, of whole key channels.
template <class Operand, class Shape>
__device__ __forceinline__ void read_state(Outputs<Shape>& output, const State<Shape>& state,
                                           std::uint64_t queries) {
  StateOperand<Operand, Shape> operand;
#pragma unroll
  for (int first = 0; first < Shape::kKeys / 16; first += operand.kSteps) {
    operand.round(state, first);
    wgmma_fence();
    queue_state_read<Operand, Shape>(output, operand, queries, first);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(columns_of<16>(output, 0));
    operand.hold();
  }
}

#endif

}  // namespace attune::cuda::gla_wgmma
