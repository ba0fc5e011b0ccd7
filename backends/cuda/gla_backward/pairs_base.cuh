// What both kernels of pairs do alike: scores of the side without gates and its outputs, what a
// thread loads of the side with gates, and the gradients of the gates from their terms.
#pragma once

#include "cuda/device/reduce.cuh"
#include "cuda/gla_backward/pairs_shared.cuh"

namespace attune::cuda::gla_backward {

/// A block of 256 threads, of a chunk and head. Shared has what PairsTiles has, and staged(): room
/// for a tile when all channels are done.
template <class T, int kD, class Shared>
class PairsBase {
 public:
  __device__ PairsBase(const GlaBackwardParams& p, Shared& shared)
      : p_(p), s_(shared), chunk_(shared.chunk) {}

  __device__ void start_load(Tile<kD>& tile, const ConstTokenView& from, std::int64_t head) const {
    constexpr int kWords = kD / 8;  // of a row
    for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens * kWords; i += kBlockThreads) {
      const int position = i / kWords;
      const int channel = i % kWords * 8;
      const bool valid = chunk_.has(position) && channel < p_.other;
      const T* const row =
          static_cast<const T*>(from.data) +
          row_offset(from, chunk_.batch, chunk_.token + (valid ? chunk_.row(position) : 0), head);
      copy_async_16(shared_address(&tile) + tile_byte(position, channel),
                    row + (valid ? channel : 0), valid);
    }
  }

