// The staging warps of a walk: they bring chunks to shared memory, with their decays, a chunk ahead
// of the state warps. A thread has one row's or one column's channel over all tokens of a chunk, so
// sums of decays need no exchange, and a warp's loads are of neighbours whatever the strides.
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

template <class T, int kRows, int kParts>
class RowStager : public ChannelStager<T, kRows, kParts> {
  using Base = ChannelStager<T, kRows, kParts>;
  using Base::block_, Base::channel_, Base::p_;
  using At = typename Base::At;

 public:
  __device__ RowStager(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                       int number)
      : Base(tile, p, block, number),
        reads_anything_(p.out.data != nullptr || p.planes != nullptr),
        gamma_(constant_decay(p.gamma, block.sequence, block.head)) {
    const std::int64_t gate_step = block.first - (p.lags ? 1 : 0);
    shared_gate_ = GateChannel<T>(p.shared_gate, p, block, gate_step, 0);
    if (channel_ >= block.rows) return;
    const std::int64_t at = block.first_row + channel_;
    read_ = ChannelCursor<T>(p.read.view, p.read.heads_per_row, p, block, block.first, at);
    write_ = ChannelCursor<T>(p.write.view, p.write.heads_per_row, p, block, block.first, at);
    gate_ = GateChannel<T>(p.row_gate.view, p, block, gate_step, at);
  }

  /// Begins all loads of a chunk; chunks come in order.
  __device__ __forceinline__ void fetch(std::int64_t chunk) {
    int steps = 0;
    int tokens = 0;
    this->count_steps(chunk, steps, tokens);
    const int first_gate = this->first_gate(chunk);
    if (reads_anything_) load_channel(read_, 0, read_.next == nullptr ? 0 : tokens, reads_);
    load_channel(write_, 0, write_.next == nullptr ? 0 : tokens, writes_);
    gate_.load(first_gate, gate_.given() ? steps : 0, gates_);
    const int lane = static_cast<int>(threadIdx.x) % kChunk;
    const bool valid = lane >= first_gate && lane < steps;
    shared_ = valid ? gamma_ : 0.0F;
    if (valid && shared_gate_.given()) shared_ += shared_gate_.at(lane);
    read_.next += read_.next == nullptr ? 0 : steps * read_.stride;
    write_.next += write_.next == nullptr ? 0 : steps * write_.stride;
    gate_.move(steps);
    shared_gate_.move(steps);
  }

  /// Fills a buffer with the chunk that was fetched.
  __device__ __forceinline__ void stage(float* to) const {
    float total = 0.0F;
    bool strange = false;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      total += log_at(i);
      strange = strange || Base::is_strange(total);
    }
    const bool one_by_one = this->any_strange(strange);
    if (channel_ == 0) to[At::kFlags] = one_by_one ? 1.0F : 0.0F;
    float* const read = to + At::kRead + channel_;
    float* const read_low = to + At::kReadLow + channel_;
    float* const write = to + At::kWrite + channel_;
    float* const write_low = to + At::kWriteLow + channel_;
    if (one_by_one) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        read[i * At::kReadStride] = float_of<T>(reads_[i]) * p_.read_scale;
        write[i * At::kWriteStride] = float_of<T>(writes_[i]) * p_.write_scale;
        write_low[i * At::kWriteStride] = log_at(i);
      }
      Base::make_factors(write_low, read_low, At::kWriteStride, At::kReadStride);
      return;
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      sum += log_at(i);
      const float w = float_of<T>(writes_[i]) * p_.write_scale * exp2_approx(sum * -kLog2E);
      Base::store(w, write + i * At::kWriteStride, write_low + i * At::kWriteStride);
    }
    if (reads_anything_) {
      sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        sum += log_at(i);
        const float r = float_of<T>(reads_[i]) * p_.read_scale * exp2_approx(sum * kLog2E);
        Base::store(r, read + i * At::kReadStride, read_low + i * At::kReadStride);
      }
    }
    Base::store_total(total, to + At::kRowTotal + 2 * channel_);
  }

 private:
  __device__ __forceinline__ float log_at(int i) const {
    return __shfl_sync(kFullWarp, shared_, i) + gate_.log_of(gates_[i]);
  }

  bool reads_anything_;
  float gamma_;
  ChannelCursor<T> read_;
  ChannelCursor<T> write_;
  GateChannel<T> gate_;
  GateChannel<T> shared_gate_;
  std::uint32_t reads_[kChunk] = {};
  std::uint32_t writes_[kChunk];
  std::uint32_t gates_[kChunk];
  float shared_ = 0.0F;  // the log decay that all channels share, of token lane % kChunk
};

template <class T, int kRows, int kParts>
class ColumnStager : public ChannelStager<T, kRows, kParts> {
  using Base = ChannelStager<T, kRows, kParts>;
  using Base::block_, Base::channel_, Base::p_;
  using At = typename Base::At;

 public:
  __device__ ColumnStager(const WalkTile& tile, const WalkParams& p, const ChunkBlock& block,
                          int number)
      : Base(tile, p, block, number),
        columns_(column_layout(At::kEnd, tile.columns(), kParts, p.column_gate.view.given())),
        in_tile_(number < tile.columns()),
        gated_(p.column_gate.view.given()) {
    if (channel_ >= block.columns) return;
    const std::int64_t at = block.first_column + channel_;
    value_ = ChannelCursor<T>(p.value.view, p.value.heads_per_row, p, block, block.first, at);
    gate_ = GateChannel<T>(p.column_gate.view, p, block, block.first - (p.lags ? 1 : 0), at);
  }

  __device__ __forceinline__ void fetch(std::int64_t chunk) {
    int steps = 0;
    int tokens = 0;
    this->count_steps(chunk, steps, tokens);
    load_channel(value_, 0, value_.next == nullptr ? 0 : tokens, values_);
    gate_.load(this->first_gate(chunk), gate_.given() ? steps : 0, gates_);
    value_.next += value_.next == nullptr ? 0 : steps * value_.stride;
    gate_.move(steps);
  }

  __device__ __forceinline__ void stage(float* to) const {
    float total = 0.0F;
    bool strange = false;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      total += gate_.log_of(gates_[i]);
      strange = strange || Base::is_strange(total);
    }
    const bool one_by_one = this->any_strange(strange);
    if (!in_tile_) return;
    float* const value = to + columns_.value + channel_;
    float* const value_low = to + columns_.value_low + channel_;
    float* const factor = to + columns_.factor + channel_;
    const int stride = columns_.stride;
    if (one_by_one) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        value[i * stride] = float_of<T>(values_[i]);
        if (gated_) factor[i * stride] = gate_.log_of(gates_[i]);
      }
      if (gated_) Base::make_factors(factor, value_low, stride, stride);
      return;
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      float x = float_of<T>(values_[i]);
      if (gated_) {
        sum += gate_.log_of(gates_[i]);
        x *= exp2_approx(sum * -kLog2E);
        factor[i * stride] = exp2_approx(sum * kLog2E);
      }
      Base::store(x, value + i * stride, value_low + i * stride);
    }
    if (gated_) Base::store_total(total, to + columns_.total + 2 * channel_);
  }

 private:
  ColumnLayout columns_;
  bool in_tile_;
  bool gated_;
  ChannelCursor<T> value_;
  GateChannel<T> gate_;
  std::uint32_t values_[kChunk];
  std::uint32_t gates_[kChunk];
};

}  // namespace attune::cuda::chunk_tf32
