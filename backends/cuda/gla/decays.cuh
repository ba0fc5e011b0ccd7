// The decays that one thread needs where blocks take tokens by channels: of two neighbouring channels
// over eight tokens. A block of 256 threads takes 64 tokens by 64 channels: each warp eight positions,
// each lane two channels of all of them.
#pragma once

#include "cuda/gla/chunk.cuh"

namespace attune::cuda::gla {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpSize;
inline constexpr int kRun = kChunkTokens / kBlockWarps;  // positions of a warp
static_assert(kBlockWarps * kRun == kChunkTokens && kWarpSize * 2 == kPanelChannels);

/// Of half a chunk, base 2: with the inverse of a weaker one products of inputs are finite, and
/// with the decay itself they keep their precision.
inline constexpr float kStrongDecay = -80;

/// Where this thread's elements are, if so many lanes side by side have the same positions: of a block
/// that takes fewer channels parts of a warp are what warps are here.
template <int kLanes>
struct RunLanes {
  int warp = static_cast<int>(threadIdx.x) / kLanes;
  int lane = static_cast<int>(threadIdx.x) % kLanes;
  __device__ int position(int i) const { return warp * kRun + i; }
  /// The first of two, of the panel's.
  __device__ int channel() const { return 2 * lane; }
  /// Makes the compiler compute again what it computed from it, and load again: else addresses and
  /// values of all of an unrolled loop would fill the registers at once.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(warp), "+r"(lane)::"memory"); }
};
using RunLane = RunLanes<kWarpSize>;

/// The rows of a tensor at a thread's positions; Element may be const.
template <class Element>
struct RunRows {
  Element* first;
  std::int64_t step;

  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const HeadChunk& chunk, const Place& at,
                                     int channel)
      : RunRows(view, chunk, chunk.head, at, channel) {}
  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const HeadChunk& chunk, std::int64_t head,
                                     const Place& at, int channel)
      : first(static_cast<Element*>(view.data) +
              row_offset(view, chunk.batch, chunk.token + chunk.row(at.position(0)), head) +
              channel),
        step(chunk.reverse ? -view.token : view.token) {
    pin();
  }
  /// Of a tensor of the workspace.
  template <class Place>
  __device__ __forceinline__ RunRows(const ChunkRows& rows, int tensor, const HeadChunk& chunk,
                                     const Place& at, int channel)
      : first(chunk_row<Element>(rows, tensor, chunk.index, chunk.row(at.position(0)), channel)),
        step(chunk.reverse ? -rows.channels : rows.channels) {
    pin();
  }
  __device__ __forceinline__ Element* row(int i) const { return first + i * step; }

 private:
  /// Not to be computed again for each row.
  __device__ __forceinline__ void pin() { asm volatile("" : "+l"(first), "+l"(step)); }
};

/// Bit i: there is a token at this warp's i-th position, and the channel is the tensor's.
template <class Place>
__device__ __forceinline__ unsigned valid_positions(const HeadChunk& chunk, const Place& at,
                                                    bool has_channel) {
  return has_channel ? chunk.tokens_from<kRun>(at.position(0)) : 0U;
}

/// Two neighbouring elements of each row; zeros where there are none.
template <class T>
__device__ __forceinline__ void load_pairs(std::uint32_t (&pairs)[kRun],
                                           const RunRows<const T>& rows, unsigned valid) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    pairs[i] = 0U;
    if ((valid >> i & 1) != 0) pairs[i] = *reinterpret_cast<const std::uint32_t*>(rows.row(i));
  }
}

/// The same of a gate, whose rows may start anywhere. `second`: 1, or 0 where there is no second
/// channel.
template <class Element>
__device__ __forceinline__ void load_gate_pairs(float2 (&pairs)[kRun],
                                                const RunRows<const Element>& rows, unsigned valid,
                                                bool aligned, int second) {
  struct alignas(2 * sizeof(Element)) Pair {
    Element low, high;
  };
  Pair loaded[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    loaded[i] = {from_float<Element>(0.0F), from_float<Element>(0.0F)};
  }
  if (aligned) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if ((valid >> i & 1) != 0) loaded[i] = *reinterpret_cast<const Pair*>(rows.row(i));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if ((valid >> i & 1) != 0) loaded[i] = {rows.row(i)[0], rows.row(i)[second]};
    }
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) pairs[i] = {to_float(loaded[i].low), to_float(loaded[i].high)};
}

