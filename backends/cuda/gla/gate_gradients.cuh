// The gradients of gates, of what tokens get and give within a chunk and by way of its states.
//
// Gradients of log decays are sums over the pairs on whose two sides the token is. Over a chunk the
// sums of x'_s . sum_j P y'_j and of y'_s . sum_i P x'_i are equal, as both have the same product,
// of the same rounded factors, for each pair. So they come from what tokens get and give before it
// is rounded, X and Y the sums in brackets of intra_chunk.cuh, without cancellation:
//
//   dgate_t = E <S, D> + scale 2^R sum_s x'_s . S u_s + sum_{s < t} (y'_s . Y_s - x'_s . X_s)
#pragma once

#include "cuda/gla/column_decays.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::gla {

#if ATTUNE_SM90A_CODE

/// Those of a block that takes what stays within a chunk (intra_chunk.cuh), whose names these are.
template <class T, class Shared>
class GateGradients {
 public:
  __device__ GateGradients(const GlaParams& p, Shared& shared)
      : p_(p), s_(shared), chunk_(shared.chunk) {}

  /// Makes of the terms of each token's the gradients.
  __device__ __forceinline__ void sum(const ColumnDecays<T>& decays, float (&terms)[32],
                                      const float (&read)[2]) const {
    const int quarter = decays.at.lane() % 4;
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float& term = terms[decays.at.element(i, second)];
        const float next = sum + term;
        term = sum;
        sum = next;
      }
      const float last = __shfl_up_sync(kFullWarp, sum, 1, 4);
      if (quarter >= 1) sum += last;
      const float last_two = __shfl_up_sync(kFullWarp, sum, 2, 4);
      if (quarter >= 2) sum += last_two;
      const float before = __shfl_up_sync(kFullWarp, sum, 1, 4);
      const float common = fmaf(decays.template over_half<kReads>(second), sum_row(read[second]),
                                state_product(decays.at.channel() + 8 * second)) +
                           (quarter >= 1 ? before : 0.0F);
#pragma unroll
      for (int i = 0; i < 16; ++i) terms[decays.at.element(i, second)] += common;
    }
  }
  /// Returns sums over the warp's channels, of two permuted rows of this lane's, if channels share
  /// gates.
  __device__ __forceinline__ float2 put(const ColumnDecays<T>& decays, const float (&gradients)[32],
                                        int first) const {
    decays.template for_each_row<float>(p_.dchannel_gate, first,
                                        [&](int i, int second, bool has, float* to) {
                                          if (has) *to = gradients[decays.at.element(i, second)];
                                        });
    if (!are_shared()) return {};
    const bool channels[] = {decays.has_channel(first, 0), decays.has_channel(first, 1)};
    float sums[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      sums[i] = (channels[0] ? gradients[decays.at.element(i, 0)] : 0.0F) +
                (channels[1] ? gradients[decays.at.element(i, 1)] : 0.0F);
    }
    return sum_columns(sums, decays.at);
  }

  /// Adds what warps return of put() to the gradients of what channels share.
  __device__ void add_shared(const FragmentLane& at, float2 of_warp) {
    if (!are_shared()) return;
    const auto thread = static_cast<int>(threadIdx.x);
    *reinterpret_cast<float2*>(&scratch()[thread / kWarpSize][2 * at.lane()]) = of_warp;
    __syncthreads();  // all warps' sums are there
    if (thread >= kChunkTokens) return;
#pragma unroll
    for (int warp = 0; warp < Shared::kThreads / kWarpSize; ++warp)
      of_token_ += scratch()[warp][thread];
  }

  /// Makes of what this part's channels have to the gradients of what all share that of all parts.
  /// False for all blocks of a chunk but the last to come here.
  __device__ bool joins_parts() {
    const unsigned parts = gridDim.y - 1;
    if (parts == 1 || !are_shared()) return parts == 1;
    float* const terms =
        p_.part_terms + chunk_.index * kMostParts * kChunkTokens + threadIdx.x % kChunkTokens;
    if (threadIdx.x < kChunkTokens) terms[blockIdx.y * kChunkTokens] = of_token_;
    __threadfence();
    __syncthreads();  // all terms of this part are there
    const bool came_last =
        threadIdx.x == 0 && atomicAdd(&p_.parts_done[chunk_.index], 1U) + 1 == parts;
    if (__syncthreads_or(came_last ? 1 : 0) == 0) return false;
    __threadfence();
    of_token_ = 0;
    for (unsigned part = 0; part < parts; ++part) of_token_ += __ldcg(terms + part * kChunkTokens);
    return true;
  }
  /// Gradients of what all channels share, after all of them.
  __device__ void put_shared(const FragmentLane& at) {
    const int position = position_of_row(static_cast<int>(threadIdx.x) % kChunkTokens);
    const bool owns = threadIdx.x < kChunkTokens && chunk_.has(position);
    if (owns && p_.dg.data != nullptr) {
      static_cast<float*>(p_.dg.data)[row_offset(
          p_.dg, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head)] = of_token_;
    }
    if (p_.dgamma_terms == nullptr) return;
    const float sum = warp_sum(owns ? of_token_ : 0.0F);
    __syncthreads();  // the scratch is free
    if (at.lane() == 0) scratch()[threadIdx.x / kWarpSize][0] = sum;
    __syncthreads();  // both warps' sums are there
    if (threadIdx.x == 0) p_.dgamma_terms[chunk_.index] = scratch()[0][0] + scratch()[1][0];
  }

 private:
  /// Whether channels share gates whose gradients are wanted.
  __device__ bool are_shared() const { return p_.dg.data != nullptr || p_.dgamma_terms != nullptr; }
  /// E S . D of the chunk and one of the channels that are there, summed over the other side.
  __device__ float state_product(int channel) const {
    if (!chunk_.has_flows) return 0.0F;
    float sum = s_.state_products[0][channel];
#pragma unroll
    for (int tile = 1; tile < Shared::kFlowTiles; ++tile) {
      if (p_.other_tiles == tile) return sum;
      sum += s_.state_products[tile][channel];
    }
    return sum;
  }
  /// By warp of the block and permuted row: where y' was.
  __device__ float (*scratch() const)[kChunkTokens] {
    return reinterpret_cast<float(*)[kChunkTokens]>(s_.y.bytes[0]);
  }

  const GlaParams& p_;
  Shared& s_;
  const HeadChunk& chunk_;
  // Of the threads of as many permuted rows: the gradient of what channels share.
  float of_token_ = 0;
};

#endif

}  // namespace attune::cuda::gla
