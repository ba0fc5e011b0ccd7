// States in shared memory, [other channels][own channels], and their products with a window's rows.
#pragma once

#include "cuda/tiles/word_copies.cuh"
#include "cuda/window/tokens.cuh"

namespace attune::cuda::window {

/// Calls visit(other, own, offset in the view) for each element of the block's part of a state, in
/// an order in which lanes touch neighbours in memory. Behind the last own channel stands that one.
template <class View, class Visit>
__device__ __forceinline__ void for_each_element(const Block& b, const View& view, Visit&& visit) {
  const auto first_of = [&](int own) {
    return b.head * view.head + (b.first + min(own, max(b.count, 1) - 1)) * view.k;
  };
  const int others = b.side.other_channels;
  if (view.k <= view.v) {
    std::int64_t at = first_of(lane()) + b.warp * view.v;
    for (int other = b.warp; other < others; other += b.warps, at += b.warps * view.v) {
      visit(other, lane(), at);
    }
    return;
  }
  for (int own = b.warp; own < kOwn; own += b.warps) {
    std::int64_t at = first_of(own) + lane() * view.v;
    for (int other = lane(); other < others; other += kWarpSize, at += kWarpSize * view.v) {
      visit(other, own, at);
    }
  }
}

/// Asks for the block's part of a state, zeros behind its last channel.
__device__ __forceinline__ void load_state(const Block& b, const ConstStateView& view, int to) {
  for_each_element(b, view, [&](int other, int own, std::int64_t at) {
    copy_async_4(shared_address(b.mine + to + other * kStateStride + own), view.data + at,
                 own < b.count);
  });
}
__device__ __forceinline__ void store_state(const Block& b, const StateView& view, int from) {
  for_each_element(b, view, [&](int other, int own, std::int64_t at) {
    if (own < b.count) view.data[at] = b.mine[from + other * kStateStride + own];
  });
}
__device__ __forceinline__ void clear_state(const Block& b, int to) {
  const int floats = b.side.other_channels * kStateStride;
  for (int i = b.warp * kWarpSize + lane(); i < floats; i += b.warps * kWarpSize)
    b.mine[to + i] = 0.0F;
}

/// Shares of the sums over the other channels of a state and the rows of all tokens, a warp each.
template <int kTokens>
__device__ void multiply_state(const Block& b, int state, int rows) {
  float sums[kTokens] = {};
#pragma unroll 4
  for (int other = b.warp; other < b.side.other_channels; other += b.warps) {
    const float s = b.mine[state + other * kStateStride + lane()];
    const auto* const row = reinterpret_cast<const float4*>(b.shared + rows + other * b.at.stride);
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) {
      const float4 x = row[i];
      sums[4 * i] = fmaf(s, x.x, sums[4 * i]);
      sums[4 * i + 1] = fmaf(s, x.y, sums[4 * i + 1]);
      sums[4 * i + 2] = fmaf(s, x.z, sums[4 * i + 2]);
      sums[4 * i + 3] = fmaf(s, x.w, sums[4 * i + 3]);
    }
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) b.own(b.at.partial, b.warp * kTokens + i) = sums[i];
}
/// What they are together, of the lane's channel.
template <int kTokens>
__device__ __forceinline__ float sum_of_shares(const Block& b, int token) {
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < b.warps; ++w) sum += b.own(b.at.partial, w * kTokens + token);
  return sum;
}

/// The sum over the other channels of the state, all of the window's decays, and the gradient: a
/// share a warp, in the shares' first token.
template <int kTokens>
__device__ void meet_states(const Block& b) {
  float sum = 0.0F;
  for (int other = b.warp; other < b.side.other_channels; other += b.warps) {
    const int at = other * kStateStride + lane();
    sum = fmaf(b.mine[b.at.state + at] * b.shared[b.at.other_total + other],
               b.mine[b.at.gradient + at], sum);
  }
  b.own(b.at.partial, b.warp * kTokens) = sum;
}

/// A state over the window: decayed, and with the products of own rows, each times its decay to or
/// from the window's end and `scale`, and the others.
template <int kTokens>
__device__ void update_state(const Block& b, int state, int own_rows, int own_decays,
                             int other_rows, float scale, int count) {
  float own[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    own[i] = i < count ? scale * b.own(own_rows, i) * b.own(own_decays, i) : 0.0F;
  }
  const float decay = b.own(b.at.before, count - 1);
  for (int other = b.warp; other < b.side.other_channels; other += b.warps) {
    float& s = b.mine[state + other * kStateStride + lane()];
    const auto* const row =
        reinterpret_cast<const float4*>(b.shared + other_rows + other * b.at.stride);
    float sum = s * decay * b.shared[b.at.other_total + other];
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) {
      const float4 x = row[i];
      sum = fmaf(own[4 * i], x.x, sum);
      sum = fmaf(own[4 * i + 1], x.y, sum);
      sum = fmaf(own[4 * i + 2], x.z, sum);
      sum = fmaf(own[4 * i + 3], x.w, sum);
    }
    s = sum;
  }
}

}  // namespace attune::cuda::window
