// The decays of a chunk where key channels have gates, and a chunk that is walked token by token.
#pragma once

#include "cuda/chunk_mma/split_tiles.cuh"
#include "cuda/walks/decay.cuh"
#include "cuda/walks/sequence_parts.cuh"

namespace attune::cuda::chunk_mma {

/// What channel_operands.hpp left of a chunk's decays on its way to shared memory: a key channel a
/// thread.
template <int kKeys>
class ChannelDecayLoads {
 public:
  using Decays = ChannelDecays<kKeys>;

  __device__ ChannelDecayLoads(const SplitWalkParams& p, const Walk& walk) {
    const std::int64_t part =
        first_part(p.sequences, walk.sequence, walk.span, kSplitChunk) + walk.skipped / kSplitChunk;
    const std::int64_t at = part * p.heads + walk.head;
    heads_ = p.heads;
    totals_ = p.chunk_totals + at * kKeys + threadIdx.x;
    is_strong_ = p.is_strong + at;
  }

  __device__ static bool is_mine() { return threadIdx.x < kKeys; }

  __device__ void fetch(const Walk& walk, int chunk) {
    if (chunk >= walk.chunks) return;
    const std::int64_t at = static_cast<std::int64_t>(chunk) * heads_;
    total_ = totals_[at * kKeys];
    strong_ = is_strong_[at];
  }
  __device__ void sum(Decays& to) const {
    to.totals[threadIdx.x] = total_;
    if (threadIdx.x == 0) to.is_strong = strong_ != 0;
  }

 private:
  const float2* totals_;
  const int* is_strong_;
  std::int64_t heads_;
  float2 total_{1.0F, 0.0F};
  int strong_ = 0;
};

/// The outputs of a chunk whose q and k are as they came, and the state after it; lanes of a quad
/// have different keys of the same two value channels.
template <class Shape, bool kWithQueries>
class TokenWalk {
 public:
  __device__ TokenWalk(const SplitWalkParams& p, const Walk& walk, int chunk)
      : p_(p),
        g_(rows_of<const float>(p.g.rows, walk, walk.head, 0)),
        gk_(rows_of<const float>(p.gk.rows, walk, walk.head, 0)),
        gamma_(constant_decay(p.gamma, walk.sequence, walk.head)),
        walk_(walk),
        chunk_(chunk) {}

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
  }

 private:
  __device__ static int pair() { return static_cast<int>(threadIdx.x) % 4 * 2; }

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

  /// Takes the state over a token; returns what q reads of the lane's two value channels.
  __device__ __forceinline__ float2 step(State<Shape>& state,
                                         const SplitStage<Shape, kWithQueries>& stage,
                                         int row) const {
    const int token = walk_.token(walk_.position(chunk_) + row);
    const float shared = gamma_ + (g_.first == nullptr ? 0.0F : *g_.at(token));
    const float* const gates = gk_.at(token);
    const int channel = own_channel() + static_cast<int>(threadIdx.x) % kWarpSize / 4;
    const float value[2] = {value_at(stage.v, row, channel), value_at(stage.v, row, channel + 8)};
    float sums[2] = {};
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
      const int key = 8 * j + pair();
      const float2 k = pair_at(stage.k, row, key);
      float2 q{};
      if constexpr (kWithQueries) q = pair_at(stage.q, row, key);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool exists = key + e < p_.key_channels;
        const DecayFactor factor = decay_factor(exists ? gates[key + e] + shared : 0.0F);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& element = state[j][2 * half + e];
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
};

}  // namespace attune::cuda::chunk_mma
