// A window's tokens in shared memory: rows and decays.
#pragma once

#include <array>
#include <type_traits>

#include "cuda/chunks/token_tile.cuh"
#include "cuda/chunks/views.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/walks/numbers.cuh"
#include "cuda/window/window.hpp"

namespace attune::cuda::window {

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarpSize; }

/// The thread's number from the block's end: its first warps have tokens to see to besides.
__device__ __forceinline__ int number_from_end() {
  return threads() - 1 - static_cast<int>(threadIdx.x);
}

/// Where a sequence and head have their rows of a tensor, in elements: the first token's, and how
/// much further on the next one's is.
struct alignas(16) Rows {
  std::int64_t first, next;
};

/// What a warp's team works on, and where it has it.
struct Block {
  const Params& p;
  const Side& side;
  Layout at = {};
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

  /// Makes the compiler compute again what it computed from it: kept from tile to tile, that would
  /// fill the registers.
  __device__ __forceinline__ void forget_warp() { asm volatile("" : "+r"(warp)); }
  __device__ std::int64_t shared_head() const { return quotient(head, p.heads_per_kv); }
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
  /// Of a window's block: found by find_rows().
  __device__ Rows& rows(TokenTensor tensor) const {
    return reinterpret_cast<Rows*>(shared + at.rows)[tensor];
  }
  __device__ std::int64_t offset(TokenTensor tensor, std::int64_t step) const {
    const Rows of = rows(tensor);
    return of.first + step * of.next;
  }
};

/// Finds the block's rows, a tensor a thread: products of strides in 64 bits are most of what a row
/// would take each time.
__device__ __forceinline__ void find_rows(const Block& b) {
  if (threadIdx.x >= kTokenTensors) return;
  const auto tensor = static_cast<TokenTensor>(threadIdx.x);
  const ConstTokenView& view = b.side.views[tensor];
  const bool is_shared = tensor == kWrite || tensor == kOtherWrite;
  b.rows(tensor) = {b.offset(view, 0, is_shared ? b.shared_head() : b.head),
                    b.p.descending ? -view.token : view.token};
}

/// An element on its way, zero where there is no such tensor: asked for without a branch, so that
/// those of several tokens are waited for together.
template <class T>
struct Element {
  T x;

  __device__ Element(const ConstTokenView& view, bool exists, std::int64_t at)
      : x(exists ? static_cast<const T*>(view.data)[at] : from_float<T>(0.0F)) {}
  __device__ float value() const { return to_float(x); }
};
/// The same of a gate, in fp32 or in q's type: its bits.
template <class T>
struct GateElement {
  bool is_wide;
  std::uint32_t bits = 0;

  __device__ GateElement(const GateView& gate, std::int64_t at)
      : is_wide(std::is_same_v<T, float> || gate.is_f32) {
    if (gate.given() && is_wide) bits = static_cast<const std::uint32_t*>(gate.rows.data)[at];
    if (gate.given() && !is_wide) bits = static_cast<const std::uint16_t*>(gate.rows.data)[at];
  }
  __device__ float log() const {
    if constexpr (!std::is_same_v<T, float>) {
      if (!is_wide) return unpack<T>(bits).x;
    }
    return __uint_as_float(bits);
  }
};

/// Where the rows of four tokens are that follow each other, the first of them in the sequence; the
/// last one of the sequence stands for those behind it.
struct FourRows {
  std::int64_t at[4];

  /// `left`: tokens of the sequence from the first on.
  __device__ FourRows(const Block& b, TokenTensor tensor, std::int64_t step, int left) {
    const Rows rows = b.rows(tensor);
    at[0] = rows.first + step * rows.next;
#pragma unroll
    for (int i = 1; i < 4; ++i) at[i] = at[i - 1] + (i < left ? rows.next : 0);
  }
};

/// Four tokens of a channel of the other side.
__device__ __forceinline__ std::array<float, 4> four_of(const Block& b, int rows, int channel,
                                                        int token) {
  const float4 x =
      *reinterpret_cast<const float4*>(b.shared + rows + channel * b.at.stride + token);
  return {x.x, x.y, x.z, x.w};
}
__device__ __forceinline__ void store_four(const Block& b, int rows, int channel, int token,
                                           const std::array<float, 4>& x) {
  *reinterpret_cast<float4*>(b.shared + rows + channel * b.at.stride + token) = {x[0], x[1], x[2],
                                                                                 x[3]};
}

