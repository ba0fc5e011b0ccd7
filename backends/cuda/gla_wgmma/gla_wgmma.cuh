// What the state warps do of a chunk with wgmma, whose accumulators and left operands lie in
// registers as those of mma.sync do: four warps multiply what each of them has of the state and of
// the values, twice four in blocks of 128 value channels. q', k' and P are read where they lie, and
// so are q and k, where value channels decay.
#pragma once

#include "cuda/chunks/channels/value_decays.cuh"
#include "cuda/chunks/channels/walk_launches.cuh"
#include "cuda/gla_wgmma/gla_wgmma.hpp"
#include "cuda/gla_wgmma/state_reads.cuh"
#include "cuda/tiles/wgmma.cuh"

namespace attune::cuda::gla_wgmma {

using namespace channels;

#if ATTUNE_SM90A_CODE

/// Queues O^T += V^T P^T. A product of the later tokens alone would save a quarter, but wgmma is
/// serialised where accumulators are a part of other ones.
template <class Operand, class Shape>
__device__ __forceinline__ void queue_chunk(Outputs<Shape>& outputs,
                                            const ValueOperands<Shape>& values,
                                            std::uint64_t scores) {
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    wgmma_n32<Operand, Major::kK>(columns_of<16>(outputs, 0), values[step],
                                  further(scores, step * kDepthBytes), true);
  }
}

/// Queues S^T += V^T K'.
template <class Operand, class Shape>
__device__ __forceinline__ void queue_state_update(State<Shape>& state,
                                                   const ValueOperands<Shape>& values,
                                                   std::uint64_t keys) {
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
#pragma unroll
    for (int panel = 0; panel < Shape::kKeys / kPanelChannels; panel += 2) {
      const std::uint64_t at =
          further(keys, panel * Shape::kPanelBytes + step * 16 * kPanelRowBytes);
      constexpr int kMatrices = kPanelChannels / 8;
      if (panel + 2 <= Shape::kKeys / kPanelChannels) {
        wgmma_n128<Operand, Major::kMN>(columns_of<64>(state, panel * kMatrices), values[step], at,
                                        true);
      } else {
        wgmma_n64<Operand, Major::kMN>(columns_of<32>(state, panel * kMatrices), values[step], at,
                                       true);
      }
    }
  }
}

/// Columns of S^T times 2^r.
template <class Shape>
__device__ __forceinline__ void decay_state(State<Shape>& state, const float* key_decays) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 8; ++j) {
    const auto decay = *reinterpret_cast<const float2*>(&key_decays[8 * j + first]);
#pragma unroll
    for (int e = 0; e < 4; ++e) state[j][e] *= e % 2 == 0 ? decay.x : decay.y;
  }
}

/// The values of a chunk as operands, and the state decayed.
template <class T, class Shape>
struct ChunkValues {
  __device__ __forceinline__ ChunkValues(ValueOperands<Shape>&, State<Shape>& state,
                                         const Stage<Shape>&, const ChunkOperands<Shape>& from) {
    decay_state<Shape>(state, from.key_decays);
  }
  /// What P is multiplied by.
  __device__ __forceinline__ const ValueOperands<Shape>& of_outputs(
      const ValueOperands<Shape>& values) const {
    return values;
  }
  __device__ __forceinline__ void finish(Outputs<Shape>&, const Stage<Shape>&,
                                         const ChunkOperands<Shape>&) const {}
};

/// Where value channels decay. What P is multiplied by is zeros where these are too strong.
template <class T, class Shape>
requires Shape::kValuesDecay struct ChunkValues<T, Shape> {
  ValueDecays<Shape> decays;
  ValueOperands<Shape> grown;

  __device__ __forceinline__ ChunkValues(ValueOperands<Shape>& values, State<Shape>& state,
                                         const Stage<Shape>& stage,
                                         const ChunkOperands<Shape>& from)
      : decays(stage, from, 0) {
    decays.decay(values);
    const bool strong = from.strong != 0;
#pragma unroll
    for (int step = 0; step < Shape::kChunk / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) grown[step][i] = values[step][i];
      decays.grow(grown[step]);
#pragma unroll
      for (std::uint32_t& pair : grown[step]) pair = strong ? 0 : pair;
    }
    scale_rows<Shape>(state, exp2_approx(decays.step[0]), exp2_approx(decays.step[1]));
  }
  __device__ __forceinline__ const ValueOperands<Shape>& of_outputs(
      const ValueOperands<Shape>&) const {
    return grown;
  }
  __device__ __forceinline__ void finish(Outputs<Shape>& outputs, const Stage<Shape>& stage,
                                         const ChunkOperands<Shape>& from) const {
#pragma unroll
    for (const auto& step : grown) wgmma_hold(step);
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) outputs[n][e] *= exp2_approx(decays.y[n][e]);
    }
    if (from.strong == 0) return;
    const Tile<Shape> scores(shared_address(from.scores));
    add_chunk_exactly<T, Shape>(outputs, decays, stage, scores, 0);
  }
};

