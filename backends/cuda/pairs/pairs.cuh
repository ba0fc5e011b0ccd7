// One token of one head, and its way along the other tokens of its sequence.
#pragma once

#include <bit>
#include <cstddef>

#include "cuda/chunks/views.cuh"
#include "cuda/pairs/pairs.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda::pairs {

/// A lane's channels: lane, lane + 32 and so on.
template <int kPerLane>
struct Channels {
  float at[kPerLane];

  __device__ __forceinline__ float& operator[](int i) { return at[i]; }
  __device__ __forceinline__ float operator[](int i) const { return at[i]; }
};
__device__ __forceinline__ int channel_of(int i) {
  return static_cast<int>(threadIdx.x) % kWarpSize + i * kWarpSize;
}

template <int kPerLane>
__device__ __forceinline__ Channels<kPerLane> all_of(float x) {
  Channels<kPerLane> channels;
#pragma unroll
  for (float& own : channels.at) own = x;
  return channels;
}

/// The sum over all channels of a b, whose parts its lanes have.
template <int kPerLane, class Row>
__device__ __forceinline__ float part_of_dot(const Channels<kPerLane>& a, const Row& b) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

template <int kPerLane>
__device__ __forceinline__ void multiply(Channels<kPerLane>& channels,
                                         const Channels<kPerLane>& factors) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) channels[i] *= factors[i];
}
template <int kPerLane>
__device__ __forceinline__ void scale(Channels<kPerLane>& channels, float factor) {
#pragma unroll
  for (float& own : channels.at) own *= factor;
}

/// The token that a warp has.
struct OwnToken {
  std::int64_t head = 0;
  std::int64_t sequence = 0;
  SequenceSpan span;
  std::int64_t token = 0;
  bool is_in_a_sequence = false;

  /// `heads`: of the tensor whose rows are shared out; those of a head follow each other.
  __device__ OwnToken(const Inputs& p, std::int64_t heads, std::int64_t number) {
    const std::int64_t tokens = p.by_sequence() ? p.most_tokens : p.sequences.tokens;
    const std::int64_t row = quotient(number, tokens);
    token = number - row * tokens;
    sequence = quotient(row, heads);
    head = row - sequence * heads;
    if (p.by_sequence()) {
      span = span_of(p.sequences, sequence);
      is_in_a_sequence = token < span.length && p.takes(span.length);
      token += span.begin;
      return;
    }
    if (p.sequences.bounds != nullptr) {
      std::int64_t low = 0;
      std::int64_t high = p.sequence_count - 1;
      while (low < high) {  // the last one that starts at or before the token
        const std::int64_t middle = (low + high + 1) / 2;
        const bool starts_later = bound_of(p.sequences, middle) > token;
        (starts_later ? high : low) = starts_later ? middle - 1 : middle;
      }
      sequence = low;
    }
    span = span_of(p.sequences, sequence);
    is_in_a_sequence =
        token >= span.begin && token < span.begin + span.length && p.takes(span.length);
  }

  /// Its place in the order of the walk.
  __device__ std::int64_t step(const Inputs& p) const {
    return p.descending ? span.begin + span.length - 1 - token : token - span.begin;
  }
};

/// Channels of a lane that has `left` from its first one on. Each load is behind a predicate and
/// none behind a branch, so that all are under way together.
template <class From, class To, int kPerLane>
__device__ __forceinline__ void load_channels(const From* from, int left, To (&to)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i * kWarpSize < left) to[i] = from[i * kWarpSize];
  }
}

/// Rows of one head of a tensor, a token after the other. What was asked for stays as it lies in
/// memory, so that nothing waits for it before it is used. Channels that are not there are 0.
template <class T, int kPerLane>
class WalkedRows {
 public:
  /// `ahead`: how many tokens each row is ahead of the one before it.
  __device__ __forceinline__ WalkedRows(const ConstTokenView& view, std::int64_t batch,
                                        std::int64_t token, std::int64_t head, int count,
                                        int ahead = 0)
      : from_(static_cast<const T*>(view.data) + row_offset(view, batch, token, head) +
              channel_of(0)),
        ahead_(ahead * view.token),
        left_(count - channel_of(0)) {}

