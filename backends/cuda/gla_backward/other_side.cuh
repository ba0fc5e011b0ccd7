// The side without gates, where only one has them: the scores that it makes, and its outputs.
#pragma once

#include "cuda/gla_backward/pairs_shared.cuh"

namespace attune::cuda::gla_backward {

template <int kD>
struct OtherTiles {
  Tile<kD> u, z;  // by position
};

/// A block of 256 threads, of a chunk and head.
template <class T, int kD>
class OtherSide {
 public:
  __device__ OtherSide(const GlaBackwardParams& p, OtherTiles<kD>& tiles,
                       Tile<kPanelChannels>& scores, const ChunkPlace& chunk)
      : p_(p), tiles_(tiles), scores_(scores), chunk_(chunk) {}

  __device__ void start_loads() const {
    start_load(tiles_.u, p_.u, chunk_.head);
    start_load(tiles_.z, p_.z, chunk_.group);
    copy_async_commit();
  }

  /// P as `Element`, after `f` has been applied to each score.
  template <class Element, class F>
  __device__ __forceinline__ void make_scores(const ThreadPlace& at, F&& f) const {
    const int row_block = at.warp / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column_block = at.warp % 2 * 2 + i;
      if (column_block > row_block) continue;
      float scores[2][4] = {};
#pragma unroll
      for (int k = 0; k < kD; k += kBlock) {
        const std::uint32_t panel = static_cast<std::uint32_t>(k / kPanelChannels * kPanelBytes);
        std::uint32_t left[4];
        std::uint32_t right[4];
        load_left<false>(left, shared_address(&tiles_.u) + panel, at.lane, row_block * kBlock,
                         k % kPanelChannels);
        load_right_rows(right, shared_address(&tiles_.z) + panel, at.lane, column_block * kBlock,
                        k % kPanelChannels);
        multiply_block<T>(scores, left, right);
      }
      store_scores<Element>(scores_, scores, at.lane, row_block, column_block,
                            [&](int row, int column, float& score) {
                              score = column <= row ? score * p_.score_scale : 0.0F;
                              f(row, column, score);
                            });
    }
  }

  __device__ void make_outputs(const ThreadPlace& at, unsigned char* staged) const {
    make_output<true>(at, p_.dz, tiles_.u, p_.z_flow, staged);
    if (p_.du.data != nullptr) make_output<false>(at, p_.du, tiles_.z, p_.u_flow, staged);
  }

 private:
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

  /// dz = A^T u, or du = A z, and the walk's flow. At `staged` there is room for a tile.
  template <bool kTransposed>
  __device__ void make_output(const ThreadPlace& at, const TokenView& to, Tile<kD>& tile,
                              void* flow, unsigned char* staged) const {
#pragma unroll 1
    for (int first = 0; first < kD && first < p_.other; first += kStaged) {
      make_columns<kTransposed>(at, first, tile, flow, staged);
      __syncthreads();  // all rows are there
      write_staged(first, to, staged);
      __syncthreads();  // the staged rows are free
    }
  }

  static constexpr int kStaged = kD < 128 ? kD : 128;  // channels at once

  template <bool kTransposed>
  __device__ __forceinline__ void make_columns(const ThreadPlace& at, int begin,
                                               const Tile<kD>& tile, void* flow,
                                               unsigned char* staged) const {
    constexpr int kColumns = kStaged / 2;  // of a warp
    const int block = at.warp / 2;
    const int column = begin + at.warp % 2 * kColumns;
    const std::uint32_t panel =
        shared_address(&tile) + static_cast<std::uint32_t>(column / kPanelChannels * kPanelBytes);
    float sums[kColumns / kBlock][2][4] = {};
    const int first = kTransposed ? block : 0;
    const int last = kTransposed ? kChunkTokens / kBlock - 1 : block;
    for (int k = first; k <= last; ++k) {
      std::uint32_t left[4];
      load_left<kTransposed>(left, shared_address(&scores_), at.lane, block * kBlock, k * kBlock);
#pragma unroll
      for (int n = 0; n < kColumns / kBlock; ++n) {
        std::uint32_t right[4];
        load_right(right, panel, at.lane, k * kBlock, column % kPanelChannels + n * kBlock);
        multiply_block<T>(sums[n], left, right);
      }
    }
    // All loads are under way before the first is used.
    const unsigned char* const flows = workspace_tile(p_, flow, chunk_.index, p_.other_parts);
    std::uint32_t through[kColumns / kBlock][4];
    load_flows(through, flows, at, block, column);
    if (kD > 64 && p_.own_parts > 1) {
      std::uint32_t second[kColumns / kBlock][4];
      load_flows(second, flows + tiles_bytes(p_, p_.other_parts), at, block, column);
#pragma unroll
      for (int n = 0; n < kColumns / kBlock; ++n) add_pairs(sums[n], second[n]);
    }
#pragma unroll
    for (int n = 0; n < kColumns / kBlock; ++n) {
      add_pairs(sums[n], through[n]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* const sum = &sums[n][e / 2][e % 2 * 2];
        *reinterpret_cast<std::uint32_t*>(
            staged + tile_byte(row_of(at, block, e), column - begin + column_of(at, n, e))) =
            pack<T>(sum[0], sum[1]);
      }
    }
  }

  // Pair e of a thread's four in 16 x 16 sums.
  __device__ static int row_of(const ThreadPlace& at, int block, int e) {
    return block * kBlock + at.lane / 4 + e % 2 * 8;
  }
  __device__ static int column_of(const ThreadPlace& at, int n, int e) {
    return n * kBlock + e / 2 * 8 + at.lane % 4 * 2;
  }
  template <int kCount>
  __device__ __forceinline__ void load_flows(std::uint32_t (&pairs)[kCount][4],
                                             const unsigned char* flows, const ThreadPlace& at,
                                             int block, int column) const {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        pairs[n][e] = *reinterpret_cast<const std::uint32_t*>(
            flows + tile_byte(chunk_.row(row_of(at, block, e)), column + column_of(at, n, e)));
      }
    }
  }
  __device__ static __forceinline__ void add_pairs(float (&sums)[2][4],
                                                   const std::uint32_t (&pairs)[4]) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 x = unpack<T>(pairs[e]);
      sums[e / 2][e % 2 * 2] += x.x;
      sums[e / 2][e % 2 * 2 + 1] += x.y;
    }
  }

  __device__ __forceinline__ void write_staged(int begin, const TokenView& to,
                                               const unsigned char* staged) const {
    constexpr int kWords = kStaged / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kChunkTokens * kWords; i += kBlockThreads) {
      const int position = i / kWords;
      const int channel = i % kWords * 8;
      if (!chunk_.has(position) || begin + channel >= p_.other) continue;
      const std::int64_t offset =
          row_offset(to, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head);
      *reinterpret_cast<uint4*>(static_cast<T*>(to.data) + offset + begin + channel) =
          *reinterpret_cast<const uint4*>(staged + tile_byte(position, channel));
    }
  }

  const GlaBackwardParams& p_;
  OtherTiles<kD>& tiles_;
  Tile<kPanelChannels>& scores_;
  const ChunkPlace& chunk_;
};

}  // namespace attune::cuda::gla_backward
