// Scores between the tokens of a row where products on tensor cores take them: w_ts is what new
// token t reads of token s, zero where that is not there yet. Those of places that are not taken are
// not made, or mean nothing.
#pragma once

#include "cuda/decode/product_operands.cuh"
#include "cuda/decode/product_sums.cuh"

namespace attune::cuda::decode {

/// <q_t, k_s> over a tile, of places lane / 4 and the eighth behind it, new tokens 2 (lane % 4) and
/// the one behind it each; of places and tokens that do not exist, anything. Rows come in eights.
template <class T>
__device__ __forceinline__ void multiply_tokens(const StepParams& p,
                                                const ProductScratch<T>& scratch, int rows,
                                                float (&products)[4]) {
  const int g = lane_index() / 4, last = p.committed_tokens + p.tokens - 1;
  const auto pairs_of = [](const T* tokens, int token) {
    return reinterpret_cast<const std::uint32_t*>(tokens + token * kTokenStride +
                                                  lane_index() % 4 * 2);
  };
  const std::uint32_t* const upper = pairs_of(scratch.keys, min(g, last));
  const std::uint32_t* const lower = pairs_of(scratch.keys, min(g + kProductTokens, last));
  const std::uint32_t* const queries = pairs_of(scratch.queries, min(g, p.tokens - 1));
  constexpr int kPairs = 4;  // of eight rows
#pragma unroll 4
  for (int i = 0; i < rows / 2; i += 2 * kPairs) {
    const bool has_more = i + kPairs < rows / 2;
    const std::uint32_t left[4] = {upper[i], lower[i], has_more ? upper[i + kPairs] : 0,
                                   has_more ? lower[i + kPairs] : 0};
    mma_m16n8k16<T>(products, left, queries[i], has_more ? queries[i + kPairs] : 0);
  }
}

/// a_{s+1} ... a_t of place s and new token t, by one warp; zero where s is behind t.
template <class T>
__device__ __forceinline__ void make_spans(const StepParams& p, const ProductScratch<T>& scratch) {
  const int t = lane_index();
  const int places = p.committed_tokens + p.tokens;
  const float decay = t < places ? scratch.decays[t] : 1.0F;
  float* const to = scratch.spans + t - p.committed_tokens;
  float span = 0;
#pragma unroll 4
  for (int s = places - 1; s >= 0; --s) {
    const float next = __shfl_sync(kFullWarp, decay, s + 1);
    span = t > s ? span * next : (t == s ? 1.0F : 0.0F);
    if (t >= p.committed_tokens && t < places) to[s * kProductTokens] = span;
  }
}

/// Adds a tile's part of all scores, by one warp, where the channels of a head share a decay.
template <class T>
__device__ __forceinline__ void add_scores_of_head(const StepParams& p,
                                                   const ProductScratch<T>& scratch,
                                                   const ProductBlock& at, const ProductRow& row) {
  const int lane = lane_index();
  const bool first_tile = at.first_row == 0;
  if (first_tile) {
    make_spans(p, scratch);
    __syncwarp();
  }
  float products[4] = {};
  multiply_tokens(p, scratch, at.rows, products);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int s = lane / 4 + half * kProductTokens, t = lane % 4 * 2;
    const int place = s * kProductTokens + t;
    auto& to = *reinterpret_cast<float2*>(scratch.scores + place);
    const float2 before = first_tile ? float2{0, 0} : to;
    const float2 span = *reinterpret_cast<const float2*>(scratch.spans + place);
    const bool taken = is_taken(p, row, s);
    const auto added = [&](int e, float sum, float by) {
      return taken && t + e < p.tokens ? fmaf(products[2 * half + e] * p.scale, by, sum) : 0.0F;
    };
    to = {added(0, before.x, span.x), added(1, before.y, span.y)};
  }
}

/// Four elements at an address that is a multiple of 8.
template <class T>
__device__ __forceinline__ void load_four(float (&to)[4], const T* from) {
  const uint2 vector = *reinterpret_cast<const uint2*>(from);
  const float2 low = unpack<T>(vector.x), high = unpack<T>(vector.y);
  to[0] = low.x;
  to[1] = low.y;
  to[2] = high.x;
  to[3] = high.y;
}

/// A warp's lanes each have channels of their own: their sums are added up as those of columns.
struct ChannelLanes {
  static constexpr int kLanesAcross = 1;
  static constexpr int column_offset(int c) { return c; }
};

/// Adds a tile's part of all scores, a warp for each token s: its lanes have four channels of k_s,
/// which they take through the tokens behind it.
template <class T>
__device__ __forceinline__ void add_scores_of_channels(const StepParams& p,
                                                       const ProductScratch<T>& scratch,
                                                       const ProductBlock& at,
                                                       const ProductRow& row) {
  const int old = p.committed_tokens, places = old + p.tokens;
  const int i = lane_index() * 4;
  const int step = static_cast<int>(blockDim.x / kWarpSize);
  for (int s = warp_index(); s < places; s += step) {
    if (!is_taken(p, row, s)) continue;
    float scores[kProductTokens] = {};
    if (i < at.rows) {
      float key[4];
      load_four(key, scratch.keys + s * kTokenStride + i);
      const auto take = [&](int place) {
        const float4 by =
            *reinterpret_cast<const float4*>(scratch.decays + place * kProductRows + i);
        key[0] *= by.x;
        key[1] *= by.y;
        key[2] *= by.z;
        key[3] *= by.w;
      };
      for (int place = s + 1; place < old; ++place) take(place);
#pragma unroll
      for (int t = 0; t < kProductTokens; ++t) {
        if (t >= p.tokens || old + t < s) continue;
        if (old + t > s) take(old + t);
        float q[4];
        load_four(q, scratch.queries + t * kTokenStride + i);
        scores[t] = q[0] * key[0] + q[1] * key[1] + (q[2] * key[2] + q[3] * key[3]);
      }
    }
    sum_over_lanes<ChannelLanes>(scores, scratch.scores + s * kProductTokens,
                                 [&](float* to, const float(&sum)[1]) {
                                   *to = fmaf(sum[0], p.scale, at.first_row > 0 ? *to : 0.0F);
                                 });
  }
}

/// Sums up what new tokens read of the tokens themselves, by one warp.
template <class T, class Tile>
__device__ __forceinline__ void put_score_sums(const StepParams& p, const ProductShape& shape,
                                               const ProductScratch<T>& scratch,
                                               const ProductRow& row) {
  const int g = lane_index() / 4, c = lane_index() % 4;
  const auto exists = [&](int place) { return is_taken(p, row, place); };
#pragma unroll 1
  for (int v = 0; v < shape.warps_v; ++v) {
    const StepLane lane = {0, 0, v * Tile::kWarpColumns + g * Tile::kVector};
    float o[Tile::kColumns / 2][4] = {};
#pragma unroll 1
    for (int first = 0; first < p.committed_tokens + p.tokens; first += kProductTokens) {
      const auto values = load_values<T, Tile>(scratch, lane, first, exists);
      RightOperand<2> score;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int place = first + c + 4 * e;
        score.set(e, exists(place) ? scratch.scores[place * kProductTokens + g] : 0);
      }
#pragma unroll
      for (int m = 0; m < Tile::kColumns / 2; ++m) multiply_exact(o[m], values.left[m], score);
    }
    put_product_sums<Tile>(score_sums<Tile>(p, shape, scratch, v), p.tokens, o, true);
  }
}

}  // namespace attune::cuda::decode
