// The chunks of a segment, as a warp loads them: some ahead of the one that it works on.
#pragma once

#include <algorithm>

#include "cuda/warp_mma/segments.cuh"

namespace attune::cuda::warp_mma {

/// What a kernel is compiled for.
template <class Element, int kChannels, Gated kGated>
struct WarpShape {
  using T = Element;
  static constexpr int kWidth = kChannels;
  static constexpr int kBlocks = kWidth / 16;  // of channels, as an mma has them
  static constexpr int kLaneChannels = kWidth / 4;
  static constexpr bool kKeyGates = kGated == Gated::kKeys || kGated == Gated::kBoth;
  static constexpr bool kValueGates = kGated == Gated::kValues || kGated == Gated::kBoth;
  static constexpr int kKeyLogs = kKeyGates ? kLaneChannels : 0;
  static constexpr int kValueLogs = kValueGates ? kLaneChannels : kKeyGates ? 0 : 1;
};

/// A lane's part of a chunk. Tokens that do not exist are zeros, and decay nothing.
template <class Shape>
struct Chunk {
  using T = typename Shape::T;
  Rows<T, Shape::kWidth> q, k, v;
  GateRows<T, Shape::kWidth> gk, gv;
  float g[2];  // the log decays that all channels share
};

/// The shared memory of a warp: as many chunks as are under way or worked on.
template <class Shape, bool kQueries>
struct Stages {
  using Quads = QuadPlaces<Shape::kWidth, 4 * sizeof(typename Shape::T)>;
  using GateQuads = QuadPlaces<Shape::kWidth, 4 * sizeof(float)>;
  static constexpr int kK = 0;
  static constexpr int kV = kK + Quads::kAll;
  static constexpr int kQ = kV + Quads::kAll;
  static constexpr int kGk = kQ + (kQueries ? Quads::kAll : 0);
  static constexpr int kGv = kGk + (Shape::kKeyGates ? GateQuads::kAll : 0);
  static constexpr int kStageBytes = kGv + (Shape::kValueGates ? GateQuads::kAll : 0);
  static constexpr int kMost = 12 * 1024;
  static constexpr int kCount = std::clamp(kMost / kStageBytes, 2, 4);
  static constexpr int kBytes = kCount * kStageBytes;
};

/// Loads one chunk after the other, forwards from the first or backwards from the last.
template <class Shape, bool kQueries, bool kBackwards>
class ChunkLoader {
 public:
  using T = typename Shape::T;
  using Ring = Stages<Shape, kQueries>;

  /// `memory`: of Ring::kBytes.
  __device__ ChunkLoader(const Params& p, const Segment& segment, const Lane& lane,
                         std::uint32_t memory)
      : p_(p),
        lane_(lane),
        memory_(memory),
        left_(segment.tokens - first_chunk(segment) * kChunk),
        chunks_((segment.tokens + kChunk - 1) / kChunk),
        constant_(constant_decay(p.gamma, segment.sequence, segment.head)) {
    const int position = segment.first + first_chunk(segment) * kChunk + lane.token(0);
    const auto cursor = [&](const auto& view, std::size_t bytes, int head, int channels,
                            int channel) {
      return cursor_of(p, segment, view, bytes, position, head, channels, channel);
    };
    const int channel = Shape::kLaneChannels * lane.quarter;
    const int kv_head = segment.head / p.heads_per_kv;
    q_ = cursor(p.q, sizeof(T), segment.head, p.key_channels, channel);
    k_ = cursor(p.k, sizeof(T), kv_head, p.key_channels, channel);
    v_ = cursor(p.v, sizeof(T), kv_head, p.value_channels, channel);
    g_ = cursor(p.g.rows, bytes_of(p.g), segment.head, 1, 0);
    gk_ = cursor(p.gk.view.rows, bytes_of(p.gk.view), segment.head, p.key_channels, channel);
    gv_ = cursor(p.gv.view.rows, bytes_of(p.gv.view), segment.head, p.value_channels, channel);
    load_shared_gate();
#pragma unroll
    for (int ahead = 0; ahead < Ring::kCount - 1; ++ahead) copy_chunk(ahead);
  }

  /// Takes the next chunk, and begins to copy one further on.
  __device__ __forceinline__ void take(Chunk<Shape>& chunk) {
    using Quads = typename Ring::Quads;
    using GateQuads = typename Ring::GateQuads;
    copy_async_wait<Ring::kCount - 2>();
    const std::uint32_t stage = memory_ + taken_ * Ring::kStageBytes;
    taken_ = taken_ + 1 == Ring::kCount ? 0 : taken_ + 1;
    if constexpr (kQueries) take_rows<Quads>(chunk.q, stage + Ring::kQ, lane_);
    take_rows<Quads>(chunk.k, stage + Ring::kK, lane_);
    take_rows<Quads>(chunk.v, stage + Ring::kV, lane_);
    if constexpr (Shape::kKeyGates) take_gates<GateQuads>(chunk.gk, p_.gk, stage + Ring::kGk);
    if constexpr (Shape::kValueGates) take_gates<GateQuads>(chunk.gv, p_.gv, stage + Ring::kGv);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool exists = left_ > lane_.token(i);
      chunk.g[i] = exists ? gate_of(p_.g, g_bits_[i]) + constant_ : 0.0F;
    }
    left_ -= kStep * kChunk;
    --chunks_;
    load_shared_gate();
    copy_chunk(Ring::kCount - 2);
  }

