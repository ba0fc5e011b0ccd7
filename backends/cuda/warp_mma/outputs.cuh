// Linear attention of narrow heads, K and V up to 32, in chunks of 16 tokens, a warp a segment of a
// head: what a wider tile would fill with zeros is not there, nothing is shared, nothing waited for
// but memory.
#pragma once

#include "cuda/runtime/launch.hpp"
#include "cuda/warp_mma/warp_shapes.cuh"
#include "cuda/warp_mma/warp_state.cuh"

namespace attune::cuda::warp_mma {

/// Writes the outputs of a piece's tokens, of which so many exist in the chunk.
template <class Shape>
__device__ __forceinline__ void store_outputs(const float (&outputs)[2][Shape::kLaneChannels],
                                              const RowCursor& to, const Piece& piece, int left,
                                              const Lane& lane) {
  using T = typename Shape::T;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!piece.has(lane.token(i)) || lane.token(i) >= left) continue;
    T* const channels = to.row<T>(i);
#pragma unroll
    for (int quad = 0; quad < Shape::kBlocks; ++quad) {
      if (4 * quad >= to.channels) continue;
      const float* const x = outputs[i] + 4 * quad;
      if constexpr (sizeof(T) == sizeof(float)) {
        *reinterpret_cast<float4*>(channels + 4 * quad) = {x[0], x[1], x[2], x[3]};
      } else {
        *reinterpret_cast<uint2*>(channels + 4 * quad) = {pack<T>(x[0], x[1]), pack<T>(x[2], x[3])};
      }
    }
  }
}

/// What the segment's walk starts from.
template <class Shape>
__device__ __forceinline__ void load_start(State<Shape::kWidth>& state, const Params& p,
                                           const Segment& segment, const Lane& lane) {
  if (segment.of_sequence == 1) {
    return state.load(state_of(p.initial_state, segment.sequence), p, segment.head, lane);
  }
  const int from = segment.is_first() ? segment.of_sequence - 1 : segment.number - 1;
  state.load_words(p.sums + segment.sum_index(p, from) * State<Shape::kWidth>::kWords, lane);
}

/// Tokens of the segment up to where a state is kept, or to its end.
__device__ __forceinline__ int end_of_stretch(const Params& p, const Segment& segment, int token) {
  if (p.snapshots.every == 0) return segment.tokens;
  const std::int64_t behind = segment.first + token;
  const std::int64_t kept = (behind / p.snapshots.every + 1) * p.snapshots.every;
  return static_cast<int>(min(kept - segment.first, std::int64_t{segment.tokens}));
}

template <class Shape>
__global__ __launch_bounds__(kThreads, kResidentBlocks<Shape>) void outputs(
    const __grid_constant__ Params p) {
  using T = typename Shape::T;
  clear_rows_behind<T>(p.sequences, p.sequence_count, p.o, p.heads, p.value_channels,
                       static_cast<int>(threadIdx.x), kThreads);
  const Lane lane;
  const Segment segment = segment_at(p, warp_number(), lane);
  if (!segment.exists()) return;
  WarpState<Shape> own(lane);
  using Loader = ChunkLoader<Shape, true, false>;
  Loader loader(p, segment, lane, warp_memory<typename Loader::Ring>());
  RowCursor to =
      Loader::cursor_of(p, segment, p.o, sizeof(T), segment.first + lane.token(0), segment.head,
                        p.value_channels, Shape::kLaneChannels * lane.quarter);
  load_start<Shape>(own.state, p, segment, lane);
  int token = 0;
  do {
    const int end = end_of_stretch(p, segment, token);
    for (; token < end; token += kChunk) {
      Chunk<Shape> chunk;
      loader.take(chunk);
      const int left = segment.tokens - token;
      own.advance(chunk, left, [&](const Piece& piece, const auto& k, const auto& v) {
        float outputs[2][Shape::kLaneChannels];
        own.make_outputs(outputs, chunk, k, v, p.scale);
        store_outputs<Shape>(outputs, to, piece, left, lane);
      });
      to.move(1);
    }
    own.decay_due();
    if (end % kChunk == 0) {
      own.state.store(snapshot_of(p.snapshots, segment.sequence, segment.first + end), p,
                      segment.head, lane);
    }
  } while (token < segment.tokens);
  if (segment.is_last()) {
    own.state.store(state_of(p.final_state, segment.sequence), p, segment.head, lane);
  }
}

template <class T>
void launch_outputs(const Params& params, cudaStream_t stream) {
  with_shape<T>(params, [&]<class Shape>() {
    launch<outputs<Shape>>({.grid = blocks_of(params),
                            .block = kThreads,
                            .shared_bytes = kWarps * Stages<Shape, true>::kBytes},
                           stream, params);
  });
}

}  // namespace attune::cuda::warp_mma
