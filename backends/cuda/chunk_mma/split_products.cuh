// The products of a chunk of f32, as those of products.cuh are of 16-bit types.
#pragma once

#include "cuda/chunk_mma/decays.cuh"
#include "cuda/chunk_mma/products.cuh"
#include "cuda/chunk_mma/split_tiles.cuh"
#include "cuda/chunk_mma/split_warpgroup.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::chunk_mma {

/// The scores P in a tile of 128-byte rows: the high parts of a row first, then its low parts.
template <class Shape>
class SplitScores {
 public:
  static constexpr int kBytes = kSplitChunk * kPanelRowBytes;
  static_assert(2 * kSplitChunk * sizeof(SplitPart) == kPanelRowBytes);

  __device__ explicit SplitScores(std::uint32_t address) : tile_(address) {}
  __device__ __forceinline__ void store(int row, int column, const SplitPair& pair) const {
    store_shared_4(tile_.at(row, column * 2), pair.high);
    store_shared_4(tile_.at(row, (column + kSplitChunk) * 2), pair.low);
  }
  __device__ __forceinline__ SplitBlock across(int row, int column) const {
    SplitBlock block;
    load_matrices(block.high, tile_.across(row, column));
    load_matrices(block.low, tile_.across(row, column + kSplitChunk));
    return block;
  }

 private:
  Tile<Shape> tile_;
};

/// Where this lane's row of an 8 x 16 block of k lies when its high parts are loaded as the first
/// two matrices of four, and its low parts as the others.
template <class Shape>
__device__ __forceinline__ std::uint32_t high_then_low(const SplitTile<Shape>& k, int row,
                                                       int channel) {
  const unsigned lane = threadIdx.x % kWarpSize;
  const Tile<Shape>& part = lane < 16 ? k.high : k.low;
  return part.at(row + lane % 8, channel * 2 + lane / 8 % 2 * 16);
}

/// 16 rows of 8 columns of P. With decays per channel, all of them are in the operands.
template <class Shape, class Decays>
__device__ __forceinline__ void make_split_score_block(const SplitStage<Shape, true>& stage,
                                                       const SplitScores<Shape>& scores,
                                                       const Decays& decays, float scale,
                                                       int first_row, int first_column) {
  float main[4] = {}, left[4] = {}, right[4] = {};
#pragma unroll 2
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    const SplitBlock q = stage.q.down(first_row, 16 * step);
    std::uint32_t k[4];
    load_matrices(k, high_then_low(stage.k, first_column, 16 * step));
    mma_m16n8k16<SplitPart>(main, q.high, k[0], k[1]);
    mma_m16n8k16<SplitPart>(left, q.low, k[0], k[1]);
    mma_m16n8k16<SplitPart>(right, q.high, k[2], k[3]);
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + lane / 4 + half * 8;
    const int column = first_column + lane % 4 * 2;
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = half * 2 + e;
      float score = ((left[at] + right[at]) + main[at]) * scale;
      if constexpr (!Decays::kPerChannel) score *= decay_between(decays, row, column + e);
      pair[e] = column + e <= row ? score : 0.0F;
    }
    scores.store(row, column, split(pair[0], pair[1]));
  }
}

/// The scores P: the warps divide the blocks on and below the diagonal among them; no other block
/// is ever read.
template <class Shape, class Decays>
__device__ __forceinline__ void make_split_scores(const SplitStage<Shape, true>& stage,
                                                  const SplitScores<Shape>& scores,
                                                  const Decays& decays, float scale) {
  static_assert(kSplitChunk == 32);
  constexpr int kBlocks = 2 + 4;  // of 8 columns, in the first 16 rows and in the others
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  // The first warp has the decays to do besides: it gets the fewest blocks.
#pragma unroll 1
  for (int block = Shape::kConfig.warps - 1 - warp; block < kBlocks;
       block += Shape::kConfig.warps) {
    const int row = block < 2 ? 0 : 16;
    make_split_score_block(stage, scores, decays, scale, row, 8 * (block < 2 ? block : block - 2));
  }
}

