// What segments add to the state, chunks taken from the last one back, as far as what they add is not
// decayed to nothing by those behind them.
#pragma once

#include "cuda/runtime/launch.hpp"
#include "cuda/walks/numbers.cuh"
#include "cuda/warp_mma/warp_shapes.cuh"
#include "cuda/warp_mma/warp_state.cuh"

namespace attune::cuda::warp_mma {

/// A sum of logs that keeps what its additions round away.
struct LogSum {
  float value = 0.0F;
  float rest = 0.0F;
  __device__ __forceinline__ void add(float x) {
    const float corrected = x - rest;
    const float sum = value + corrected;
    rest = (sum - value) - corrected;
    value = sum;
  }
};

/// The decays over the chunks behind one, and the sum of what these add.
template <class Shape>
class SumBehind {
 public:
  using T = typename Shape::T;
  static constexpr int kKeyLogs = Shape::kKeyLogs;
  static constexpr int kValueLogs = Shape::kValueLogs;

  __device__ explicit SumBehind(const Lane& lane) : lane_(lane) { sum_.clear(); }

  /// Adds a state in front of these chunks.
  __device__ __forceinline__ void add(State<Shape::kWidth>& state) {
    if constexpr (kKeyLogs > 0) {
      state.scale_keys(factors_of<T, kKeyLogs>([&](int n) { return keys_[n].value; }).of);
    }
    if constexpr (kValueLogs > 0) {
      state.scale_values(factors_of<T, kValueLogs>([&](int n) { return values_[n].value; }).of,
                         lane_);
    }
    sum_.for_each(
        [&](float& element, int block, int octet, int e) { element += state.of[block][octet][e]; });
  }
  /// Adds the decays of a chunk in front of them.
  __device__ __forceinline__ void add_decays(const WarpState<Shape>& chunk) {
#pragma unroll
    for (int n = 0; n < kKeyLogs; ++n) keys_[n].add(chunk.key_logs[n]);
#pragma unroll
    for (int n = 0; n < kValueLogs; ++n) values_[n].add(chunk.value_logs[n]);
  }
  /// Whether nothing in front of them is left behind them.
  __device__ __forceinline__ bool decay_all() const {
    constexpr float kNothing = -40.0F;  // in base 2: a thousandth of fp32's ulp
    return largest<kKeyLogs>(keys_) + largest<kValueLogs>(values_) < kNothing;
  }

  __device__ __forceinline__ void store(const Params& p, std::int64_t index, bool decayed_all) {
    sum_.store_words(p.sums + index * State<Shape::kWidth>::kWords, lane_);
    if (lane_.row > 0) return;
    const auto decay = [&](const LogSum& log) {
      return decayed_all ? 0.0F : decay_factor(log.value * kLn2).high;
    };
    const std::int64_t at = index * Shape::kWidth + Shape::kLaneChannels * lane_.quarter;
    if constexpr (Shape::kKeyGates) {
#pragma unroll
      for (int n = 0; n < kKeyLogs; ++n) p.key_decays[at + n] = decay(keys_[n]);
    }
    if constexpr (Shape::kValueGates) {
#pragma unroll
      for (int n = 0; n < kValueLogs; ++n) p.value_decays[at + n] = decay(values_[n]);
    }
    if constexpr (!Shape::kKeyGates && !Shape::kValueGates) {
      if (lane_.quarter == 0) p.key_decays[index] = decay(values_[0]);
    }
  }

 private:
  /// Of all lanes' channels.
  template <int kLogs>
  __device__ __forceinline__ static float largest(const LogSum (&logs)[kLogs + 1]) {
    if constexpr (kLogs == 0) return 0.0F;
    float most = logs[0].value;
#pragma unroll
    for (int n = 1; n < kLogs; ++n) most = fmaxf(most, logs[n].value);
    if constexpr (kLogs > 1) {
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullWarp, most, 2));
    }
    return most;
  }

  const Lane& lane_;
  State<Shape::kWidth> sum_;
  LogSum keys_[kKeyLogs + 1];
  LogSum values_[kValueLogs + 1];
};

/// A warp a segment, but for the last ones of sequences. A first one adds the initial state, of which a
/// copy goes to the last one's place: that may write the final state over it before the first one's
/// outputs are made.
template <class Shape>
__global__ __launch_bounds__(kThreads, kResidentBlocks<Shape>) void segment_sums(
    const __grid_constant__ Params p) {
  const Lane lane;
  const Segment segment = segment_at(p, warp_number(), lane);
  if (!segment.exists() || segment.of_sequence == 1 || segment.is_last()) return;
  SumBehind<Shape> behind(lane);
  using Loader = ChunkLoader<Shape, false, true>;
  Loader loader(p, segment, lane, warp_memory<typename Loader::Ring>());
  bool decayed_all = false;
  for (int left = segment.tokens; left > 0 && !decayed_all; left -= kChunk) {
    Chunk<Shape> chunk;
    loader.take(chunk);
    WarpState<Shape> own(lane);
    own.advance(chunk, kChunk, [](const auto&, const auto&, const auto&) {});
    own.decay_due();
    behind.add(own.state);
    behind.add_decays(own);
    decayed_all = behind.decay_all();
  }
  if (segment.is_first()) {
    State<Shape::kWidth> initial;
    initial.load(state_of(p.initial_state, segment.sequence), p, segment.head, lane);
    const std::int64_t copy = segment.sum_index(p, segment.of_sequence - 1);
    initial.store_words(p.sums + copy * State<Shape::kWidth>::kWords, lane);
    if (!decayed_all) behind.add(initial);
  }
  behind.store(p, segment.sum_index(p, segment.number), decayed_all);
}

template <class T>
void launch_segment_sums(const Params& params, cudaStream_t stream) {
  with_shape<T>(params, [&]<class Shape>() {
    launch<segment_sums<Shape>>({.grid = blocks_of(params),
                                 .block = kThreads,
                                 .shared_bytes = kWarps * Stages<Shape, false>::kBytes},
                                stream, params);
  });
}

}  // namespace attune::cuda::warp_mma
