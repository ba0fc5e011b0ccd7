// A window's tokens in shared memory: rows, decays, and scores of pairs.
#pragma once

#include <array>

#include "cuda/chunks/views.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/window/window.hpp"

namespace attune::cuda::window {

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarpSize; }

/// What a warp's team works on, and where it has it.
struct Block {
  const Params& p;
  const Side& side;
  float* shared;  // by the block's teams
  float* mine;    // the team's
  int team;
  int warp;  // of the team
  int warps;
  std::int64_t sequence;
  std::int64_t head;
  SequenceSpan span;
  int tile = 0;               // of its own channels
  int first = 0;              // of them
  int count = 0;              // 0: the team only helps
  bool is_first_tile = true;  // of those that the block has, one after the other

  __device__ std::int64_t shared_head() const { return head / p.heads_per_kv; }
  __device__ std::int64_t token_of(std::int64_t step) const {
    return span.begin + (p.descending ? span.length - 1 - step : step);
  }
  /// Row of tokens' tensors [B, T, H].
  __device__ std::int64_t row_of(std::int64_t step) const {
    return (span.batch * p.sequences.tokens + token_of(step)) * p.heads + head;
  }
  /// Element of a row of the block's own channels, of the warp's token and the lane's channel.
  __device__ float& own(int rows, int token) const { return mine[rows + token * kOwn + lane()]; }
  template <class View>
  __device__ std::int64_t offset(const View& view, std::int64_t step, std::int64_t of_head) const {
    return row_offset(view, span.batch, token_of(step), of_head);
  }
};

/// An element on its way, zero where there is no such tensor: asked for without a branch, so that
/// those of several tokens are waited for together.
template <class T>
struct Element {
  T x;

  __device__ Element(const ConstTokenView& view, bool exists, std::int64_t at)
      : x(exists ? static_cast<const T*>(view.data)[at] : from_float<T>(0.0F)) {}
  __device__ float value() const { return to_float(x); }
};
/// The same of a gate.
template <class T>
struct GateElement {
  float wide;
  T narrow;

  __device__ GateElement(const GateView& gate, std::int64_t at)
      : wide(gate.given() && gate.is_f32 ? static_cast<const float*>(gate.rows.data)[at] : 0.0F),
        narrow(gate.given() && !gate.is_f32 ? static_cast<const T*>(gate.rows.data)[at]
                                            : from_float<T>(0.0F)) {}
  __device__ float log() const { return wide + to_float(narrow); }
};

/// Four tokens of a channel of the other side.
__device__ __forceinline__ std::array<float, 4> four_of(const Block& b, int rows, int channel,
                                                        int token) {
  const float4 x =
      *reinterpret_cast<const float4*>(b.shared + rows + channel * b.side.at.stride + token);
  return {x.x, x.y, x.z, x.w};
}
__device__ __forceinline__ void store_four(const Block& b, int rows, int channel, int token,
                                           const std::array<float, 4>& x) {
  *reinterpret_cast<float4*>(b.shared + rows + channel * b.side.at.stride + token) = {x[0], x[1],
                                                                                      x[2], x[3]};
}

/// The rows of the other side's channels, of four tokens a thread; zeros behind the last token.
template <class T, int kTokens>
__device__ void stage_others(const Block& b, std::int64_t first_step) {
  const Side& side = b.side;
  const int others = side.other_channels;
  for (int item = threadIdx.x; item < others * (kTokens / 4); item += threads()) {
    const int channel = item % others;
    const int token = item / others * 4;
    const auto four = [&](auto&& make) {
      const auto of = [&](int i) { return make(min(first_step + token + i, b.span.length - 1)); };
      return std::array{of(0), of(1), of(2), of(3)};
    };
    const auto read = four([&](std::int64_t step) {
      return Element<T>(side.other_read, side.other_read.data != nullptr,
                        b.offset(side.other_read, step, b.head) + channel);
    });
    const auto write = four([&](std::int64_t step) {
      return Element<T>(side.other_write, true,
                        b.offset(side.other_write, step, b.shared_head()) + channel);
    });
    const auto gate = four([&](std::int64_t step) {
      return GateElement<T>(side.other_gate,
                            b.offset(side.other_gate.rows, step, b.head) + channel);
    });
    const auto store = [&](int rows, auto&& value, float behind) {
      const auto of = [&](int i) {
        return first_step + token + i < b.span.length ? value(i) : behind;
      };
      store_four(b, rows, channel, token, {of(0), of(1), of(2), of(3)});
    };
    store(
        b.side.at.other_read, [&](int i) { return read[i].value(); }, 0.0F);
    store(
        b.side.at.other_write, [&](int i) { return write[i].value(); }, 0.0F);
    if (!side.other_gate.given()) continue;
    store(
        b.side.at.other_decays, [&](int i) { return exp2_approx(gate[i].log() * kLog2E); }, 1.0F);
  }
}

