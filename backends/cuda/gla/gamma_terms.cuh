// What a chunk has to the gradient of a constant decay, where that is of few sequences and heads.
//
// Such a gradient is one number that sums products of both signs over all tokens. Where many of them
// are wanted their tolerance bears that scores and decayed rows within a chunk are rounded to 16
// bits; where it is one or two, chance makes the sum small, and the rounding is most of its error. So
// what stays within a chunk is made anew in fp32, whatever the decays, of scores that are not rounded;
// and the flows, whose rounding is a tenth of that, are taken as they are. With n tokens, counted from 0,
//
//   sum_t dg_t = n E <S, D> + sum_i (i + 1) scale E_i x_i . (S u_i)
//                + sum_j (n - 1 - j) L_j y_j . (D z_j) + sum_{j < i} (i - j) P_ij A_ij
//
// as a decay of token t is passed by what was written before it and is read from it on. Only one side
// has gates.
#pragma once

#include "cuda/gla/decays.cuh"
#include "cuda/gla/ungated_side.cuh"
#include "cuda/runtime/launch.hpp"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::gla {

/// A panel of 64 channels by position; rows apart so that neither rows nor columns share banks.
using FloatPanel = float[kChunkTokens][kPanelChannels + 1];

struct GammaShared {
  using Other = UngatedTiles<kLargeTile>;

  union {
    Other other;
    FloatPanel panels[2];
  } own_or_other;                                                // the other side's first
  alignas(16) float distant_scores[kChunkTokens][kChunkTokens];  // [i][j]: (i - j) P_ij; 0 if j > i
  FloatPanel decay, x_flow, y_flow;
  float warp_sums[kBlockWarps];
  HeadChunk chunk;

  __device__ FloatPanel& x() { return own_or_other.panels[0]; }
  __device__ FloatPanel& y() { return own_or_other.panels[1]; }
};

#if ATTUNE_SM90A_CODE

/// A block of 256 threads, of a chunk and head and of a panel of the gated side's channels, whose term
/// it makes: the few chunks that there are leave multiprocessors for each panel to have scores of its
/// own.
template <class T>
class GammaTerms {
 public:
  __device__ GammaTerms(const GlaParams& p, GammaShared& shared)
      : p_(p), s_(shared), chunk_(shared.chunk) {}

  /// P, not rounded. Tokens that a chunk does not have are zeros.
  __device__ void make_scores() {
    const Other other(p_, s_.own_or_other.other, chunk_);
    other.start_loads();
    other.finish_loads();
    other.make_scores([&](int i, int j, float low, float high) {
      s_.distant_scores[i][j] = static_cast<float>(max(i - j, 0)) * low;
      s_.distant_scores[i][j + 1] = static_cast<float>(max(i - j - 1, 0)) * high;
    });
    __syncthreads();  // the other side's tiles are free
  }

  /// The terms of the panel's channels from `first` on, this thread's of one of them.
  __device__ float take_channels(int first) {
    stage_rows(s_.x(), p_.x, chunk_.head, first, p_.own);
    stage_rows(s_.y(), p_.y, chunk_.kv_head, first, p_.own);
    stage_decays(first);
    stage_flows(s_.x_flow, p_.x_flow(0), first);
    stage_flows(s_.y_flow, p_.y_flow(0), first);
    __syncthreads();  // the panels are there
    const int channel = static_cast<int>(threadIdx.x) % kPanelChannels;
    const int part = static_cast<int>(threadIdx.x) / kPanelChannels;
    float sum = first + channel < p_.own ? within_chunk(channel, part) : 0.0F;
    if (first + channel < p_.own) {
      if (part == 0) sum += of_reads(channel);
      if (part == 1) sum += of_writes(channel);
      if (part == 2) sum += static_cast<float>(chunk_.rows) * of_states(first + channel);
    }
    return sum;
  }

 private:
  using Other = UngatedSide<T, kMostChannels, kBlockThreads, kLargeTile>;
  static constexpr int kParts = kBlockThreads / kPanelChannels;  // threads of a channel