/// V^T of the chunk, 16 tokens a block.
template <class Shape>
using SplitValues = SplitBlock[Shape::kChunk / 16];

/// 16 key channels of a warp's state, as an operand.
template <class Shape>
__device__ __forceinline__ SplitBlock state_block(const State<Shape>& state, int step) {
  SplitBlock block;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto& part = state[2 * step + i / 2];
    block.set(i, split(part[i % 2 * 2], part[i % 2 * 2 + 1]));
  }
  return block;
}

/// O^T = S^T Q^T
template <class Shape>
__device__ __forceinline__ void multiply_queries(Outputs<Shape>& outputs, const State<Shape>& state,
                                                 const SplitTile<Shape>& q) {
  constexpr int kSteps = Shape::kKeys / 16;
#if ATTUNE_SM90A_CODE
  const SplitSteps<Shape, Major::kK> steps(q, 0);
  SplitBlock own[2];  // of this step and of the one under way
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step > 1) hold(own[step % 2]);
    own[step % 2] = state_block<Shape>(state, step);
    wgmma_fence();
    queue_split(accumulator(outputs), own[step % 2], steps, step);
    wgmma_commit();
    if (step > 0) wgmma_wait<1>();
  }
  wgmma_wait<0>();
  hold(own[0]);
  hold(own[1]);
  wgmma_pin(accumulator(outputs));
#else
  constexpr int kBlocks = Shape::kChunk / 16;
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
    for (float& output : outputs[n]) output = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const SplitBlock own = state_block<Shape>(state, step);
    SplitBlock block[kBlocks];
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) block[n] = q.across(16 * n, 16 * step);
    mma_split(outputs, own, block);
  }
#endif
}

/// Each token's column times scale exp(b_i); with decays per channel, those are in q.
template <class Shape, class Decays>
__device__ __forceinline__ void scale_outputs(Outputs<Shape>& outputs, const Decays& decays,
                                              float scale) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 8; ++n) {
    float2 decay{1.0F, 1.0F};
    if constexpr (!Decays::kPerChannel) {
      decay = *reinterpret_cast<const float2*>(&decays.from_start[8 * n + first]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) outputs[n][e] *= scale * (e % 2 == 0 ? decay.x : decay.y);
  }
}

template <class Shape>
__device__ __forceinline__ void load_values(SplitValues<Shape>& values, const SplitTile<Shape>& v) {
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    values[step] = v.across_transposed(16 * step, own_channel());
  }
}

/// O^T += V^T P^T
template <class Shape>
__device__ __forceinline__ void add_split_chunk(Outputs<Shape>& outputs, const SplitTile<Shape>& v,
                                                const SplitScores<Shape>& scores) {
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    const SplitBlock values = v.across_transposed(16 * step, own_channel());
#pragma unroll
    for (int n = step; n < Shape::kChunk / 16; ++n) {  // before them P is zero
      const SplitBlock p[1] = {scores.across(16 * n, 16 * step)};
      mma_split(&outputs[2 * n], values, p);
    }
  }
}

/// Each token's column times exp(b_last - b_j).
template <class Shape>
__device__ __forceinline__ void decay_to_end(SplitValues<Shape>& values,
                                             const SplitDecays& decays) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 value = joined({values[step].high[e], values[step].low[e]});
      const float2 decay =
          *reinterpret_cast<const float2*>(&decays.to_end[16 * step + first + e / 2 * 8]);
      values[step].set(e, split(value.x * decay.x, value.y * decay.y));
    }
  }
}

/// The decays of a chunk of the lane's two value channels.
template <class Decays>
__device__ __forceinline__ void load_value_totals(float2 (&totals)[2], const Decays& decays) {
  const int channel = own_channel() + static_cast<int>(threadIdx.x) % kWarpSize / 4;
  totals[0] = decays.values.totals[channel];
  totals[1] = decays.values.totals[channel + 8];
}