  /// `is_there`: whether there is such a row. In a loop it says so in place of a branch: predicates
  /// that are the same at every step are kept for all of them, which takes more instructions than
  /// to compare anew.
  __device__ __forceinline__ void ask_for_next(bool is_there = true) {
    load_channels(from_, is_there ? left_ : 0, loaded_);
    from_ += ahead_;
  }

  __device__ __forceinline__ float operator[](int i) const { return to_float(loaded_[i]); }
  __device__ __forceinline__ Channels<kPerLane> channels() const {
    Channels<kPerLane> row;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) row[i] = to_float(loaded_[i]);
    return row;
  }

 private:
  const T* from_;
  std::int64_t ahead_;
  int left_;  // channels from the lane's first one on
  T loaded_[kPerLane] = {};
};

/// The same of a gate, whose elements are fp32 or T. All are 0 where there is none.
template <class T, int kPerLane>
class WalkedGate {
 public:
  /// `first`: the lane's first channel.
  __device__ __forceinline__ WalkedGate(const GateView& gate, std::int64_t batch,
                                        std::int64_t token, std::int64_t head, int first, int count,
                                        int ahead)
      : given_(gate.given()),
        is_f32_(std::is_same_v<T, float> || gate.is_f32),
        from_(static_cast<const std::byte*>(gate.rows.data) +
              (row_offset(gate.rows, batch, token, head) + first) * bytes()),
        ahead_(ahead * gate.rows.token * bytes()),
        left_(count - first) {}

  __device__ __forceinline__ bool given() const { return given_; }
  __device__ __forceinline__ void ask_for_next(bool is_there = true) {
    if (!given_) return;
    const int left = is_there ? left_ : 0;
    if (is_f32_) {
      load_channels(reinterpret_cast<const std::uint32_t*>(from_), left, bits_);
    } else {
      load_channels(reinterpret_cast<const std::uint16_t*>(from_), left, bits_);
    }
    from_ += ahead_;
  }

  /// The lane's first log of the row that was asked for; once a row.
  __device__ __forceinline__ float first_log() {
    widen();
    return __uint_as_float(bits_[0]);
  }
  /// Multiplies channels by their decays, of that row and of `shared`; once a row.
  __device__ __forceinline__ void decay(Channels<kPerLane>& channels, float shared) {
    if (!given_) return scale(channels, exp2_approx(shared * kLog2E));
    widen();
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      channels[i] *= exp2_approx((shared + __uint_as_float(bits_[i])) * kLog2E);
  }

 private:
  __device__ __forceinline__ std::int64_t bytes() const { return is_f32_ ? 4 : 2; }
  /// Elements of T become fp32 where they are, so that they need no other registers.
  __device__ __forceinline__ void widen() {
    if constexpr (!std::is_same_v<T, float>) {
      if (is_f32_) return;
#pragma unroll
      for (std::uint32_t& bits : bits_)
        bits = __float_as_uint(to_float(std::bit_cast<T>(static_cast<std::uint16_t>(bits))));
    }
  }

  bool given_;
  bool is_f32_;
  const std::byte* from_;
  std::int64_t ahead_;
  int left_;
  std::uint32_t bits_[kPerLane] = {};
};

/// Zeros where there is no such row.
template <class T, int kPerLane>
__device__ __forceinline__ Channels<kPerLane> load_row(const ConstTokenView& view,
                                                       std::int64_t batch, std::int64_t token,
                                                       std::int64_t head, int count) {
  if (view.data == nullptr) return all_of<kPerLane>(0.0F);
  WalkedRows<T, kPerLane> rows(view, batch, token, head, count);
  rows.ask_for_next();
  return rows.channels();
}

