// The decays of a chunk where channels have gates, and a chunk that is walked token by token.
#pragma once

#include "cuda/chunk_mma/split_products.cuh"
#include "cuda/chunk_mma/split_tiles.cuh"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::chunk_mma {

/// What channel_operands.hpp left of a chunk's decays on its way to shared memory: a channel a
/// thread.
template <class Shape, int kChannels>
class ChannelTotalLoads {
 public:
  /// `at`: the chunk and the head, in [part, H].
  __device__ void fetch(const ChunkTotalsView& view, std::int64_t at, int first_channel) {
    if (channel() >= kChannels) return;
    const int groups = (view.channels + kOperandChannels - 1) / kOperandChannels;
    total_ = view.totals[at * view.channels + first_channel + channel()];
    strong_ = view.is_strong[at * groups + first_channel / kOperandChannels];
  }
  __device__ void store(ChannelTotals<kChannels>& to) const {
    if (channel() >= kChannels) return;
    to.totals[channel()] = total_;
    if (channel() == 0) to.is_strong = strong_ != 0;
  }

 private:
  __device__ static int channel() { return thread_of_role<Shape>(); }

  float2 total_{1.0F, 0.0F};
  int strong_ = 0;
};

/// Of key channels and, where these have gates (kOfValues), of value channels.
template <class Shape, bool kOfValues>
class ChannelDecayLoads {
 public:
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kValues = kOfValues ? Shape::kValues : 0;
  using Decays = ChannelDecays<kKeys, kValues>;

  __device__ ChannelDecayLoads(const SplitWalkParams& p, const Walk& walk)
      : p_(p),
        first_((first_part(p.sequences, walk.sequence, walk.span, kSplitChunk) +
                walk.skipped / kSplitChunk) *
                   p.heads +
               walk.head) {}

  __device__ static bool is_done_by(int thread, int) {
    return thread < (kKeys > kValues ? kKeys : kValues);
  }

  __device__ void fetch(const Walk& walk, int chunk) {
    if (chunk >= walk.chunks) return;
    const std::int64_t at = first_ + static_cast<std::int64_t>(chunk) * p_.heads;
    if (!kOfValues || p_.keys.totals != nullptr) keys_.fetch(p_.keys, at, walk.slice * kKeys);
    if constexpr (kOfValues) values_.fetch(p_.values, at, walk.first_value);
  }
  __device__ void sum(Decays& to) const {
    keys_.store(to.keys);
    if constexpr (kOfValues) values_.store(to.values);
  }

 private:
  struct Nothing {};

  const SplitWalkParams& p_;
  const std::int64_t first_;
  ChannelTotalLoads<Shape, kKeys> keys_;
  std::conditional_t<kOfValues, ChannelTotalLoads<Shape, kValues>, Nothing> values_;
};

/// The decays of a segment: of every key channel, and of value channels where these have gates.
template <class Shape, bool kOfValues>
class ChannelSegmentDecays {
 public:
  __device__ ChannelSegmentDecays(const SplitWalkParams& p, const Walk& walk, std::int64_t index)
      : keys_(p.segment_decays + index * Shape::kKeys + threadIdx.x % kWarpSize % 4 * 2) {
    if constexpr (kOfValues) {
      const float* const values = p.segment_value_decays + index * p.values.channels +
                                  walk.first_value + own_channel() + threadIdx.x % kWarpSize / 4;
      values_ = {values[0], values[8]};
    }
  }
  __device__ __forceinline__ float4 operator()(int j) const {
    const float2 keys = *reinterpret_cast<const float2*>(keys_ + 8 * j);
    if constexpr (!kOfValues) return {keys.x, keys.y, keys.x, keys.y};
    return {keys.x * values_.x, keys.y * values_.x, keys.x * values_.y, keys.y * values_.y};
  }

 private:
  const float* keys_;
  float2 values_{1.0F, 1.0F};
};

/// The outputs of a chunk of which the operands of keys, or of values, are as they came, and the
/// state after it; lanes of a quad have different keys of the same two value channels. Channels that
/// are not strong have their decays in the operands.
template <class Shape, class Decays, bool kWithQueries>
class TokenWalk {
 public:
  __device__ TokenWalk(const SplitWalkParams& p, const Walk& walk, int chunk, const Decays& decays)
      : p_(p),
        g_(rows_of<const float>(p.g.rows, walk, walk.head, 0)),
        gk_(rows_of<const float>(p.gk.rows, walk, walk.head, walk.slice * Shape::kKeys)),
        gamma_(constant_decay(p.gamma, walk.sequence, walk.head)),
        walk_(walk),
        chunk_(chunk),
        decays_(decays) {}

