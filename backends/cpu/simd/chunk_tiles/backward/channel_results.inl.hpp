// What both sweeps have alike where the channels of K decay each on its own: how a span's results become rows
// of a gradient.
#pragma once

#include "channel_task.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

// Decays the states by all that they are still to decay by. The decays of spans around centers are
// too small to be multiplied with what is left to do: states bear the two one after the other.
inline void settle(const TileState& state, float* decay) {
  for (std::int64_t tile = 0; tile < state.column_tiles; ++tile) {
    const F32 factor = load(decay + tile * kLanes);
    float* const x = state.floats.at(tile, 0);
    for (std::int64_t i = 0; i < state.row_tiles * kTileFloats; i += kLanes) {
      store(x + i, load(x + i) * factor);
    }
  }
  fill_floats(decay, state.column_tiles * kLanes, 1.0F);
}

inline std::int64_t columns_from(const ChannelBackward& task, std::int64_t column) {
  const std::int64_t left = task.inputs.gk.elements - column;
  return left < kTileDepth ? left : kTileDepth;
}

// A result, and what it adds to the gradient of a gate: q dq or k dk.
struct ChannelResult {
  F32 gradient;
  F32 term;
};

// 16 channels of a token's row: times `factor` for the gradient, times q~ or k~
// for the gate's. In an exact span the sums are those of the state alone.
template <bool kExact>
[[gnu::always_inline]] inline ChannelResult finish_channels(const float* sums, F32 factor,
                                                            F32 decayed, const float* own,
                                                            F32 given) {
  const F32 sum = load(sums);
  if constexpr (!kExact) return {.gradient = sum * factor, .term = sum * decayed};
  return {.gradient = fma(sum, factor, load(own)), .term = fma(sum, decayed, load(own) * given)};
}

// Rows of a span's gradient.
struct ChannelWriting {
  static constexpr std::int64_t kRows = 8;  // of a part

  const ChannelBackward& task;
  const ChannelSpan& span;
  RecurrenceResults results = {};
};

// A span of a recurrence, by how its gradient is written.
template <class Writing>
RecurrenceChunk<Writing> span_of_recurrence(const TileRecurrence& of, const ChannelSpan& at,
                                            const HalfRows& values, const ChunkDecay& decay,
                                            BesideProducts& beside, const Writing& writing) {
  return {.of = of,
          .span = at.span,
          .values = values,
          .decay = decay,
          .beside = beside,
          .writing = writing};
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
