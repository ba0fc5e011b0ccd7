// The rows of q, k, v, do and of gates, a quad of channels at a time.
#pragma once

#include <cstring>
#include <type_traits>

#include "cuda/fused_recurrent/walk_block.cuh"

namespace attune::cuda {

inline constexpr int kQuad = 4;  // channels that are loaded and stored together

/// The part of a head's rows that a block needs, by step of the walk.
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
  const std::int64_t at = row_offset(rows.view, span.batch, token, block.head / rows.group);
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

}  // namespace attune::cuda