  __device__ __forceinline__ void run(State<Shape>& state, Outputs<Shape>& outputs,
                                      const SplitStage<Shape, kWithQueries>& stage,
                                      float scale) const {
    const int rows = walk_.rows(chunk_);
#pragma unroll
    for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
      for (float& output : outputs[n]) output = 0.0F;
#pragma unroll 1
      for (int i = 0; i < 8 && 8 * n + i < rows; ++i) {
        const float2 read = step(state, stage, 8 * n + i);
        if constexpr (kWithQueries) {
          if (pair() / 2 != i / 2) continue;
          if (i % 2 == 0) {
            outputs[n][0] = read.x * scale;
            outputs[n][2] = read.y * scale;
          } else {
            outputs[n][1] = read.x * scale;
            outputs[n][3] = read.y * scale;
          }
        }
      }
    }
    if constexpr (Decays::kOfValues) decay_the_others(state);
  }

 private:
  __device__ static int pair() { return static_cast<int>(threadIdx.x) % 4 * 2; }
  /// The first of the lane's two value channels.
  __device__ static int own_value() {
    return own_channel() + static_cast<int>(threadIdx.x) % kWarpSize / 4;
  }

  /// Two neighbouring channels of a tile.
  __device__ __forceinline__ static float2 pair_at(const SplitTile<Shape>& tile, int row,
                                                   int channel) {
    return joined({load_shared_4(tile.high.at(row, channel * 2)),
                   load_shared_4(tile.low.at(row, channel * 2))});
  }
  __device__ __forceinline__ static float value_at(const SplitTile<Shape>& tile, int row,
                                                   int channel) {
    const float2 both = pair_at(tile, row, channel / 2 * 2);
    return channel % 2 == 0 ? both.x : both.y;
  }

  /// Takes the state over the decays of the chunk that are in its operands.
  __device__ __forceinline__ void decay_the_others(State<Shape>& state) const {
    float2 of_values[2] = {{1.0F, 0.0F}, {1.0F, 0.0F}};
    if (!decays_.values.is_strong) load_value_totals(of_values, decays_);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 of_key = decays_.keys.is_strong ? float2{1.0F, 0.0F}
                                                     : decays_.keys.totals[8 * j + pair() + e % 2];
        const float2 of_value = of_values[e / 2];
        const float decayed = decayed_sum({of_value.x, of_value.y}, state[j][e], 0.0F);
        state[j][e] = decayed_sum({of_key.x, of_key.y}, decayed, 0.0F);
      }
    }
  }

  /// The decays of a token of the lane's two value channels.
  __device__ __forceinline__ void load_value_decays(DecayFactor (&factors)[2], int token,
                                                    float shared) const {
    if (!decays_.values.is_strong) return;
    const Rows<const float> gv = rows_of<const float>(p_.gv.rows, walk_, walk_.head, 0);
    const int channel = walk_.first_value + own_value();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = channel + 8 * half < p_.value_channels;
      factors[half] = decay_factor(exists ? gv.at(token)[channel + 8 * half] + shared : 0.0F);
    }
  }

  /// Takes the state over a token; returns what q reads of the lane's two value channels.
  __device__ __forceinline__ float2 step(State<Shape>& state,
                                         const SplitStage<Shape, kWithQueries>& stage,
                                         int row) const {
    const int token = walk_.token(walk_.position(chunk_) + row);
    const float shared = gamma_ + (g_.first == nullptr ? 0.0F : *g_.at(token));
    const float* const gates = gk_.at(token);
    const int channel = own_value();
    const float value[2] = {value_at(stage.v, row, channel), value_at(stage.v, row, channel + 8)};
    DecayFactor of_values[2];
    bool keys_decay = true;
    if constexpr (Decays::kOfValues) {
      keys_decay = decays_.keys.is_strong;
      load_value_decays(of_values, token, p_.gk.given() ? 0.0F : shared);
    }
    float sums[2] = {};
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const int key = 8 * j + pair();
      const float2 k = pair_at(stage.k, row, key);
      float2 q{};
      if constexpr (kWithQueries) q = pair_at(stage.q, row, key);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool exists = keys_decay && key + e < p_.key_channels - walk_.slice * Shape::kKeys;
        const DecayFactor factor = decay_factor(exists ? gates[key + e] + shared : 0.0F);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& element = state[j][2 * half + e];
          if constexpr (Decays::kOfValues) element = decayed_sum(of_values[half], element, 0.0F);
          element = decayed_sum(factor, element, (e == 0 ? k.x : k.y) * value[half]);
          sums[half] = fmaf(e == 0 ? q.x : q.y, element, sums[half]);
        }
      }
    }
#pragma unroll
    for (float& sum : sums) {
      sum += __shfl_xor_sync(kFullWarp, sum, 1);
      sum += __shfl_xor_sync(kFullWarp, sum, 2);
    }
    return {sums[0], sums[1]};
  }

  const SplitWalkParams& p_;
  const Rows<const float> g_;
  const Rows<const float> gk_;
  const float gamma_;
  const Walk& walk_;
  const int chunk_;
  const Decays& decays_;
};

}  // namespace attune::cuda::chunk_mma