/// With gates of value channels: each channel's row times its decay over the chunk, of which those
/// of tokens are divided out already. With gates of key channels alone k has what is lacking.
template <class Shape, int kKeys, int kValues>
__device__ __forceinline__ void decay_to_end(SplitValues<Shape>& values,
                                             const ChannelDecays<kKeys, kValues>& decays) {
  if constexpr (kValues > 0) {
    float2 totals[2];
    load_value_totals(totals, decays);
#pragma unroll
    for (int step = 0; step < Shape::kChunk / 16; ++step) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 value = joined({values[step].high[e], values[step].low[e]});
        const float total = totals[e % 2].x;
        values[step].set(e, split(value.x * total, value.y * total));
      }
    }
  }
}

/// V^T K of a chunk, by panels of 64 key channels, `values` being V^T decayed to the chunk's end.
template <class Shape>
class KeyProducts {
 public:
  using Panel = float[kPanelChannels / 8][4];

  __device__ __forceinline__ KeyProducts(const SplitValues<Shape>& values,
                                         const SplitTile<Shape>& k)
      : values_(values), k_(k) {}

  /// Queues the first panel's.
  __device__ __forceinline__ void begin() { multiply(0); }
  /// Calls visit(panel, products) for each.
  template <class Visit>
  __device__ __forceinline__ void end(Visit&& visit) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      if (panel > 0) multiply(panel);
#if ATTUNE_SM90A_CODE
      wgmma_wait<0>();
      wgmma_pin(accumulator(sums_));
#endif
      visit(panel, sums_);
    }
#if ATTUNE_SM90A_CODE
    for (const SplitBlock& block : values_) hold(block);
#endif
  }

 private:
  static constexpr int kPanels = Shape::kKeys / kPanelChannels;
  static constexpr int kSteps = Shape::kChunk / 16;

  __device__ __forceinline__ void multiply(int panel) {
#if ATTUNE_SM90A_CODE
    const SplitSteps<Shape, Major::kMN> steps(k_, panel * kPanelChannels);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      queue_split(accumulator(sums_), values_[step], steps, step);
    }
    wgmma_commit();
#else
#pragma unroll
    for (int n = 0; n < kPanelChannels / 8; ++n) {
#pragma unroll
      for (float& sum : sums_[n]) sum = 0.0F;
    }
#pragma unroll
    for (int n = 0; n < kPanelChannels / 16; ++n) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const SplitBlock keys[1] = {k_.down_transposed(16 * step, panel * kPanelChannels + 16 * n)};
        mma_split(&sums_[2 * n], values_[step], keys);
      }
    }
#endif
  }

  const SplitValues<Shape>& values_;
  const SplitTile<Shape> k_;
  Panel sums_;
};

/// S^T = total S^T + V^T K; with decays per channel S^T = total (S^T + V^T K), where K has what is
/// lacking, and V^T those of value channels.
template <class Shape, class Decays>
__device__ __forceinline__ void write_split_state(State<Shape>& state, KeyProducts<Shape>& products,
                                                  const Decays& decays) {
  float2 of_values[2];
  if constexpr (Decays::kOfValues) load_value_totals(of_values, decays);
  products.end([&](int panel, const typename KeyProducts<Shape>::Panel& added) {
#pragma unroll
    for (int n = 0; n < kPanelChannels / 8; ++n) {
      float4 totals;  // of two keys
      if constexpr (Decays::kPerChannel) {
        const int key = panel * kPanelChannels + 8 * n + static_cast<int>(threadIdx.x) % 4 * 2;
        totals = *reinterpret_cast<const float4*>(&decays.keys.totals[key]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& element = state[panel * kPanelChannels / 8 + n][e];
        const float sum = added[n][e];
        if constexpr (Decays::kPerChannel) {
          const float2 total = e % 2 == 0 ? float2{totals.x, totals.y} : float2{totals.z, totals.w};
          float whole = element + sum;
          if constexpr (Decays::kOfValues) {
            whole = decayed_sum({of_values[e / 2].x, of_values[e / 2].y}, element, sum);
          }
          element = fmaf(whole, total.x, whole * total.y);
        } else {
          element = fmaf(element, decays.total, sum);
        }
      }
    }
  });
}

}  // namespace attune::cuda::chunk_mma
