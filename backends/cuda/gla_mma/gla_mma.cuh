// What the state warps do of a chunk with mma.sync, which every GPU from sm_80 on has.
//
//   O^T = S^T Q'^T + V^T P^T          S in fp32, 2^(R - G) times the state
//   S^T = S^T diag(2^r) + V^T K'      R the reference of log_sums.cuh
//
// Where value channels decay, V'^T with v'_j = v_j 2^(r - y_j) takes the place of V^T, rows of S^T
// times 2^r that of columns, and o_i = 2^(y_i) (S^T q_i + sum_j P[i][j] 2^-r v'_j).
#pragma once

#include "cuda/chunks/channels/value_decays.cuh"
#include "cuda/chunks/channels/walk_launches.cuh"
#include "cuda/gla_mma/gla_mma.hpp"

namespace attune::cuda::gla_mma {

using namespace channels;

/// O^T = S^T Q'^T, with S times `scale` where operands are f16; returns whether a warp's is in range
/// then.
template <class Operand, class Shape>
__device__ __forceinline__ bool read_scaled_states(TileOutputs<Shape>& outputs,
                                                   const States<Shape>& states,
                                                   const Stage<Shape>& stage, float scale) {
  constexpr bool kScaled = std::is_same_v<Operand, __half>;
  NarrowRange range;
  const auto rounded = [&](float x, float y) {
    if constexpr (!kScaled) return pack<Operand>(x, y);
    const std::uint32_t pair = pack<Operand>(scale * x, scale * y);
    range.see(pair);
    return pair;
  };
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (float& output : outputs[m][n]) output = 0.0F;
    }
  }
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[Shape::kTiles][4];
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
      const auto& low = states[m][2 * step];
      const auto& high = states[m][2 * step + 1];
      a[m][0] = rounded(low[0], low[1]);
      a[m][1] = rounded(low[2], low[3]);
      a[m][2] = rounded(high[0], high[1]);
      a[m][3] = rounded(high[2], high[3]);
    }
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 16; ++n) {
      std::uint32_t b[4];
      load_matrices(b, stage.q.across(16 * n, 16 * step));
#pragma unroll
      for (int m = 0; m < Shape::kTiles; ++m) {
        mma_m16n8k16<Operand>(outputs[m][2 * n], a[m], b[0], b[1]);
        mma_m16n8k16<Operand>(outputs[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
  return !kScaled || range.holds_all();
}

/// O^T = S^T Q'^T, at the scale of P.
template <class Operand, class Shape>
__device__ __forceinline__ void read_states(TileOutputs<Shape>& outputs,
                                            const States<Shape>& states, const Stage<Shape>& stage,
                                            float growth) {
  float scale = kNarrowScale;
  if (!read_scaled_states<Operand, Shape>(outputs, states, stage, scale)) {
    scale *= kMoreScale;
    read_scaled_states<Operand, Shape>(outputs, states, stage, scale);
  }
  if constexpr (std::is_same_v<Operand, __half>) {
#pragma unroll
    for (auto& tile : outputs) {
#pragma unroll
      for (auto& columns : tile) {
#pragma unroll
        for (float& output : columns) output *= growth / scale;
      }
    }
  }
}

/// S^T = S^T diag(2^r) + V^T K'.
template <class Operand, class Shape>
__device__ __forceinline__ void write_states(States<Shape>& states,
                                             const ValueOperands<Shape> (&values)[Shape::kTiles],
                                             const Stage<Shape>& stage,
                                             const ChunkOperands<Shape>& from) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < Shape::kKeys / 16; ++n) {
    if constexpr (Shape::kKeysDecay) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto decay =
            *reinterpret_cast<const float2*>(&from.key_decays[16 * n + 8 * half + first]);
#pragma unroll
        for (int m = 0; m < Shape::kTiles; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            states[m][2 * n + half][e] *= e % 2 == 0 ? decay.x : decay.y;
          }
        }
      }
    }
#pragma unroll
    for (int step = 0; step < Shape::kChunk / 16; ++step) {
      std::uint32_t b[4];
      load_matrices_transposed(b, stage.k.down(16 * step, 16 * n));
#pragma unroll
      for (int m = 0; m < Shape::kTiles; ++m) {
        mma_m16n8k16<Operand>(states[m][2 * n], values[m][step], b[0], b[1]);
        mma_m16n8k16<Operand>(states[m][2 * n + 1], values[m][step], b[2], b[3]);
      }
    }
  }
}

/// A chunk of a tile whose value channels decay: its outputs from what S^T gave them, v', rows of
/// S^T decayed.
template <class T, class Shape, bool kWithOutputs>
__device__ __forceinline__ void decay_values(Outputs<Shape>& outputs, State<Shape>& state,
                                             ValueOperands<Shape>& values,
                                             const Stage<Shape>& stage,
                                             const ChunkOperands<Shape>& from,
                                             const Tile<Shape>& scores, int m) {
  const ValueDecays<Shape> decays(stage, from, m);
  decays.decay(values);
  if constexpr (kWithOutputs) {
    const bool strong = from.strong != 0;
    if (!strong) {
#pragma unroll
      for (int step = 0; step < Shape::kChunk / 16; ++step) {
        std::uint32_t grown[4] = {values[step][0], values[step][1], values[step][2],
                                  values[step][3]};
        decays.grow(grown);
        add_chunk<__nv_bfloat16>(outputs, grown, scores, step);
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) outputs[n][e] *= exp2_approx(decays.y[n][e]);
    }
    if (strong) add_chunk_exactly<T, Shape>(outputs, decays, stage, scores, m);
  }
  scale_rows<Shape>(state, exp2_approx(decays.step[0]), exp2_approx(decays.step[1]));
}

struct Advance {
  /// The outputs of a chunk, and the state after it.
  template <class T, class Shape, bool kWithOutputs>
  __device__ static __forceinline__ void run(States<Shape>& states, TileOutputs<Shape>& outputs,
                                             const Stage<Shape>& stage,
                                             const ChunkOperands<Shape>& from, const Params& p) {
    using Operand = channels::Operand<T, Shape>;
    const Tile<Shape> scores(shared_address(from.scores));
    if constexpr (kWithOutputs) read_states<Operand>(outputs, states, stage, p.query_growth);
    ValueOperands<Shape> values[Shape::kTiles];
#pragma unroll
    for (int m = 0; m < Shape::kTiles; ++m) {
      load_values<T, Shape>(values[m], stage, m);
      if constexpr (Shape::kValuesDecay) {
        decay_values<T, Shape, kWithOutputs>(outputs[m], states[m], values[m], stage, from, scores,
                                             m);
      } else if constexpr (kWithOutputs) {
#pragma unroll
        for (int step = 0; step < Shape::kChunk / 16; ++step) {
          add_chunk<Operand>(outputs[m], values[m][step], scores, step);
        }
      }
    }
    write_states<Operand>(states, values, stage, from);
  }
};

template <class T, Gated kGated>
void launch_gla_mma(const Params& params, const GlaMmaConfig& config, cudaStream_t stream) {
  launch_walks<T, kGated, Products::kMma, Advance>(params, config, stream);
}

}  // namespace attune::cuda::gla_mma