  /// Where rows of a view lie, from a position of the segment's sequence on.
  template <class View>
  __device__ static RowCursor cursor_of(const Params& p, const Segment& segment, const View& view,
                                        std::size_t bytes, int position, int head, int channels,
                                        int channel) {
    RowCursor cursor{.channels = channels - channel};
    if (view.data == nullptr) return cursor;
    const auto width = static_cast<std::int64_t>(bytes);
    const std::int64_t token =
        segment.span.begin + (p.reverse ? segment.span.length - 1 - position : position);
    const std::int64_t at = row_offset(view, segment.span.batch, token, head) + channel;
    cursor.at = static_cast<std::byte*>(const_cast<void*>(view.data)) + at * width;
    cursor.step = width * (p.reverse ? -view.token : view.token);
    return cursor;
  }

 private:
  static constexpr int kStep = kBackwards ? -1 : 1;

  __device__ static int first_chunk(const Segment& segment) {
    return kBackwards ? max(segment.tokens - 1, 0) / kChunk : 0;
  }
  __device__ static std::size_t bytes_of(const GateView& gate) {
    return gate.is_f32 ? sizeof(float) : sizeof(T);
  }
  /// Of bits as they came.
  __device__ __forceinline__ static float gate_of(const GateView& gate, std::uint32_t bits) {
    if constexpr (sizeof(T) < sizeof(float)) {
      if (!gate.is_f32) return unpack<T>(bits).x;
    }
    return __uint_as_float(bits);
  }

  template <class Places>
  __device__ __forceinline__ void take_gates(GateRows<T, Shape::kWidth>& gates,
                                             const WalkGate& gate, std::uint32_t stage) {
    gates.is_f32 = gate.view.is_f32 || !gate.vectors;
    take_rows<Places>(gates, stage, lane_);
  }

  /// Copies the chunk so many ahead of the one that is taken next, if there is one.
  __device__ __forceinline__ void copy_chunk(int ahead) {
    if (chunks_ > ahead) {
      const int left = left_ - kStep * kChunk * ahead;
      using Quads = typename Ring::Quads;
      using GateQuads = typename Ring::GateQuads;
      const std::uint32_t stage = memory_ + copied_ * Ring::kStageBytes;
      copied_ = copied_ + 1 == Ring::kCount ? 0 : copied_ + 1;
      const bool exist[] = {left > lane_.token(0), left > lane_.token(1)};
      if constexpr (kQueries) copy_quads<T, Quads>(stage + Ring::kQ, q_, exist, lane_);
      copy_quads<T, Quads>(stage + Ring::kK, k_, exist, lane_);
      copy_quads<T, Quads>(stage + Ring::kV, v_, exist, lane_);
      if constexpr (Shape::kKeyGates) {
        copy_gates<T, GateQuads>(stage + Ring::kGk, p_.gk, gk_, exist, lane_);
        gk_.move(kStep);
      }
      if constexpr (Shape::kValueGates) {
        copy_gates<T, GateQuads>(stage + Ring::kGv, p_.gv, gv_, exist, lane_);
        gv_.move(kStep);
      }
      if constexpr (kQueries) q_.move(kStep);
      k_.move(kStep);
      v_.move(kStep);
    }
    copy_async_commit();
  }

  /// Begins to load the next chunk's, which is too narrow for a copy.
  __device__ __forceinline__ void load_shared_gate() {
    if (!p_.g.given() || chunks_ == 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (left_ <= lane_.token(i)) continue;
      g_bits_[i] = p_.g.is_f32 ? __ldg(g_.row<const std::uint32_t>(i))
                               : __ldg(g_.row<const std::uint16_t>(i));
    }
    g_.move(kStep);
  }

  const Params& p_;
  const Lane& lane_;
  const std::uint32_t memory_;
  std::uint32_t copied_ = 0;  // the stage that comes next
  std::uint32_t taken_ = 0;
  int left_;    // tokens of the segment from the first on of the chunk that is taken next
  int chunks_;  // to be taken
  const float constant_;
  std::uint32_t g_bits_[2] = {};
  RowCursor q_, k_, v_, g_, gk_, gv_;
};

}  // namespace attune::cuda::warp_mma