  __device__ void stage(FloatPanel& to, int i, float2 pair) const {
    to[at_.position(i)][at_.channel()] = pair.x;
    to[at_.position(i)][at_.channel() + 1] = pair.y;
  }
  __device__ void stage_rows(FloatPanel& to, const ConstTokenView& from, std::int64_t head,
                             int first, int channels) const {
    const int channel = first + at_.channel();
    std::uint32_t pairs[kRun];
    load_pairs<T>(pairs, {from, chunk_, head, at_, channel},
                  valid_positions(chunk_, at_, channel < channels));
#pragma unroll
    for (int i = 0; i < kRun; ++i) stage(to, i, unpack<T>(pairs[i]));
  }
  __device__ void stage_decays(int first) const {
    const int channel = first + at_.channel();
    float2 logs[kRun];
    load_log_decays<T>(logs, p_, chunk_, at_, channel,
                       valid_positions(chunk_, at_, channel < p_.own));
#pragma unroll
    for (int i = 0; i < kRun; ++i) stage(s_.decay, i, exp2_of(logs[i]));
  }
  /// Sums over tiles of the other side, tensors from one on.
  __device__ void stage_flows(FloatPanel& to, int tensor, int first) const {
    const int channel = first + at_.channel();
    const bool has_flows = chunk_.has_flows && channel < p_.own_rows.channels;
    float2 sums[kRun] = {};
    for (int other = 0; has_flows && other < p_.other_tiles; ++other) {
      const RunRows<const T> rows(p_.own_rows, tensor + other, chunk_, at_, channel);
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        add(sums[i], unpack<T>(*reinterpret_cast<const std::uint32_t*>(rows.row(i))));
      }
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) stage(to, i, sums[i]);
  }

  /// Pairs of tokens, of four that write at a time, which share what is loaded of those that read. What
  /// later ones read is decayed on the way back to a token that writes.
  __device__ float within_chunk(int channel, int part) const {
    constexpr int kWrites = 4;
    float sum = 0.0F;
    for (int first = kWrites * part; first < kChunkTokens; first += kWrites * kParts) {
      float reads[kWrites] = {};
      const auto read_at = [&](int i, int writes) {
        const float4 scores = *reinterpret_cast<const float4*>(&s_.distant_scores[i][first]);
        const float of[kWrites] = {scores.x, scores.y, scores.z, scores.w};
        const float x = s_.x()[i][channel];
        const float decay = s_.decay[i][channel];
#pragma unroll
        for (int n = 0; n < kWrites; ++n) {
          if (n < writes) reads[n] = decay * fmaf(of[n], x, reads[n]);
        }
      };
#pragma unroll 4
      for (int i = kChunkTokens - 1; i >= first + kWrites; --i) read_at(i, kWrites);
#pragma unroll
      for (int i = kWrites - 1; i > 0; --i) read_at(first + i, i);
#pragma unroll
      for (int n = 0; n < kWrites; ++n) sum = fmaf(s_.y()[first + n][channel], reads[n], sum);
    }
    return sum;
  }
  /// Against time, tokens that a chunk does not have come first.
  __device__ int first_position() const { return chunk_.reverse ? kChunkTokens - chunk_.rows : 0; }
  __device__ float of_reads(int channel) const {
    const int first = first_position();
    float decay = p_.scale;
    float sum = 0.0F;
#pragma unroll 4
    for (int i = 0; i < chunk_.rows; ++i) {
      const int at = first + i;
      decay *= s_.decay[at][channel];
      const float read = decay * s_.x()[at][channel];
      sum = fmaf(static_cast<float>(i + 1) * read, s_.x_flow[at][channel], sum);
    }
    return sum;
  }
  __device__ float of_writes(int channel) const {
    const int last = first_position() + chunk_.rows - 1;
    float decay = 1.0F;
    float sum = 0.0F;
#pragma unroll 4
    for (int behind = 0; behind < chunk_.rows; ++behind) {
      const int at = last - behind;
      const float left = decay * s_.y()[at][channel];
      sum = fmaf(static_cast<float>(behind) * left, s_.y_flow[at][channel], sum);
      decay *= s_.decay[at][channel];
    }
    return sum;
  }
  /// E S . D.
  __device__ float of_states(int channel) const {
    const std::int64_t of_tile = p_.slots * p_.heads * own_channels(p_);
    const float* const products = p_.state_products + chunk_.index * own_channels(p_) + channel;
    float sum = 0.0F;
    for (int other = 0; chunk_.has_flows && other < p_.other_tiles; ++other) {
      sum += products[other * of_tile];
    }
    return sum;
  }

  const GlaParams& p_;
  GammaShared& s_;
  const HeadChunk& chunk_;
  RunLane at_;
};

#endif

template <class T>
__global__ __launch_bounds__(kBlockThreads,
                             2) void gamma_terms(const __grid_constant__ GlaParams p) {
#if ATTUNE_SM90A_CODE
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<GammaShared*>(shared_bytes);
  take_over_from_previous_launch();
  const auto panel = static_cast<int>(blockIdx.y);
  const unsigned index = chunk_of_block(p, blockIdx.x);
  if (threadIdx.x == 0) shared.chunk = head_chunk(p, index);
  __syncthreads();  // the chunk is known
  float sum = 0.0F;
  if (shared.chunk.rows > 0) {
    GammaTerms<T> terms(p, shared);
    terms.make_scores();
    sum = warp_sum(terms.take_channels(panel * kPanelChannels));
  }
  if (threadIdx.x % kWarpSize == 0) shared.warp_sums[threadIdx.x / kWarpSize] = sum;
  __syncthreads();  // all warps' sums are there
  if (threadIdx.x != 0) return;
  float total = 0.0F;
  for (int warp = 0; warp < kBlockWarps; ++warp) total += shared.warp_sums[warp];
  p.dgamma_terms[std::int64_t{index} * p.gamma_parts + panel] = total;
#endif
}

template <class T>
void launch_gamma_terms(const GlaParams& p, cudaStream_t stream) {
  launch<gamma_terms<T>>(
      {.grid = dim3(static_cast<unsigned>(p.slots * p.heads), static_cast<unsigned>(p.gamma_parts)),
       .block = dim3(kBlockThreads),
       .shared_bytes = sizeof(GammaShared),
       .overlaps_previous = true},
      stream, p);
}

}  // namespace attune::cuda::gla