/// The rows of the block's own channels, and the decays that channels share.
template <class T, int kTokens>
__device__ void stage_own(const Block& b, std::int64_t first_step) {
  const Side& side = b.side;
  const int channel = b.first + min(lane(), max(b.count, 1) - 1);
#pragma unroll
  for (int token = b.warp; token < kTokens; token += b.warps) {
    const bool exists = first_step + token < b.span.length;
    const bool valid = exists && lane() < b.count;
    const std::int64_t step = min(first_step + token, b.span.length - 1);
    const Element<T> read(side.read, side.read.data != nullptr,
                          b.offset(side.read, step, b.head) + channel);
    const Element<T> write(side.write, true, b.offset(side.write, step, b.shared_head()) + channel);
    const GateElement<T> gate(side.gate, b.offset(side.gate.rows, step, b.head) + channel);
    const GateElement<T> shared_gate(b.p.shared_gate, b.offset(b.p.shared_gate.rows, step, b.head));
    const float gamma = constant_decay(b.p.gamma, b.sequence, b.head);
    const float shared_decay = exists ? exp2_approx((gamma + shared_gate.log()) * kLog2E) : 1.0F;
    b.own(b.side.at.read, token) = valid ? read.value() : 0.0F;
    b.own(b.side.at.write, token) = valid ? write.value() : 0.0F;
    b.own(b.side.at.decays, token) = (valid ? exp2_approx(gate.log() * kLog2E) : 1.0F) *
                                     (side.has_shared_decays ? shared_decay : 1.0F);
    if (lane() == 0 && b.team == 0) b.shared[b.side.at.shared_decays + token] = shared_decay;
  }
}

/// The decays of four tokens of a channel of the other side.
__device__ __forceinline__ std::array<float, 4> four_decays(const Block& b, int channel,
                                                            int token) {
  std::array<float, 4> decays{1.0F, 1.0F, 1.0F, 1.0F};
  if (b.side.other_gate.given()) decays = four_of(b, b.side.at.other_decays, channel, token);
  if (!b.side.has_shared_decays) {
#pragma unroll
    for (int i = 0; i < 4; ++i) decays[i] *= b.shared[b.side.at.shared_decays + token + i];
  }
  return decays;
}

/// D_ij of the window's first `count` tokens: a warp has a token j, and goes from token to token i
/// with its row decayed.
template <int kTokens>
__device__ void make_scores(const Block& b, int count) {
  for (int j = warp_of_block(); j < count; j += threads() / kWarpSize) {
    float sums[kTokens] = {};
    for (int channel = lane(); channel < b.side.other_channels; channel += kWarpSize) {
      float decayed = b.shared[b.side.at.other_write + channel * b.side.at.stride + j];
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        if (i % 4 == 0 && (i + 3 < j || i >= count)) continue;
        const auto read = four_of(b, b.side.at.other_read, channel, i / 4 * 4);
        const auto decays = four_decays(b, channel, i / 4 * 4);
        if (i > j) decayed *= decays[i % 4];
        if (i >= j) sums[i] = fmaf(read[i % 4], decayed, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (i < j || i >= count) continue;
      const float sum = warp_sum(sums[i]);
      if (lane() == 0) b.shared[b.side.at.scores + i * kTokens + j] = b.p.scale * sum;
    }
  }
}

/// Sums over pairs of different tokens, and the decays to and from the ends of the window.
template <int kTokens>
__device__ void sum_pairs(const Block& b, int count) {
  const float* const scores = b.shared + b.side.at.scores;
  for (int own = b.warp; own < count; own += b.warps) {
    float past = 1.0F;
    float x = 0.0F;
    for (int j = own - 1; j >= 0; --j) {
      past *= b.own(b.side.at.decays, j + 1);
      x = fmaf(scores[own * kTokens + j] * past, b.own(b.side.at.write, j), x);
    }
    b.own(b.side.at.x, own) = x;
    b.own(b.side.at.before, own) = past * b.own(b.side.at.decays, 0);
    past = 1.0F;
    float y = 0.0F;
    for (int i = own + 1; i < count; ++i) {
      past *= b.own(b.side.at.decays, i);
      y = fmaf(scores[i * kTokens + own] * past, b.own(b.side.at.read, i), y);
    }
    b.own(b.side.at.y, own) = y;
    b.own(b.side.at.after, own) = past;
  }
}

/// The other side's rows as the state takes them, from the window's start and to its end.
template <int kTokens>
__device__ void decay_others(const Block& b) {
  for (int channel = threadIdx.x; channel < b.side.other_channels; channel += threads()) {
    float past = 1.0F;
#pragma unroll
    for (int token = 0; token < kTokens; token += 4) {
      const auto decays = four_decays(b, channel, token);
      auto read = four_of(b, b.side.at.other_read, channel, token);
#pragma unroll
      for (int i = 0; i < 4; ++i) read[i] *= past *= decays[i];
      store_four(b, b.side.at.other_read, channel, token, read);
    }
    b.shared[b.side.at.other_total + channel] = past;
    past = 1.0F;
#pragma unroll
    for (int token = kTokens - 4; token >= 0; token -= 4) {
      const auto decays = four_decays(b, channel, token);
      auto write = four_of(b, b.side.at.other_write, channel, token);
#pragma unroll
      for (int i = 3; i >= 0; --i) {
        write[i] *= past;
        past *= decays[i];
      }
      store_four(b, b.side.at.other_write, channel, token, write);
    }
  }
}

}  // namespace attune::cuda::window
