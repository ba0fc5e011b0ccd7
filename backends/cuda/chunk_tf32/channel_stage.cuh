// One channel of a chunk's tokens, as a thread of the staging warps (chunk_stage.cuh) loads it and decays
// it.
#pragma once

#include <cstring>

#include "cuda/chunk_tf32/chunk_block.cuh"
#include "cuda/tiles/tf32.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::chunk_tf32 {

/// One channel of a head's rows, from step to step of a segment's walk. Null where there is none.
template <class T>
struct ChannelCursor {
  const T* next = nullptr;
  std::int64_t stride = 0;

  __device__ ChannelCursor() = default;
  __device__ ChannelCursor(const ConstTokenView& view, std::int64_t heads_per_row,
                           const WalkParams& p, const ChunkBlock& block, std::int64_t step,
                           std::int64_t channel) {
    if (view.data == nullptr) return;
    const SequenceSpan& span = block.span;
    const std::int64_t token = span.begin + (p.descending ? span.length - 1 - step : step);
    const std::int64_t at =
        row_offset(view, span.batch, token, small_quotient(block.head, heads_per_row));
    next = static_cast<const T*>(view.data) + at + channel;
    stride = p.descending ? -view.token : view.token;
  }
};

/// The bits of an element, and back: what is converted waits for its load.
template <class T>
__device__ __forceinline__ std::uint32_t bits_of(T x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return __float_as_uint(x);
  } else {
    unsigned short bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
  }
}
template <class T>
__device__ __forceinline__ float float_of(std::uint32_t bits) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return __uint_as_float(bits);
  } else {
    const auto half = static_cast<unsigned short>(bits);
    T x;
    memcpy(&x, &half, sizeof x);
    return to_float(x);
  }
}

/// Loaded in place of what does not exist. Skipping the load instead would be a branch of its own,
/// at whose end the thread waits for it.
static __device__ const float kZero = 0.0F;

/// Bits of the channel at the chunk's steps [begin, end), zeros at others.
template <class T>
__device__ __forceinline__ void load_channel(const ChannelCursor<T>& cursor, int begin, int end,
                                             std::uint32_t (&to)[kChunk]) {
  const T* at = cursor.next;
  if (begin == 0 && end == kChunk) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      to[i] = bits_of(__ldg(at));
      at += cursor.stride;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const bool valid = i >= begin && i < end;
    to[i] = bits_of(__ldg(valid ? at : reinterpret_cast<const T*>(&kZero)));
    at += cursor.stride;
  }
}

/// The log decays of a channel, or of what all channels share.
template <class T>
class GateChannel {
 public:
  __device__ GateChannel() = default;
  __device__ GateChannel(const GateView& gate, const WalkParams& p, const ChunkBlock& block,
                         std::int64_t step, std::int64_t channel)
      : is_f32_(gate.is_f32) {
    const ConstTokenView& rows = gate.rows;
    cursor_ = ChannelCursor<float>(rows, 1, p, block, step, is_f32_ ? channel : 0);
    if (rows.data == nullptr || is_f32_) return;
    const ChannelCursor<T> io(rows, 1, p, block, step, channel);
    cursor_.next = reinterpret_cast<const float*>(io.next);
  }
  __device__ bool given() const { return cursor_.next != nullptr; }
  __device__ void load(int begin, int end, std::uint32_t (&to)[kChunk]) const {
    if (is_f32_) {
      load_channel(cursor_, begin, end, to);
    } else {
      load_channel(io(), begin, end, to);
    }
  }
  __device__ float at(int step) const {
    return is_f32_ ? cursor_.next[step * cursor_.stride]
                   : to_float(io().next[step * cursor_.stride]);
  }
  __device__ float log_of(std::uint32_t bits) const {
    return is_f32_ ? __uint_as_float(bits) : float_of<T>(bits);
  }
  __device__ void move(int steps) {
    if (!given()) return;
    if (is_f32_) {
      cursor_.next += steps * cursor_.stride;
    } else {
      cursor_.next = reinterpret_cast<const float*>(io().next + steps * cursor_.stride);
    }
  }

 private:
  __device__ ChannelCursor<T> io() const {
    ChannelCursor<T> cursor;
    cursor.next = reinterpret_cast<const T*>(cursor_.next);
    cursor.stride = cursor_.stride;
    return cursor;
  }

  ChannelCursor<float> cursor_;
  bool is_f32_ = true;
};

/// What the staging threads of rows have in common with those of columns.
template <class T, int kRows, int kParts>
class ChannelStager {
 public:
  using At = RowLayout<kRows, kParts>;

  /// `number`: the thread's, of the channels of rows or of columns.
  __device__ ChannelStager(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                           int number)
      : p_(p), block_(block), threads_(tile.staging_threads()), channel_(number) {}

 protected:
  static constexpr int kStagingBarrier = 3;

  /// Steps of a chunk, and those of them that have a token.
  __device__ __forceinline__ void count_steps(std::int64_t chunk, int& steps, int& tokens) const {
    steps = block_.steps(chunk);
    tokens =
        static_cast<int>(min(std::int64_t{steps}, block_.span.length - block_.first_step(chunk)));
  }
  /// The first step of a chunk that has a decay.
  __device__ __forceinline__ int first_gate(std::int64_t chunk) const {
    return p_.lags && block_.first_step(chunk) == 0 ? 1 : 0;
  }

  /// Whether any thread's decays are more than a product takes.
  __device__ __forceinline__ bool any_strange(bool strange) const {
    return named_barrier_any<kStagingBarrier>(threads_, strange);
  }
  __device__ static bool is_strange(float sum) { return !(fabsf(sum) <= kMostDecay / kLog2E); }

  /// An operand in its one or two parts.
  __device__ __forceinline__ static void store(float x, float* high, float* low) {
    if constexpr (kParts > 1) {
      const float cut = truncate_tf32(x);
      *high = cut;
      *low = x - cut;
    } else {
      *high = rounded_when_cut(x);
    }
  }

  /// The decay of a whole chunk from its logarithm.
  __device__ __forceinline__ static void store_total(float log, float* to) {
    DecayFactor factor;
    if constexpr (kParts > 1) {
      factor = decay_factor(log);
    } else {
      factor.high = exp2_approx(log * kLog2E);
    }
    *reinterpret_cast<float2*>(to) = {factor.high, factor.low};
  }

  /// Logarithms of a channel's decays in `high`, made factors.
  __device__ __forceinline__ static void make_factors(float* high, float* low, int high_stride,
                                                      int low_stride) {
#pragma unroll 1
    for (int i = 0; i < kChunk; ++i) {
      const DecayFactor factor = decay_factor(high[i * high_stride]);
      high[i * high_stride] = factor.high;
      if constexpr (kParts > 1) low[i * low_stride] = factor.low;
    }
  }

  const WalkParams& p_;
  const ChunkBlock& block_;
  int threads_;
  int channel_;
};

}  // namespace attune::cuda::chunk_tf32
