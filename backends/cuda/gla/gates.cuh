// The decays that one thread needs: of two neighbouring channels over eight tokens.
//
// A block of 256 threads takes 64 tokens by 64 channels: each warp eight positions, each lane two
// channels of all of them.
#pragma once

#include "cuda/gla/place.cuh"

namespace attune::cuda::gla_backward {

inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / kWarpSize;
inline constexpr int kRun = kChunkTokens / kBlockWarps;  // positions of a warp
static_assert(kBlockWarps * kRun == kChunkTokens && kWarpSize * 2 == kPanelChannels);

/// Where this thread's elements are.
struct ThreadPlace {
  int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  __device__ int position(int i) const { return warp * kRun + i; }
  /// The first of two, of the panel's.
  __device__ int channel() const { return 2 * lane; }
  /// Keeps what is computed from it, or loaded, from being kept, and later loads behind: else
  /// addresses and values of all of an unrolled loop would fill the registers at once.
  __device__ __forceinline__ void forget() { asm volatile("" : "+r"(warp), "+r"(lane)::"memory"); }
};

/// The rows of a tensor at a thread's positions; Element may be const.
template <class Element>
struct RunRows {
  Element* first;
  std::int64_t step;

  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const ChunkPlace& chunk, const Place& at,
                                     int channel)
      : RunRows(view, chunk, chunk.head, at, channel) {}
  template <class View, class Place>
  __device__ __forceinline__ RunRows(const View& view, const ChunkPlace& chunk, std::int64_t head,
                                     const Place& at, int channel)
      : first(static_cast<Element*>(view.data) +
              row_offset(view, chunk.batch, chunk.token + chunk.row(at.position(0)), head) +
              channel),
        step(chunk.reverse ? -view.token : view.token) {
    // Not to be computed again for each row.
    asm volatile("" : "+l"(first), "+l"(step));
  }
  __device__ __forceinline__ Element* row(int i) const { return first + i * step; }
};

/// The bytes of a panel of a tile at this warp's positions and this lane's two channels.
template <class Address>
struct RunTile {
  Address base;       // of the first position's row, which is a multiple of eight
  std::uint32_t at;   // in that row
  std::int32_t step;  // rows are as far apart
  __device__ __forceinline__ Address row(int i) const {
    return base + i * step + (at ^ static_cast<std::uint32_t>(i) * 16U);
  }
};
/// By position, as shared memory has it.
__device__ __forceinline__ RunTile<unsigned char*> positions_of(unsigned char* panel,
                                                                const ThreadPlace& at) {
  constexpr int kRow = kPanelChannels * 2;
  return {panel + at.warp * (kRun * kRow), static_cast<std::uint32_t>(at.lane) * 4U, kRow};
}
/// By row, as the workspace has it.
__device__ __forceinline__ RunTile<unsigned char*> rows_of(unsigned char* tile, int channel,
                                                           const ChunkPlace& chunk,
                                                           const ThreadPlace& at) {
  constexpr int kRow = kPanelChannels * 2;
  unsigned char* const panel = tile + channel / kPanelChannels * chunk_backward::kPanelBytes;
  const std::uint32_t lane = static_cast<std::uint32_t>(at.lane) * 4U;
  if (!chunk.reverse) return {panel + at.warp * (kRun * kRow), lane, kRow};
  return {panel + (kChunkTokens - 1 - at.warp * kRun) * kRow, lane ^ (kRun - 1) * 16U, -kRow};
}

/// Bit i: there is a token at this warp's i-th position, and the channel is the tensor's.
__device__ __forceinline__ unsigned valid_positions(const ChunkPlace& chunk, const ThreadPlace& at,
                                                    bool has_channel) {
  unsigned valid = 0;
#pragma unroll
  for (int i = 0; i < kRun; ++i) valid |= chunk.has(at.position(i)) ? 1U << i : 0U;
  return has_channel ? valid : 0U;
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

/// The same of a gate, whose rows may start anywhere.
template <class Element>
__device__ __forceinline__ void load_gate_pairs(float2 (&pairs)[kRun],
                                                const RunRows<const Element>& rows, unsigned valid,
                                                bool aligned) {
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
      if ((valid >> i & 1) != 0) loaded[i] = {rows.row(i)[0], rows.row(i)[1]};
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

/// The log decays of this thread's tokens (base 2); 0 where there is no token or no channel.
/// All loads are under way before the first is used.
template <class T>
__device__ __forceinline__ void load_log_decays(float2 (&logs)[kRun], const GlaBackwardParams& p,
                                                const ChunkPlace& chunk, const ThreadPlace& at,
                                                int channel, unsigned valid) {
  const ConstTokenView& own = p.channel_gate.rows;
  if (p.channel_gate.is_f32) {
    load_gate_pairs<float>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs);
  } else {
    load_gate_pairs<T>(logs, {own, chunk, at, channel}, valid, p.gate_in_pairs);
  }
  if (p.g.given() && p.g.is_f32) {
    add_shared_gate<float>(logs, {p.g.rows, chunk, at, 0}, valid);
  } else if (p.g.given()) {
    add_shared_gate<T>(logs, {p.g.rows, chunk, at, 0}, valid);
  }
  if (p.moved != nullptr) {
    const ConstTokenView moved{p.moved, p.sequences.tokens * p.heads, p.heads, 1};
    add_shared_gate<float>(logs, {moved, chunk, at, 0}, valid, p.moved_sign);
  }
  const float constant = constant_decay(p.gamma, chunk.sequence, chunk.head);
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    const float shared = (valid >> i & 1) != 0 ? constant : 0.0F;
    logs[i] = {(logs[i].x + shared) * kLog2E, (logs[i].y + shared) * kLog2E};
  }
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

}  // namespace attune::cuda::gla_backward