template <class T, int kPerLane>
__device__ __forceinline__ void store_row(const TokenView& view, std::int64_t batch,
                                          std::int64_t token, std::int64_t head, int count,
                                          const Channels<kPerLane>& row) {
  if (view.data == nullptr) return;
  T* const to = static_cast<T*>(view.data) + row_offset(view, batch, token, head) + channel_of(0);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (channel_of(i) < count) to[i * kWarpSize] = from_float<T>(row[i]);
  }
}

/// A row of terms [B, T, H, count].
template <int kPerLane>
__device__ __forceinline__ void store_terms(float* terms, const Inputs& p, std::int64_t batch,
                                            std::int64_t token, std::int64_t head, int count,
                                            const Channels<kPerLane>& row) {
  if (terms == nullptr) return;
  float* const to =
      terms + ((batch * p.sequences.tokens + token) * p.heads + head) * count + channel_of(0);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (channel_of(i) < count) to[i * kWarpSize] = row[i];
  }
}

/// The sum of a row, of sums [B, T, H].
template <int kPerLane>
__device__ __forceinline__ void store_sum(float* sums, const Inputs& p, std::int64_t batch,
                                          std::int64_t token, std::int64_t head,
                                          const Channels<kPerLane>& row) {
  if (sums == nullptr) return;
  float sum = row[0];
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) sum += row[i];
  sum = warp_sum(sum);
  if (channel_of(0) == 0) sums[(batch * p.sequences.tokens + token) * p.heads + head] = sum;
}

/// g + g_gamma of a token.
template <class T>
__device__ __forceinline__ float shared_log(const Inputs& p, std::int64_t sequence,
                                            std::int64_t batch, std::int64_t token,
                                            std::int64_t head) {
  const float gamma = constant_decay(p.gamma, sequence, head);
  if (!p.shared_gate.given()) return gamma;
  return gamma + gate_at<T>(p.shared_gate, row_offset(p.shared_gate.rows, batch, token, head));
}

/// The gates of a query head, a token after the other.
template <class T, int kPerLane>
class WalkedGates {
 public:
  __device__ __forceinline__ WalkedGates(const Inputs& p, std::int64_t sequence, std::int64_t batch,
                                         std::int64_t token, std::int64_t head, int ahead)
      : keys_(p.key_gate, batch, token, head, channel_of(0), p.keys, ahead),
        values_(p.value_gate, batch, token, head, channel_of(0), p.values, ahead),
        shared_(p.shared_gate, batch, token, head, 0, 1, ahead),
        gamma_(constant_decay(p.gamma, sequence, head)) {}

  __device__ __forceinline__ void ask_for_next(bool is_there = true) {
    keys_.ask_for_next(is_there);
    shared_.ask_for_next(is_there);
    values_.ask_for_next(is_there);
  }
  /// Multiplies channels of keys and of values by the decays of the token that was asked for; once
  /// a token.
  __device__ __forceinline__ void decay(Channels<kPerLane>& of_keys,
                                        Channels<kPerLane>& of_values) {
    keys_.decay(of_keys, gamma_ + shared_.first_log());
    if (values_.given()) values_.decay(of_values, 0.0F);
  }

 private:
  WalkedGate<T, kPerLane> keys_;
  WalkedGate<T, kPerLane> values_;
  WalkedGate<T, 1> shared_;
  float gamma_;
};

/// Calls f.operator()<kPerLane>() for as many as `channels` take.
template <class F>
void with_channels(std::int64_t channels, F&& f) {
  const auto per_lane = static_cast<int>(ceil_div(channels, kWarpSize));
  if (per_lane <= 2) return f.template operator()<2>();
  if (per_lane <= 4) return f.template operator()<4>();
  if (per_lane <= 8) return f.template operator()<8>();
  f.template operator()<16>();
}

/// The number of a warp among those of the grid.
__device__ __forceinline__ std::int64_t warp_number() {
  return block_number() * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize;
}

}  // namespace attune::cuda::pairs