#endif

struct Advance {
  /// What a state makes of the outputs of a chunk, and what is left of it behind that.
  template <class T, class Shape>
  __device__ static __forceinline__ void read(States<Shape>& states, TileOutputs<Shape>& outputs,
                                              std::uint32_t tile, const float* key_decays,
                                              const Params& p) {
#if ATTUNE_SM90A_CODE
    const std::uint64_t queries = matrix_descriptor(tile);
    if constexpr (kNarrow<T, Shape>) {
      read_narrow_state<Shape>(outputs[0], states[0], queries, p.query_growth);
    } else {
      read_state<Operand<T, Shape>, Shape>(outputs[0], states[0], queries);
    }
    decay_state<Shape>(states[0], key_decays);
#endif
  }
  /// The outputs of a chunk, and the state after it.
  template <class T, class Shape, bool kWithOutputs>
  __device__ static __forceinline__ void run(States<Shape>& states, TileOutputs<Shape>& outputs,
                                             const Stage<Shape>& stage,
                                             const ChunkOperands<Shape>& from, const Params& p) {
#if ATTUNE_SM90A_CODE
    static_assert(Shape::kTiles == 1 && Shape::kKeysDecay != Shape::kValuesDecay);
    using O = Operand<T, Shape>;
    constexpr bool kReadsFirst = kWithOutputs && kNarrow<T, Shape>;
    constexpr int kSteps = Shape::kKeys / 16;
    constexpr int kStepsAtOnce = StateOperand<O, Shape>::kSteps;
    State<Shape>& state = states[0];
    Outputs<Shape>& output = outputs[0];
    StateOperand<O, Shape> operand;
    const std::uint64_t queries = matrix_descriptor(stage.q.at(0, 0));
    if constexpr (kReadsFirst) {
      read_narrow_state<Shape>(output, state, queries, p.query_growth);
    } else if constexpr (kWithOutputs) {
#pragma unroll
      for (int first = 0; first + kStepsAtOnce < kSteps; first += kStepsAtOnce) {
        operand.round(state, first);
        wgmma_fence();
        queue_state_read<O, Shape>(output, operand, queries, first);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(columns_of<16>(output, 0));
        operand.hold();
      }
      operand.round(state, (kSteps - 1) / kStepsAtOnce * kStepsAtOnce);
    }
    ValueOperands<Shape> values;
    load_values<T, Shape>(values, stage, 0);
    const ChunkValues<T, Shape> own(values, state, stage, from);
    wgmma_pin(columns_of<Shape::kKeys / 2>(state, 0));
    wgmma_fence();
    if constexpr (kWithOutputs) {
      if constexpr (!kReadsFirst) {
        queue_state_read<O, Shape>(output, operand, queries,
                                   (kSteps - 1) / kStepsAtOnce * kStepsAtOnce);
      }
      queue_chunk<O, Shape>(output, own.of_outputs(values),
                            matrix_descriptor(shared_address(from.scores)));
      wgmma_commit();
    }
    queue_state_update<O, Shape>(state, values,
                                 matrix_descriptor(stage.k.at(0, 0), Shape::kPanelBytes));
    wgmma_commit();
    wgmma_wait<0>();
    if constexpr (kWithOutputs) {
      wgmma_pin(columns_of<16>(output, 0));
      if constexpr (!kReadsFirst) operand.hold();
    }
    wgmma_pin(columns_of<Shape::kKeys / 2>(state, 0));
#pragma unroll
    for (const auto& step : values) wgmma_hold(step);
    if constexpr (kWithOutputs) own.finish(output, stage, from);
#endif
  }
};

template <class T, Gated kGated>
void launch_gla_wgmma(const Params& params, const GlaWgmmaConfig& config, cudaStream_t stream) {
  launch_walks<T, kGated, Products::kWgmma, Advance>(params, config, stream);
}

}  // namespace attune::cuda::gla_wgmma