/// A decay that channels share, at each position.
template <class Element>
__device__ __forceinline__ void add_shared_gate(float2 (&logs)[kRun],
                                                const RunRows<const Element>& rows, unsigned valid,
                                                float sign = 1.0F) {
  float shared[kRun];
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    shared[i] = (valid >> i & 1) != 0 ? to_float(*rows.row(i)) : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    logs[i] = {fmaf(sign, shared[i], logs[i].x), fmaf(sign, shared[i], logs[i].y)};
  }
}

/// What channels share of the log decays of this warp's tokens, natural.
template <class T, class Place>
__device__ __forceinline__ void add_shared_decays(float2 (&logs)[kRun], const GlaParams& p,
                                                  const HeadChunk& chunk, const Place& at,
                                                  unsigned valid) {
  if (p.g.given() && p.g.is_f32) {
    add_shared_gate<float>(logs, {p.g.rows, chunk, at, 0}, valid);
  } else if (p.g.given()) {
    add_shared_gate<T>(logs, {p.g.rows, chunk, at, 0}, valid);
  }
  if (p.gate_shift != nullptr) {
    const ConstTokenView gate_shift{p.gate_shift, p.sequences.tokens * p.heads, p.heads, 1};
    add_shared_gate<float>(logs, {gate_shift, chunk, at, 0}, valid, p.gate_shift_sign);
  }
  const float constant = constant_decay(p.gamma, chunk.sequence, chunk.head);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const float shared = (valid >> i & 1) != 0 ? constant : 0.0F;
    logs[i] = {logs[i].x + shared, logs[i].y + shared};
  }
}

/// The log decays of this thread's tokens (base 2); 0 where there is no token or no channel.
/// All loads are under way before the first is used.
template <class T, class Place>
__device__ __forceinline__ void load_log_decays(float2 (&logs)[kRun], const GlaParams& p,
                                                const HeadChunk& chunk, const Place& at,
                                                int channel, unsigned valid) {
  const ConstTokenView& own = p.channel_gate.rows;
  const int second = channel + 1 < p.own ? 1 : 0;
  if (p.channel_gate.is_f32) {
    load_gate_pairs<float>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs, second);
  } else {
    load_gate_pairs<T>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs, second);
  }
  add_shared_decays<T>(logs, p, chunk, at, valid);
#pragma unroll
  for (int i = 0; i < kRun; ++i) logs[i] = {logs[i].x * kLog2E, logs[i].y * kLog2E};
  if (channel + 1 < p.own) return;
#pragma unroll
  for (int i = 0; i < kRun; ++i) logs[i].y = 0.0F;
}

__device__ __forceinline__ float2 exp2_of(float2 logs) {
  return {exp2_approx(logs.x), exp2_approx(logs.y)};
}
__device__ __forceinline__ void add(float2& to, float2 x) {
  to.x += x.x;
  to.y += x.y;
}
__device__ __forceinline__ float2 sum_of(const float2 (&logs)[kRun]) {
  float2 sum = logs[0];
#pragma unroll
  for (int i = 1; i < kRun; ++i) add(sum, logs[i]);
  return sum;
}

/// Products of the warps' decays over [first, last), at most kMost of them.
template <int kMost = kBlockWarps>
__device__ __forceinline__ float2 over_warps(const float2 (&decays)[kBlockWarps][kWarpSize],
                                             int first, int last, int lane) {
  float2 product{1.0F, 1.0F};
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (first + i < last) product = times(product, decays[first + i][lane]);
  }
  return product;
}

}  // namespace attune::cuda::gla
