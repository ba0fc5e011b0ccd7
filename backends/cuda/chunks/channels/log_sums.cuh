// Sums of log decays in base 2, by the operand warps.
//
// With G the sum of a channel's log decays since the sequence's start and R = rint(G) at the
// chunk's start, what is needed is y_i = G_i - R of each token i and the step r = R' - R to the
// next chunk's. A thread keeps G - R of its channels, so no sum grows with the sequence. Where
// operands are f16, R = floor(G): then no r - y_i of a decay is positive.
#pragma once

#include "cuda/chunks/channels/shape.hpp"
#include "cuda/chunks/segment_walk.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::channels {

/// Steps over a chunk up to which 2^-r and what it is multiplied with stay in range, of bf16 and of
/// f16.
inline constexpr float kMostStep = 100.0F;
inline constexpr float kMostNarrowStep = 12.0F;

/// A thread's number among the operand warps': the state warps before them have a multiple of as
/// many threads.
__device__ __forceinline__ int operand_thread() {
  return static_cast<int>(threadIdx.x) % kOperandThreads;
}

/// log2 of the product of two decays, of which one is in base e.
__device__ __forceinline__ float log2_decay(float gate, float log2_common) {
  const float log2 = fmaf(gate, kLog2E, log2_common);
  return log2 < kReset ? kReset : log2;  // keeps a NaN
}

/// Neighbouring channels as they lie in memory.
template <int kCount>
struct alignas(kCount * sizeof(float)) Channels {
  float of[kCount];
};

/// The same of another type.
template <class T, int kCount>
__device__ __forceinline__ Channels<kCount> load_channels(const std::byte* from) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return *reinterpret_cast<const Channels<kCount>*>(from);
  } else {
    struct alignas(kCount * sizeof(T)) Pairs {
      std::uint32_t of[kCount / 2];
    };
    const Pairs pairs = *reinterpret_cast<const Pairs*>(from);
    Channels<kCount> loaded;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float2 pair = unpack<T>(pairs.of[i]);
      loaded.of[2 * i] = pair.x;
      loaded.of[2 * i + 1] = pair.y;
    }
    return loaded;
  }
}

/// A few neighbouring channels over a run of the chunk's tokens.
template <int kChannels, int kChunk, bool kForF16>
class GateSums {
 public:
  static constexpr int kWidth = channels_per_thread(kChannels);
  static constexpr int kColumns = kChannels / kWidth;
  static constexpr int kRuns = runs_of(kChannels);
  static constexpr int kRunTokens = kChunk / kRuns;
  using Few = Channels<kWidth>;

  __device__ static bool is_mine() { return operand_thread() < kColumns * kRuns; }
  __device__ static int channel() { return operand_thread() % kColumns * kWidth; }
  __device__ static int row(int i) { return operand_thread() / kColumns * kRunTokens + i; }

  /// Takes this thread's gates; T is their type. `common` is of all channels, null for none.
  template <class T>
  __device__ __forceinline__ void read(const std::byte* gates, int row_bytes, const float* common) {
    total_ = {};
    if constexpr (kForF16) greatest_ = 0.0F;
#pragma unroll
    for (int i = 0; i < kRunTokens; ++i) {
      const Few gate = load_channels<T, kWidth>(gates + row(i) * row_bytes +
                                                channel() * static_cast<int>(sizeof(T)));
      const float shared = common == nullptr ? 0.0F : common[row(i)];
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        log2_[i].of[c] = log2_decay(gate.of[c], shared);
        total_.of[c] += log2_[i].of[c];
        if constexpr (kForF16) greatest_ = fmaxf(greatest_, log2_[i].of[c]);
      }
    }
  }
  /// Lets the other runs' threads know.
  __device__ __forceinline__ void publish(float (&totals)[kRuns][kChannels]) const {
    *reinterpret_cast<Few*>(&totals[run()][channel()]) = total_;
  }
  /// Whether the step may be too large.
  __device__ __forceinline__ bool is_strong() const {
    constexpr float kMostOfRun = kMostStep / kRuns;
    bool large = false;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) large |= fabsf(total_.of[c]) > kMostOfRun;
    return large;
  }
  /// Whether it may be too large for f16, or something grows.
  __device__ __forceinline__ bool is_beyond_f16() const {
    constexpr float kMostOfRun = kMostNarrowStep / kRuns;
    bool beyond = greatest_ > 0.0F;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) beyond |= !(total_.of[c] >= -kMostOfRun);
    return beyond;
  }
  /// From this run's start to the reference, when all runs have published.
  __device__ __forceinline__ void set_reference(const float (&totals)[kRuns][kChannels]) {
    Few all = rest_;
    before_ = rest_;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const Few total = *reinterpret_cast<const Few*>(&totals[i][channel()]);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (i < run()) before_.of[c] += total.of[c];
        all.of[c] += total.of[c];
      }
    }
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      step_.of[c] = kForF16 ? floorf(all.of[c]) : rintf(all.of[c]);
      rest_.of[c] = all.of[c] - step_.of[c];
      walked_.of[c] += step_.of[c];
    }
  }

  __device__ int run() const { return operand_thread() / kColumns; }
  /// Calls visit(i, y) for the tokens row(i), in their order.
  template <class Visit>
  __device__ __forceinline__ void for_each_sum(Visit&& visit) const {
    Few y = before_;
#pragma unroll
    for (int i = 0; i < kRunTokens; ++i) {
#pragma unroll
      for (int c = 0; c < kWidth; ++c) y.of[c] += log2_[i].of[c];
      visit(i, y);
    }
  }
  /// The tokens' decays. Products of them cost less than exponentials of sums; none is of more than
  /// a run, none overflows, and what underflows is 0 either way.
  struct Decays {
    Few of[kRunTokens];
    Few from_reference;  // 2^y of the token before the first
    Few to_end;          // 2^(r - y) of the last
  };
  __device__ __forceinline__ Decays decays() const {
    Decays decays;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
#pragma unroll
      for (int i = 0; i < kRunTokens; ++i) decays.of[i].of[c] = exp2_approx(log2_[i].of[c]);
      decays.from_reference.of[c] = exp2_approx(before_.of[c]);
      decays.to_end.of[c] = exp2_approx(step_.of[c] - before_.of[c] - total_.of[c]);
    }
    return decays;
  }
  /// Whether anything is left of what the segment starts from in one of so many channels, at the end of the
  /// chunk before.
  __device__ __forceinline__ bool is_reached(int channels) const {
    bool reached = false;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      reached |= channel() + c < channels && !(walked_.of[c] < kLeastLeftLog2);
    }
    return reached;
  }
  __device__ const Few& step() const { return step_; }  // r
  __device__ const Few& rest() const { return rest_; }  // G - R after the chunk
  /// Of all chunks so far.
  __device__ Few decay() const {
    Few decay;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) decay.of[c] = exp2_approx(walked_.of[c] + rest_.of[c]);
    return decay;
  }

 private:
  Few log2_[kRunTokens];  // of each token's decay
  Few total_;             // of them
  float greatest_;        // of them and 0, where these are for f16
  Few before_{};          // from the reference to the run's start
  Few step_{};
  Few rest_{};
  Few walked_{};
};

}  // namespace attune::cuda::channels
