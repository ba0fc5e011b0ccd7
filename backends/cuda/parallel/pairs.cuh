// One token of one head, and its way along the other tokens of its sequence.
#pragma once

#include "cuda/chunks/views.cuh"
#include "cuda/parallel/parallel.hpp"
#include "cuda/tiles/exchange.cuh"
#include "cuda/walks/numbers.cuh"

namespace attune::cuda::parallel {

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

/// The sum over all channels of a b.
template <int kPerLane>
__device__ __forceinline__ float dot(const Channels<kPerLane>& a, const Channels<kPerLane>& b) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) sum = fmaf(a[i], b[i], sum);
  return warp_sum(sum);
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
    const std::int64_t tokens = p.sequences.tokens;
    token = number % tokens;
    head = number / tokens % heads;
    sequence = number / tokens / heads;
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
    is_in_a_sequence = token >= span.begin && token < span.begin + span.length;
  }

  /// Its place in the order of the walk.
  __device__ std::int64_t step(const Inputs& p) const {
    return p.descending ? span.begin + span.length - 1 - token : token - span.begin;
  }
  __device__ std::int64_t token_of(const Inputs& p, std::int64_t step) const {
    return span.begin + (p.descending ? span.length - 1 - step : step);
  }
};

/// Zeros where there is no such row. Every load is under way before one is waited for: a lane whose
/// channel there is not loads another one.
template <class T, int kPerLane>
__device__ __forceinline__ Channels<kPerLane> load_row(const ConstTokenView& view,
                                                       std::int64_t batch, std::int64_t token,
                                                       std::int64_t head, int count) {
  auto row = all_of<kPerLane>(0.0F);
  if (view.data == nullptr) return row;
  const T* const from = static_cast<const T*>(view.data) + row_offset(view, batch, token, head);
  T loaded[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if ((i + 1) * kWarpSize <= count) {
      loaded[i] = from[channel_of(i)];
    } else if (i * kWarpSize < count) {
      loaded[i] = from[min(channel_of(i), count - 1)];
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (channel_of(i) < count) row[i] = to_float(loaded[i]);
  }
  return row;
}

template <class T, int kPerLane>
__device__ __forceinline__ void store_row(const TokenView& view, std::int64_t batch,
                                          std::int64_t token, std::int64_t head, int count,
                                          const Channels<kPerLane>& row) {
  if (view.data == nullptr) return;
  T* const to = static_cast<T*>(view.data) + row_offset(view, batch, token, head);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (channel_of(i) < count) to[channel_of(i)] = from_float<T>(row[i]);
  }
}

/// A row of terms [B, T, H, count].
template <int kPerLane>
__device__ __forceinline__ void store_terms(float* terms, const Inputs& p, std::int64_t batch,
                                            std::int64_t token, std::int64_t head, int count,
                                            const Channels<kPerLane>& row) {
  if (terms == nullptr) return;
  float* const to = terms + ((batch * p.sequences.tokens + token) * p.heads + head) * count;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (channel_of(i) < count) to[channel_of(i)] = row[i];
  }
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

/// The decays of a token's channels: of `shared` and of a gate, if there is one.
template <class T, int kPerLane>
__device__ __forceinline__ Channels<kPerLane> decays_of(const GateView& gate, float shared,
                                                        std::int64_t batch, std::int64_t token,
                                                        std::int64_t head, int count) {
  if (!gate.given()) return all_of<kPerLane>(exp2_approx(shared * kLog2E));
  auto logs = gate.is_f32 ? load_row<float, kPerLane>(gate.rows, batch, token, head, count)
                          : load_row<T, kPerLane>(gate.rows, batch, token, head, count);
#pragma unroll
  for (float& log : logs.at) log = exp2_approx((shared + log) * kLog2E);
  return logs;
}

template <int kPerLane>
__device__ __forceinline__ void multiply(Channels<kPerLane>& channels,
                                         const Channels<kPerLane>& factors) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) channels[i] *= factors[i];
}

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

}  // namespace attune::cuda::parallel
