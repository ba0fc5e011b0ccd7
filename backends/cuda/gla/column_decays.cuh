// The decays that one thread needs where accumulators are channels by tokens.
//
// Sums over tokens are cheap where a thread has many of few channels: tiles have their rows
// permuted so that the columns a thread holds are 16 tokens in a row.
#pragma once

#include "cuda/gla/decays.cuh"

namespace attune::cuda::gla {

/// The reverse of permuted_row().
__device__ __forceinline__ int position_of_row(int row) {
  return row % 8 / 2 * 16 + row / 8 * 2 + row % 2;
}

/// Where this thread's elements of 64 channels are in its warpgroup's accumulators, channels by
/// permuted tokens: two channels, 8 apart, of 16 positions in a row.
struct ColumnLane : FragmentLane {
  int group = warpgroup_of_block();
  __device__ int channel() const { return group * kPanelChannels + row(); }
  __device__ int position(int i) const { return lane() % 4 * 16 + i; }
  /// The element of position(i), of the first or second channel.
  __device__ static constexpr int element(int i, int second) {
    return i / 2 * 4 + second * 2 + i % 2;
  }
};

/// What reads the state, and what is written to it.
enum Side : int { kReads, kWrites };

/// Of this thread's channels and positions.
template <class T>
class ColumnDecays {
 public:
  __device__ ColumnDecays(const GlaParams& p, const HeadChunk& chunk) : p_(p), chunk_(chunk) {}

  /// Of 64 channels of each warpgroup from `first` on; if so asked, not of warps without any.
  template <bool kLeavesOutWarps>
  __device__ __forceinline__ void load(int first) {
    valid_ = chunk_.template tokens_from<16>(at.position(0));
    if (kLeavesOutWarps && !warp_has_channels(first)) return;
    load_logs(first);
    sum_logs();
  }
  /// Whether there is any channel of the warp's. If not, its rows of all tiles are zeros, and stay so.
  __device__ __forceinline__ bool warp_has_channels(int first) const {
    constexpr int kWarpChannels = 16;
    return first + at.group * kPanelChannels + at.warp() * kWarpChannels < p_.own;
  }

  /// Of an element of an accumulator: from the middle of the chunk to a token that reads, or from
  /// one that writes to there.
  template <Side kSide>
  __device__ __forceinline__ float of(int element) const {
    return exp2_approx(kSide == kReads ? logs_[element] : -logs_[element]);
  }
  /// Of the first or second channel: over the first half of the chunk, with the scale, which what
  /// is read decays by; or over the second.
  template <Side kSide>
  __device__ __forceinline__ float over_half(int second) const {
    return half_[kSide][second];
  }

  /// Whether there is a token at the i-th position, or a channel.
  __device__ __forceinline__ bool has(int i) const { return (valid_ >> i & 1U) != 0; }
  __device__ __forceinline__ bool has_channel(int first, int second) const {
    return first + at.channel() + 8 * second < p_.own;
  }
  /// f(i, second, has, element) of this thread's positions and both its channels, of channels from
  /// `first` on: whether there is such a token and channel, and where it is.
  template <class Element, class View, class F>
  __device__ __forceinline__ void for_each_row(const View& view, int first, F&& f) const {
    const unsigned valid[] = {has_channel(first, 0) ? valid_ : 0U,
                              has_channel(first, 1) ? valid_ : 0U};
    const RunRows<Element> rows(view, chunk_, at, first + at.channel());
    Element* row = rows.first;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      f(i, 0, (valid[0] >> i & 1U) != 0, row);
      f(i, 1, (valid[1] >> i & 1U) != 0, row + 8);
      row += rows.step;
    }
  }

  /// Makes the compiler compute again what it would keep: decays and addresses.
  __device__ __forceinline__ void forget() {
    at.forget();
    asm volatile("" : "+r"(valid_)::"memory");
#pragma unroll
    for (int e = 0; e < 32; ++e) asm volatile("" : "+f"(logs_[e])::"memory");
  }

  ColumnLane at;

 private:
  /// Natural log decays; 0 where there is no token, what channels share where there is no channel.
  __device__ __forceinline__ void load_logs(int first) {
    const ConstTokenView& own = p_.channel_gate.rows;
    if (p_.channel_gate.is_f32) {
      load_gates<float>(own, first);
    } else {
      load_gates<T>(own, first);
    }
    if (p_.g.given() && p_.g.is_f32) {
      add_gate<float>(p_.g.rows, 1.0F);
    } else if (p_.g.given()) {
      add_gate<T>(p_.g.rows, 1.0F);
    }
    if (p_.gate_shift != nullptr) {
      add_gate<float>({p_.gate_shift, p_.sequences.tokens * p_.heads, p_.heads, 1},
                      p_.gate_shift_sign);
    }
    const float constant = constant_decay(p_.gamma, chunk_.sequence, chunk_.head);
    if (constant == 0.0F) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) add_to_both(i, has(i) ? constant : 0.0F);
  }
  template <class Element>
  __device__ __forceinline__ void load_gates(const ConstTokenView& gates, int first) {
    Element loaded[32];  // all loads are under way before the first is used
    for_each_row<const Element>(gates, first, [&](int i, int second, bool has, auto* gate) {
      Element& to = loaded[at.element(i, second)];
      to = from_float<Element>(0.0F);
      if (has) to = *gate;
    });
#pragma unroll
    for (int e = 0; e < 32; ++e) logs_[e] = to_float(loaded[e]);
  }
  /// A decay that channels share.
  template <class Element>
  __device__ __forceinline__ void add_gate(const ConstTokenView& gates, float sign) {
    const RunRows<const Element> rows(gates, chunk_, at, 0);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (has(i)) add_to_both(i, sign * to_float(*rows.row(i)));
    }
  }
  __device__ __forceinline__ void add_to_both(int i, float log) {
    logs_[at.element(i, 0)] += log;
    logs_[at.element(i, 1)] += log;
  }

  /// Makes them sums from the middle of the chunk to each token, base 2, and the total
  /// decays of its halves.
  __device__ __forceinline__ void sum_logs() {
    const int quarter = at.lane() % 4;
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& log = logs_[at.element(i, second)];
        sum = fmaf(log, kLog2E, sum);
        log = sum;
      }
      const float neighbour = __shfl_xor_sync(kFullWarp, sum, 1);
      const float half = sum + neighbour;
      const float opposite = __shfl_xor_sync(kFullWarp, half, 2);
      const float before = quarter == 0   ? -half
                           : quarter == 1 ? -sum
                           : quarter == 2 ? 0.0F
                                          : neighbour;
#pragma unroll
      for (int i = 0; i < 16; ++i) logs_[at.element(i, second)] += before;
      half_[kReads][second] = p_.scale * exp2_approx(quarter < 2 ? half : opposite);
      half_[kWrites][second] = exp2_approx(quarter < 2 ? opposite : half);
    }
  }

  const GlaParams& p_;
  const HeadChunk& chunk_;
  unsigned valid_ = 0;  // bit i: there is a token at this thread's i-th position
  float logs_[32];      // from the middle of the chunk to each token, base 2
  float half_[2][2];
};

}  // namespace attune::cuda::gla
