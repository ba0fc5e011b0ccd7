// A window's tokens in shared memory: rows, decays, and scores of pairs.
#pragma once

#include <array>

#include "cuda/chunks/token_tile.cuh"
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

/// Where the rows of four tokens are that follow each other, the first of them in the sequence; the
/// last one of the sequence stands for those behind it.
struct FourRows {
  std::int64_t at[4];

  /// `left`: tokens of the sequence from the first on.
  template <class View>
  __device__ FourRows(const Block& b, const View& view, std::int64_t step, int left,
                      std::int64_t of_head) {
    const std::int64_t next = b.p.descending ? -view.token : view.token;
    at[0] = b.offset(view, step, of_head);
#pragma unroll
    for (int i = 1; i < 4; ++i) at[i] = at[i - 1] + (i < left ? next : 0);
  }
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

/// The rows of the other side's channels, of four tokens a thread; zeros behind the last of `count`
/// tokens.
template <class T, int kTokens>
__device__ void stage_others(const Block& b, std::int64_t first_step, int count) {
  const Side& side = b.side;
  const int others = side.other_channels;
  for (int item = threadIdx.x; item < others * (kTokens / 4); item += threads()) {
    const int channel = item % others;
    const int token = item / others * 4;
    const int left = count - token;
    const auto rows_of = [&](const ConstTokenView& view, std::int64_t head) {
      return FourRows(b, view, first_step + min(token, count - 1), left, head);
    };
    const FourRows reads = rows_of(side.other_read, b.head);
    const FourRows writes = rows_of(side.other_write, b.shared_head());
    const FourRows gates = rows_of(side.other_gate.rows, b.head);
    const auto four = [](auto&& of) { return std::array{of(0), of(1), of(2), of(3)}; };
    const auto read = four([&](int i) {
      return Element<T>(side.other_read, side.other_read.data != nullptr, reads.at[i] + channel);
    });
    const auto write =
        four([&](int i) { return Element<T>(side.other_write, true, writes.at[i] + channel); });
    const auto gate =
        four([&](int i) { return GateElement<T>(side.other_gate, gates.at[i] + channel); });
    const auto store = [&](int rows, auto&& value, float behind) {
      store_four(b, rows, channel, token,
                 four([&](int i) { return i < left ? value(i) : behind; }));
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
    const auto shared =
        *reinterpret_cast<const float4*>(b.shared + b.side.at.shared_decays + token);
    decays[0] *= shared.x, decays[1] *= shared.y, decays[2] *= shared.z, decays[3] *= shared.w;
  }
  return decays;
}

/// Sums each of kCount values over the lanes: lane l gets that of number l / 2 % kCount.
template <int kCount>
__device__ __forceinline__ float sum_of_lanes(float (&x)[16]) {
  if constexpr (kCount > 8) fold_lanes<8>(x, lane());
  if constexpr (kCount > 4) fold_lanes<4>(x, lane());
  fold_lanes<2>(x, lane());
  fold_lanes<1>(x, lane());
  float sum = x[0] + __shfl_xor_sync(kFullWarp, x[0], 1);
#pragma unroll
  for (int apart = 2 * kCount; apart < kWarpSize; apart *= 2) {
    sum += __shfl_xor_sync(kFullWarp, sum, apart);
  }
  return sum;
}

/// D_ij of the window's first `count` tokens: a warp has one or two tokens j, and goes from token to
/// token i with their rows decayed.
template <int kTokens>
__device__ void make_scores(const Block& b, int count) {
  constexpr int kOfWarp = kTokens > 8 ? 2 : 1;
  for (int j = kOfWarp * warp_of_block(); j < count; j += kOfWarp * threads() / kWarpSize) {
    float sums[kOfWarp][16] = {};
    for (int channel = lane(); channel < b.side.other_channels; channel += kWarpSize) {
      float decayed[kOfWarp];
#pragma unroll
      for (int own = 0; own < kOfWarp; ++own) {
        decayed[own] = b.shared[b.side.at.other_write + channel * b.side.at.stride + j + own];
      }
#pragma unroll
      for (int four = 0; four < kTokens; four += 4) {
        if (four + 3 < j || four >= count) continue;
        const auto read = four_of(b, b.side.at.other_read, channel, four);
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
      b.shared[b.side.at.scores + i * kTokens + j + own] = b.p.scale * sum;
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
