// A window's tokens in shared memory: rows, decays, and scores of pairs.
#pragma once

#include <array>

#include "cuda/chunks/views.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/window/window.hpp"

namespace attune::cuda::window {

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int warps() { return threads() / kWarpSize; }
__device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }

/// What a block works on, and where it has it.
struct Block {
  const Params& p;
  const Side& side;
  Layout at;
  float* shared;
  std::int64_t sequence;
  std::int64_t head;
  SequenceSpan span;
  int tile = 0;   // of its own channels
  int first = 0;  // of them
  int count = 0;
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
  __device__ float& own(int rows, int token) const { return shared[rows + token * kOwn + lane()]; }
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
      *reinterpret_cast<float4*>(b.shared + rows + channel * b.at.stride + token) = {of(0), of(1),
                                                                                     of(2), of(3)};
    };
    store(
        b.at.other_read, [&](int i) { return read[i].value(); }, 0.0F);
    store(
        b.at.other_write, [&](int i) { return write[i].value(); }, 0.0F);
    if (!side.other_gate.given()) continue;
    store(
        b.at.other_decays, [&](int i) { return exp2_approx(gate[i].log() * kLog2E); }, 1.0F);
  }
}

/// The rows of the block's own channels, and the decays that channels share.
template <class T, int kTokens>
__device__ void stage_own(const Block& b, std::int64_t first_step) {
  const Side& side = b.side;
  const int channel = b.first + min(lane(), b.count - 1);
#pragma unroll
  for (int token = warp(); token < kTokens; token += warps()) {
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
    b.own(b.at.read, token) = valid ? read.value() : 0.0F;
    b.own(b.at.write, token) = valid ? write.value() : 0.0F;
    b.own(b.at.decays, token) = (valid ? exp2_approx(gate.log() * kLog2E) : 1.0F) *
                                (side.has_shared_decays ? shared_decay : 1.0F);
    if (lane() == 0) b.shared[b.at.shared_decays + token] = shared_decay;
  }
}

/// The decay of a token of one of the other side's channels.
__device__ __forceinline__ float other_decay(const Block& b, int channel, int token) {
  const float shared = b.side.has_shared_decays ? 1.0F : b.shared[b.at.shared_decays + token];
  if (!b.side.other_gate.given()) return shared;
  return shared * b.shared[b.at.other_decays + channel * b.at.stride + token];
}

/// D_ij: a warp has a token j, and goes from token to token i with its row decayed.
template <int kTokens>
__device__ void make_scores(const Block& b) {
  for (int j = warp(); j < kTokens; j += warps()) {
    float sums[kTokens] = {};
    for (int channel = lane(); channel < b.side.other_channels; channel += kWarpSize) {
      const float* const read = b.shared + b.at.other_read + channel * b.at.stride;
      float decayed = b.shared[b.at.other_write + channel * b.at.stride + j];
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        if (i < j) continue;
        if (i > j) decayed *= other_decay(b, channel, i);
        sums[i] = fmaf(read[i], decayed, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      if (i < j) continue;
      const float sum = warp_sum(sums[i]);
      if (lane() == 0) b.shared[b.at.scores + i * kTokens + j] = b.p.scale * sum;
    }
  }
}

/// Sums over pairs of different tokens, and the decays to and from the ends of the window.
template <int kTokens>
__device__ void sum_pairs(const Block& b) {
  const float* const scores = b.shared + b.at.scores;
  for (int own = warp(); own < kTokens; own += warps()) {
    float past = 1.0F;
    float x = 0.0F;
    for (int j = own - 1; j >= 0; --j) {
      past *= b.own(b.at.decays, j + 1);
      x = fmaf(scores[own * kTokens + j] * past, b.own(b.at.write, j), x);
    }
    b.own(b.at.x, own) = x;
    b.own(b.at.before, own) = past * b.own(b.at.decays, 0);
    past = 1.0F;
    float y = 0.0F;
    for (int i = own + 1; i < kTokens; ++i) {
      past *= b.own(b.at.decays, i);
      y = fmaf(scores[i * kTokens + own] * past, b.own(b.at.read, i), y);
    }
    b.own(b.at.y, own) = y;
    b.own(b.at.after, own) = past;
  }
}

/// The other side's rows as the state takes them, from the window's start and to its end.
template <int kTokens>
__device__ void decay_others(const Block& b) {
  for (int channel = threadIdx.x; channel < b.side.other_channels; channel += threads()) {
    float* const read = b.shared + b.at.other_read + channel * b.at.stride;
    float* const write = b.shared + b.at.other_write + channel * b.at.stride;
    float past = 1.0F;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      past *= other_decay(b, channel, i);
      read[i] *= past;
    }
    b.shared[b.at.other_total + channel] = past;
    past = 1.0F;
#pragma unroll
    for (int i = kTokens - 1; i > 0; --i) {
      past *= other_decay(b, channel, i);
      write[i - 1] *= past;
    }
  }
}

}  // namespace attune::cuda::window