/// The rows of the other side's channels, of four tokens a thread; zeros behind the last of `count`
/// tokens.
template <class T, int kTokens>
__device__ void stage_others(const Block& b, std::int64_t first_step, int count) {
  const Side& side = b.side;
  const int others = side.other_channels;
  for (int item = number_from_end(); item < others * (kTokens / 4); item += threads()) {
    const int number = static_cast<int>(small_quotient(item, others));
    const int channel = item - number * others;
    const int token = number * 4;
    const int left = count - token;
    if (left <= 0) {
      store_four(b, b.at.other_read, channel, token, {});
      store_four(b, b.at.other_write, channel, token, {});
      if (side.other_gate.given()) {
        store_four(b, b.at.other_decays, channel, token, {1.0F, 1.0F, 1.0F, 1.0F});
      }
      continue;
    }
    const std::int64_t step = first_step + token;
    const FourRows reads(b, kOtherRead, step, left);
    const FourRows writes(b, kOtherWrite, step, left);
    const FourRows gates(b, kOtherGate, step, left);
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
        b.at.other_read, [&](int i) { return read[i].value(); }, 0.0F);
    store(
        b.at.other_write, [&](int i) { return write[i].value(); }, 0.0F);
    if (!side.other_gate.given()) continue;
    store(
        b.at.other_decays, [&](int i) { return exp2_approx(gate[i].log() * kLog2E); }, 1.0F);
  }
}

/// The rows of the block's own channels, and the decays that the others share.
template <class T, int kTokens>
__device__ void stage_own(const Block& b, std::int64_t first_step) {
  const Side& side = b.side;
  const int channel = b.first + min(lane(), max(b.count, 1) - 1);
  const float gamma = constant_decay(b.p.gamma, b.sequence, b.head);
#pragma unroll
  for (int token = b.warp; token < kTokens; token += b.warps) {
    const bool exists = first_step + token < b.span.length;
    const bool valid = exists && lane() < b.count;
    const std::int64_t step = min(first_step + token, b.span.length - 1);
    const Element<T> read(side.read, side.read.data != nullptr, b.offset(kRead, step) + channel);
    const Element<T> write(side.write, true, b.offset(kWrite, step) + channel);
    const GateElement<T> gate(side.gate, b.offset(kGate, step) + channel);
    const GateElement<T> shared_gate(b.p.shared_gate, b.offset(kSharedGate, step));
    const float shared_decay = exists ? exp2_approx((gamma + shared_gate.log()) * kLog2E) : 1.0F;
    b.own(b.at.read, token) = valid ? read.value() : 0.0F;
    b.own(b.at.write, token) = valid ? write.value() : 0.0F;
    b.own(b.at.decays, token) = (valid ? exp2_approx(gate.log() * kLog2E) : 1.0F) *
                                (side.has_shared_decays ? shared_decay : 1.0F);
    if (lane() == 0 && b.team == 0) {
      b.shared[b.at.shared_decays + token] = side.has_shared_decays ? 1.0F : shared_decay;
    }
  }
}

/// The decays of four tokens of a channel of the other side.
__device__ __forceinline__ std::array<float, 4> four_decays(const Block& b, int channel,
                                                            int token) {
  const auto shared = *reinterpret_cast<const float4*>(b.shared + b.at.shared_decays + token);
  if (b.at.other_decays == 0) return {shared.x, shared.y, shared.z, shared.w};
  const auto own = four_of(b, b.at.other_decays, channel, token);
  return {shared.x * own[0], shared.y * own[1], shared.z * own[2], shared.w * own[3]};
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

/// The other side's rows as the state takes them, from the window's start and to its end: those of
/// a channel that are read and those that are written by a thread each.
template <int kTokens>
__device__ void decay_others(const Block& b) {
  const int others = b.side.other_channels;
  for (int item = number_from_end(); item < 2 * others; item += threads()) {
    const int channel = item < others ? item : item - others;
    float past = 1.0F;
    if (item < others) {
#pragma unroll
      for (int token = 0; token < kTokens; token += 4) {
        const auto decays = four_decays(b, channel, token);
        auto read = four_of(b, b.at.other_read, channel, token);
#pragma unroll
        for (int i = 0; i < 4; ++i) read[i] *= past *= decays[i];
        store_four(b, b.at.other_read, channel, token, read);
      }
      b.shared[b.at.other_total + channel] = past;
      continue;
    }
#pragma unroll
    for (int token = kTokens - 4; token >= 0; token -= 4) {
      const auto decays = four_decays(b, channel, token);
      auto write = four_of(b, b.at.other_write, channel, token);
#pragma unroll
      for (int i = 3; i >= 0; --i) {
        write[i] *= past;
        past *= decays[i];
      }
      store_four(b, b.at.other_write, channel, token, write);
    }
  }
}

}  // namespace attune::cuda::window