  /// dz = A^T u, or du = A z, and the walk's flow.
  template <bool kTransposed>
  __device__ void make_other(const TokenView& to, Tile<kD>& tile, void* flow) {
    constexpr int kColumns = kD / 2;  // of a warp
    const int block = at_.warp / 2;
    const int column = at_.warp % 2 * kColumns;
    const std::uint32_t panel =
        shared_address(&tile) + static_cast<std::uint32_t>(column / kPanelChannels * kPanelBytes);
    float sums[kColumns / kBlock][2][4] = {};
    const int first = kTransposed ? block : 0;
    const int last = kTransposed ? kChunkTokens / kBlock - 1 : block;
    for (int k = first; k <= last; ++k) {
      std::uint32_t left[4];
      load_left<kTransposed>(left, shared_address(&s_.p), at_.lane, block * kBlock, k * kBlock);
#pragma unroll
      for (int n = 0; n < kColumns / kBlock; ++n) {
        std::uint32_t right[4];
        load_right(right, panel, at_.lane, k * kBlock, column % kPanelChannels + n * kBlock);
        multiply_block<T>(sums[n], left, right);
      }
    }
    const unsigned char* const flows = workspace_tile<kD>(flow, chunk_.index);
    unsigned char* const staged = s_.staged();
#pragma unroll
    for (int n = 0; n < kColumns / kBlock; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {  // pairs of neighbours
        const int position = block * kBlock + at_.lane / 4 + e % 2 * 8;
        const int at = column + n * kBlock + e / 2 * 8 + at_.lane % 4 * 2;
        const float* const sum = &sums[n][e / 2][e % 2 * 2];
        const float2 through = unpack<T>(
            *reinterpret_cast<const std::uint32_t*>(flows + tile_byte(chunk_.row(position), at)));
        *reinterpret_cast<std::uint32_t*>(staged + tile_byte(position, at)) =
            pack<T>(sum[0] + through.x, sum[1] + through.y);
      }
    }
    __syncthreads();  // all rows are there
    constexpr int kWords = kD / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens * kWords; i += kBlockThreads) {
      const int position = i / kWords;
      const int channel = i % kWords * 8;
      if (!chunk_.has(position) || channel >= p_.other) continue;
      const std::int64_t offset =
          row_offset(to, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head) + channel;
      *reinterpret_cast<uint4*>(static_cast<T*>(to.data) + offset) =
          *reinterpret_cast<const uint4*>(staged + tile_byte(position, channel));
    }
    __syncthreads();  // the staged rows are free
  }

  __device__ void put_shared_gradients() {
    if (p_.dg.data == nullptr && p_.dgamma_parts == nullptr) return;
    const int position = at_.position(folded_index());
    const bool owns = owns_sum() && chunk_.has(position);
    const float of_token = owns ? s_.shared_sums[at_.warp][folded_index()] : 0.0F;
    if (owns && p_.dg.data != nullptr) {
      static_cast<float*>(p_.dg.data)[row_offset(
          p_.dg, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head)] = of_token;
    }
    if (p_.dgamma_parts == nullptr) return;
    const float sum = warp_sum(of_token);
    if (at_.lane == 0) s_.parts[at_.warp] = sum;
    __syncthreads();  // all warps' sums are there
    if (threadIdx.x != 0) return;
    float total = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) total += s_.parts[warp];
    p_.dgamma_parts[chunk_.index] = total;
  }

 protected:
  /// P as `Element`, after `f` has been applied to each score.
  template <class Element, class F>
  __device__ __forceinline__ void make_scores(F&& f) {
    const int row_block = at_.warp / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column_block = at_.warp % 2 * 2 + i;
      if (column_block > row_block) continue;
      float scores[2][4] = {};
#pragma unroll
      for (int k = 0; k < kD; k += kBlock) {
        const std::uint32_t panel = static_cast<std::uint32_t>(k / kPanelChannels * kPanelBytes);
        std::uint32_t left[4];
        std::uint32_t right[4];
        load_left<false>(left, shared_address(&s_.u) + panel, at_.lane, row_block * kBlock,
                         k % kPanelChannels);
        load_right_rows(right, shared_address(&s_.z) + panel, at_.lane, column_block * kBlock,
                        k % kPanelChannels);
        multiply_block<T>(scores, left, right);
      }
      store_scores<Element>(s_.p, scores, row_block, column_block,
                            [&](int row, int column, float& score) {
                              score = column <= row ? score * p_.scale : 0.0F;
                              f(row, column, score);
                            });
    }
  }

  __device__ __forceinline__ void forget(Run& run) {
    at_.forget();
    run.forget();
  }

  __device__ __forceinline__ void load_run(Run& run, int channel) const {
    float2 logs[kRun];
    load_pairs<T>(run.x, {p_.x, chunk_, at_, channel}, valid_);
    load_pairs<T>(run.y, {p_.y, chunk_, chunk_.group, at_, channel}, valid_);
    load_log_decays<T>(logs, p_, chunk_, at_, channel, valid_);
    run.log_over = sum_of(logs);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      run.decay[i] = exp2_of(logs[i]);
      if (run.decay[i].x == 0.0F) run.resets |= 1U << i;
      if (run.decay[i].y == 0.0F) run.resets |= 1U << (kRun + i);
    }
  }

  __device__ __forceinline__ void load_flows(std::uint32_t (&flows)[kRun], void* tiles,
                                             int channel) const {
    const RunTile<unsigned char*> tile =
        rows_of(workspace_tile<kD>(tiles, chunk_.index), channel, chunk_, at_);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      flows[i] = *reinterpret_cast<const std::uint32_t*>(tile.row(i));
    }
  }

  /// Adds a value of each of this warp's tokens to sums over all channels, or begins them.
  __device__ __forceinline__ void add_over_channels(float (&sums)[kBlockWarps][kRun],
                                                    float (&x)[16], int channel) const {
    const float of_panel = fold_eight(x);
    if (!owns_sum()) return;
    float& to = sums[at_.warp][folded_index()];
    to = channel < kPanelChannels ? of_panel : to + of_panel;
  }
  /// Sums each of eight values over the lanes: this lane gets that of folded_index().
  __device__ __forceinline__ float fold_eight(float (&x)[16]) const {
    fold_lanes<4>(x, at_.lane);
    fold_lanes<2>(x, at_.lane);
    fold_lanes<1>(x, at_.lane);
    x[0] += __shfl_xor_sync(kFullWarp, x[0], 1);
    return x[0] + __shfl_xor_sync(kFullWarp, x[0], 16);
  }
  __device__ bool owns_sum() const { return (at_.lane & 17) == 0; }
  __device__ int folded_index() const {
    return (at_.lane >> 3 & 1) * 4 + (at_.lane >> 2 & 1) * 2 + (at_.lane >> 1 & 1);
  }

  __device__ static __forceinline__ void write_pair(T* row, float2 value) {
    *reinterpret_cast<std::uint32_t*>(row) = pack<T>(value.x, value.y);
  }

  /// Gradients of this warp's tokens' gates: `sum`, which all have, and the sums of `later` from a
  /// token on and of `earlier` before it.
  __device__ __forceinline__ void put_gate_gradients(float2 (&later)[kRun],
                                                     const float2 (&earlier)[kRun], float2 sum,
                                                     unsigned resets, int channel) {
#pragma unroll
    for (int i = kRun - 2; i >= 0; --i) add(later[i], later[i + 1]);
    const RunRows<float> rows(p_.dchannel_gate, chunk_, at_, channel);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      float2& gradient = later[i];
      add(gradient, sum);
      add(sum, earlier[i]);
      if ((resets >> i & 1) != 0) gradient.x = 0.0F;
      if ((resets >> (kRun + i) & 1) != 0) gradient.y = 0.0F;
    }
    if (p_.gate_in_pairs) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        if ((valid_ >> i & 1) != 0) *reinterpret_cast<float2*>(rows.row(i)) = later[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        if ((valid_ >> i & 1) == 0) continue;
        rows.row(i)[0] = later[i].x;
        rows.row(i)[1] = later[i].y;
      }
    }
    if (p_.dg.data == nullptr && p_.dgamma_parts == nullptr) return;
    float shared[16];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      shared[i] = (valid_ >> i & 1) != 0 ? later[i].x + later[i].y : 0.0F;
    }
    add_over_channels(s_.shared_sums, shared, channel);
  }

  /// Writes a block of scores after `f` has been applied to each: f(row, column, score).
  template <class Element, class F>
  __device__ __forceinline__ void store_scores(Tile<kPanelChannels>& panel, float (&scores)[2][4],
                                               int row_block, int column_block, F&& f) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = row_block * kBlock + at_.lane / 4 + e % 2 * 8;
      const int column = column_block * kBlock + e / 2 * 8 + at_.lane % 4 * 2;
      float* const pair = &scores[e / 2][e % 2 * 2];
      f(row, column, pair[0]);
      f(row, column + 1, pair[1]);
      *reinterpret_cast<std::uint32_t*>(panel.bytes[0] + tile_byte(row, column)) =
          pack<Element>(pair[0], pair[1]);
    }
  }

  /// What the states and other warps' tokens, by all their sums, have to the gradients of all of
  /// this warp's tokens.
  __device__ __forceinline__ float2 gradient_of_others(int channel) const {
    float2 common = *reinterpret_cast<const float2*>(&p_.anchors[chunk_.index * kD + channel]);
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp < at_.warp) add(common, s_.writes[warp][at_.lane]);
      if (warp > at_.warp) add(common, s_.reads[warp][at_.lane]);
    }
    return common;
  }

  const GlaBackwardParams& p_;
  Shared& s_;
  const ChunkPlace& chunk_;
  ThreadPlace at_;
  unsigned valid_ = 0;  // valid_positions()
};

}  // namespace attune::cuda::gla_backward
