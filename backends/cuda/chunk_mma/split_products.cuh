// The products of a chunk of f32, as those of products.cuh are of 16-bit types.
#pragma once

#include "cuda/chunk_mma/decays.cuh"
#include "cuda/chunk_mma/products.cuh"
#include "cuda/chunk_mma/split_scores.cuh"
#include "cuda/chunk_mma/split_warpgroup.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::chunk_mma {

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

#if ATTUNE_SM90A_CODE
/// Queues O^T = S^T Q^T; `own` are operands of the last two steps, for hold().
template <class Shape>
__device__ __forceinline__ void queue_queries(Outputs<Shape>& outputs, SplitBlock (&own)[2],
                                              const State<Shape>& state,
                                              const SplitTile<Shape>& q) {
  const SplitSteps<Shape, Major::kK> steps(q, 0);
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    if (step > 1) hold(own[step % 2]);
    own[step % 2] = state_block<Shape>(state, step);
    wgmma_fence();
    queue_split(accumulator(outputs), own[step % 2], steps, step);
    wgmma_commit();
    if (step > 0) wgmma_wait<1>();
  }
}
/// Queues O^T += V^T P^T.
template <class Shape>
__device__ __forceinline__ void queue_chunk(Outputs<Shape>& outputs,
                                            const SplitBlock (&values)[Shape::kChunk / 16],
                                            const SplitScores<Shape>& scores) {
  const std::uint64_t first = matrix_descriptor(of_warp(scores.address()));
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < Shape::kChunk / 16; ++step) {
    const std::uint64_t high = descriptor_further(first, step * 32);
    const std::uint64_t low = descriptor_further(first, kPanelRowBytes / 2 + step * 32);
    queue<Major::kK>(accumulator(outputs), values[step].low, high, true);
    queue<Major::kK>(accumulator(outputs), values[step].high, low, true);
    queue<Major::kK>(accumulator(outputs), values[step].high, high, true);
  }
  wgmma_commit();
}
#else
/// O^T = S^T Q^T
template <class Shape>
__device__ __forceinline__ void multiply_queries(Outputs<Shape>& outputs, const State<Shape>& state,
                                                 const SplitTile<Shape>& q) {
  constexpr int kBlocks = Shape::kChunk / 16;
#pragma unroll
  for (int n = 0; n < Shape::kChunk / 8; ++n) {
#pragma unroll
    for (float& output : outputs[n]) output = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    const SplitBlock own = state_block<Shape>(state, step);
    SplitBlock block[kBlocks];
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) block[n] = q.across(16 * n, 16 * step);
    mma_split(outputs, own, block);
  }
}
#endif

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
  /// Calls visit(panel, products) for each. Behind the first panel so many products have been queued.
  template <int kBehind, class Visit>
  __device__ __forceinline__ void end(Visit&& visit) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      if (panel > 0) multiply(panel);
#if ATTUNE_SM90A_CODE
      if (panel == 0) {
        wgmma_wait<kBehind>();
      } else {
        wgmma_wait<0>();
      }
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
template <int kBehind, class Shape, class Decays>
__device__ __forceinline__ void write_split_state(State<Shape>& state, KeyProducts<Shape>& products,
                                                  const Decays& decays) {
  float2 of_values[2];
  if constexpr (Decays::kOfValues) load_value_totals(of_values, decays);
  products.template end<kBehind>([&](int panel, const typename KeyProducts<Shape>::Panel& added) {
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
