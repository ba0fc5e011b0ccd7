// The scores of pairs of a window's tokens, by all of a block's warps, and what tokens get by them.
#pragma once

#include "cuda/window/tokens.cuh"

namespace attune::cuda::window {

/// Tokens j of which a warp has the scores, and how many warps have them all.
template <int kTokens>
inline constexpr int kScoresOfWarp = kTokens > 8 ? 2 : 1;
template <int kTokens>
__device__ int parts_of_scores(int count) {
  return (count + kScoresOfWarp<kTokens> - 1) / kScoresOfWarp<kTokens>;
}

/// How many warps share the channels that a score is a sum over: those that tokens leave.
template <int kTokens>
__device__ int shares_of_score(const Block& b, int count) {
  const int parts = parts_of_scores<kTokens>(count);
  int shares = 1;
  while (shares < kMostShares && (shares + 1) * parts * kWarpSize <= threads() &&
         shares * kWarpSize < b.side.other_channels) {
    ++shares;
  }
  return shares;
}
template <int kTokens>
__device__ float& share_of_score(const Block& b, int share, int i, int j) {
  return b.shared[b.at.scores + (share * kTokens + i) * kTokens + j];
}
template <int kTokens>
__device__ float score(const Block& b, int shares, int i, int j) {
  float sum = 0.0F;
#pragma unroll
  for (int share = 0; share < kMostShares; ++share) {
    if (share < shares) sum += share_of_score<kTokens>(b, share, i, j);
  }
  return sum;
}

/// D_ij of the window's first `count` tokens: a warp has one or two tokens j, and goes from token to
/// token i with their rows decayed.
template <int kTokens>
__device__ void make_scores(const Block& b, int count, int shares) {
  constexpr int kOfWarp = kScoresOfWarp<kTokens>;
  const int parts = parts_of_scores<kTokens>(count);
  for (int part = warp_of_block(); part < parts * shares; part += threads() / kWarpSize) {
    const int share = static_cast<int>(small_quotient(part, parts));
    const int j = kOfWarp * (part - share * parts);
    float sums[kOfWarp][16] = {};
    for (int channel = share * kWarpSize + lane(); channel < b.side.other_channels;
         channel += shares * kWarpSize) {
      float decayed[kOfWarp];
#pragma unroll
      for (int own = 0; own < kOfWarp; ++own) {
        decayed[own] = b.shared[b.at.other_write + channel * b.at.stride + j + own];
      }
#pragma unroll
      for (int four = 0; four < kTokens; four += 4) {
        if (four + 3 < j || four >= count) continue;
        const auto read = four_of(b, b.at.other_read, channel, four);
        const auto decays = four_decays(b, channel, four);
#pragma unroll
        for (int i = four; i < four + 4; ++i) {
#pragma unroll
          for (int own = 0; own < kOfWarp; ++own) {
            if (i > j + own) decayed[own] *= decays[i - four];
            sums[own][i] = fmaf(read[i - four], decayed[own], sums[own][i]);  // left out: i < j
          }
        }
      }
    }
#pragma unroll
    for (int own = 0; own < kOfWarp; ++own) {
      const float sum = sum_of_lanes<kTokens>(sums[own]);
      const int i = lane() / 2;
      if (lane() % 2 != 0 || i < j + own || i >= count) continue;
      share_of_score<kTokens>(b, share, i, j + own) = b.p.scale * sum;
    }
  }
}

/// Sums over pairs of different tokens, and the decays to and from the ends of the window. A lane
/// adds up the scores of a token with its own.
template <int kTokens>
__device__ void sum_pairs(const Block& b, int count, int shares) {
  for (int own = b.warp; own < count; own += b.warps) {
    const float before = score<kTokens>(b, shares, own, lane() % kTokens);
    const float after = score<kTokens>(b, shares, lane() % kTokens, own);
    float past = 1.0F;
    float x = 0.0F;
    for (int j = own - 1; j >= 0; --j) {
      past *= b.own(b.at.decays, j + 1);
      x = fmaf(__shfl_sync(kFullWarp, before, j) * past, b.own(b.at.write, j), x);
    }
    b.own(b.at.x, own) = x;
    b.own(b.at.before, own) = past * b.own(b.at.decays, 0);
    past = 1.0F;
    float y = 0.0F;
    for (int i = own + 1; i < count; ++i) {
      past *= b.own(b.at.decays, i);
      y = fmaf(__shfl_sync(kFullWarp, after, i) * past, b.own(b.at.read, i), y);
    }
    b.own(b.at.y, own) = y;
    b.own(b.at.after, own) = past;
  }
}

}  // namespace attune::cuda::window
