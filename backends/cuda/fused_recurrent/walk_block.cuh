// What one block of a walk does: which tile of which head's state, over which tokens, and the rows
// of q, k, v, do and of gates that it needs.
#pragma once

#include <cstring>
#include <type_traits>

#include "cuda/chunks/views.cuh"
#include "cuda/fused_recurrent/walk.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/walks/segments.cuh"

namespace attune::cuda::fused_recurrent {

/// Loaded in place of rows and channels that do not exist. Skipping the load instead would be a
/// branch of its own, at whose end the thread waits for it.
static __device__ const uint4 kZeroQuad = {0, 0, 0, 0};

struct WalkBlock : SequenceSegment {
  std::int64_t head = 0;
  std::int64_t tile = 0;  // of the head's state
  std::int64_t row_block = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  int rows = 0;  // that exist; the rest of the tile is padding
  int columns = 0;
  std::int64_t tiles = 0;
  int lead = 0;  // steps of stage 0
  std::int64_t stages = 0;
};

/// Steps [first, first + count).
struct WalkStage {
  std::int64_t first = 0;
  int count = 0;
  __device__ std::int64_t end() const { return first + count; }
};

/// Finds what a block works on; false for a block without work.
__device__ inline bool find_block(const WalkShape& shape, const WalkParams& p, WalkBlock& block) {
  const std::int64_t columns = column_blocks(shape, p.columns);
  block.tiles = columns * row_blocks(shape, p.rows);
  const std::int64_t number = block_number();
  const std::int64_t head = quotient(number, block.tiles);
  const std::int64_t part = quotient(head, p.heads);
  if (!find_segment(p, part, block)) return false;
  if (p.segments.sums_only && !has_sum(p.segments, block.is_last)) return false;
  block.tile = number - head * block.tiles;
  block.head = head - part * p.heads;
  block.row_block = quotient(block.tile, columns);
  block.first_row = block.row_block * shape.rows();
  block.first_column = (block.tile - block.row_block * columns) * shape.columns();
  block.rows = static_cast<int>(min(p.rows - block.first_row, std::int64_t{shape.rows()}));
  block.columns =
      static_cast<int>(min(p.columns - block.first_column, std::int64_t{shape.columns()}));

  // The walk that keeps checkpoints and the one that meets them have stages that end alike.
  const bool keeps = p.checkpoints.use == WalkCheckpoints::Use::kKeep;
  block.lead = keeps && block.is_first() ? static_cast<int>(block.span.length % shape.tokens) + 1
                                         : shape.tokens;
  const std::int64_t steps = block.end - block.first;
  block.stages =
      steps == 0 ? 0 : 1 + ceil_div(max(steps - block.lead, std::int64_t{0}), shape.tokens);
  return true;
}

__device__ __forceinline__ WalkStage stage_of(const WalkShape& shape, const WalkBlock& block,
                                              std::int64_t stage) {
  const std::int64_t before = stage == 0 ? 0 : block.lead + (stage - 1) * shape.tokens;
  const std::int64_t most = stage == 0 ? block.lead : shape.tokens;
  const std::int64_t first = block.first + before;
  return {first, static_cast<int>(min(most, block.end - first))};
}

/// The number, in its sequence, of the checkpoint before a stage, or behind the last one; -1: there
/// is none. One between two segments is the earlier one's.
__device__ __forceinline__ std::int64_t checkpoint_before(const WalkShape& shape,
                                                          const WalkParams& p,
                                                          const WalkBlock& block,
                                                          std::int64_t stage) {
  if (p.checkpoints.use == WalkCheckpoints::Use::kNone) return -1;
  const bool keeps = p.checkpoints.use == WalkCheckpoints::Use::kKeep;
  if (keeps ? stage == block.stages && block.is_last : stage == 0 && block.is_first()) return 0;
  if (stage == 0) return -1;
  // From where the keeping walk ends back to its last token before the checkpoint.
  const std::int64_t end = stage_of(shape, block, stage - 1).end();
  const std::int64_t distance = keeps ? block.span.length - end + 1 : end;
  if (distance > block.span.length) return -1;
  const std::int64_t index = quotient(distance, p.checkpoints.interval);
  return index * p.checkpoints.interval == distance ? index : -1;
}

inline constexpr int kQuad = 4;  // channels that are loaded and stored together

/// What a block needs of a head's rows, by step of the walk.
template <class T>
struct RowCursor {
  const T* first = nullptr;  // null where there are none: then `width` is 0
  std::int64_t stride = 0;   // from step to step
  int width = 0;
  bool vectors = true;  // whole quads only, and each may be loaded at once
};

/// A gate's, in either of its types.
template <class T>
struct GateCursor {
  RowCursor<float> f32;
  RowCursor<T> io;
};

template <class T>
__device__ RowCursor<T> cursor_of(const WalkParams& p, const WalkBlock& block, const WalkRows& rows,
                                  std::int64_t channel, int width) {
  if (rows.view.data == nullptr) return {};
  const SequenceSpan& span = block.span;
  const std::int64_t token = p.descending ? span.begin + span.length - 1 : span.begin;
  const std::int64_t at = row_offset(rows.view, span.batch, token, block.head / rows.heads_per_row);
  return {static_cast<const T*>(rows.view.data) + at + channel,
          p.descending ? -rows.view.token : rows.view.token, width,
          rows.vectors && width % kQuad == 0};
}

template <class T>
__device__ GateCursor<T> gate_cursor_of(const WalkParams& p, const WalkBlock& block,
                                        const WalkGate& gate, std::int64_t channel, int width) {
  const WalkRows rows{gate.view.rows, 1, gate.vectors};
  if (gate.view.is_f32) return {cursor_of<float>(p, block, rows, channel, width), {}};
  return {{}, cursor_of<T>(p, block, rows, channel, width)};
}

/// Four channels as they were loaded. Conversions wait for loads, so a thread converts only when
/// it has begun all the loads it means to have in flight.
template <class T>
struct QuadBits {
  alignas(kQuad * sizeof(T)) T x[kQuad];
  __device__ float4 floats() const {
    return {to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3])};
  }
};

/// Channels [channel, channel + 4) of a row; zero beyond its width, and all of them unless `valid`.
template <bool kVectors, class T>
__device__ __forceinline__ QuadBits<T> load_quad(const RowCursor<T>& cursor, std::int64_t step,
                                                 int channel, bool valid) {
  const T* const row = cursor.first + step * cursor.stride + channel;
  const auto* const zeros = reinterpret_cast<const T*>(&kZeroQuad);
  QuadBits<T> quad;
  if constexpr (kVectors) {
    using Bits = std::conditional_t<sizeof(T) == sizeof(float), uint4, uint2>;
    const T* const from = valid && channel < cursor.width ? row : zeros;
    const Bits bits = __ldg(reinterpret_cast<const Bits*>(from));
    memcpy(&quad, &bits, sizeof quad);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      quad.x[i] = *(valid && channel + i < cursor.width ? row + i : zeros);
    }
  }
  return quad;
}

}  // namespace attune::cuda::fused_recurrent
