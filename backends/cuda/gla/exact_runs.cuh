// What exact_intra_chunk.cuh is made of: matrix products of blocks of 16 x 16, what a thread loads
// of the side with gates, sums over its channels, and the gradients of the gates from their terms.
#pragma once

#include "cuda/gla/decays.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::gla {

inline constexpr int kBlock = 16;  // rows and columns of a block of matrix products

inline constexpr int kLevels = 3;  // halves of 8, 16 and 32 tokens

/// The block's shared memory; by position.
struct ExactIntraChunkShared {
  TokenTile<kPanelChannels> p;            // [i][j], with the scale; then A
  float2 reads[kBlockWarps][kWarpSize];   // warps' sums of what is read, for the gates' gradients
  float2 writes[kBlockWarps][kWarpSize];  // and of what is written
  float shared_sums[kBlockWarps][kRun];   // gradients of what all channels share, by token
  float warp_sums[kBlockWarps];
  SharedBarrier full;
  HeadChunk chunk;  // here, for few registers are left for it

  // Of 64 channels of the gated side: x decayed from the boundary, or y decayed to it; then what
  // these tokens get from the other half. By position; so are the scores.
  TokenTile<kPanelChannels> halves[kLevels];
  float2 decays[kBlockWarps][kWarpSize];
  float p_diagonal[kBlockWarps][kRun][kRun];  // within 8 tokens, [j][i]
  float a_diagonal[kBlockWarps][kRun][kRun];
  float2 crossings[kLevels][kBlockWarps][kWarpSize];  // warps' sums of what goes between halves
  float half_scores[2][2][4][kBlockThreads];          // sums of A between halves, by thread

  TokenTile<kLargeTile> staged[kMostTiles];
};

/// Two fragments of 16 x 16 blocks: the left operand of a product, and the right one, of two
/// columns of 8, of which fragment 2 n and 2 n + 1 are column n's.
template <bool kTransposed>
__device__ __forceinline__ void load_left(std::uint32_t (&a)[4], std::uint32_t panel, int lane,
                                          int row, int column) {
  if constexpr (kTransposed) {  // of the block [column][row]
    load_matrices_transposed(a, transposed_block_address(panel, lane, column, row));
  } else {
    load_matrices(a, block_address(panel, lane, row, column));
  }
}
/// Rows of memory are columns of the operand.
__device__ __forceinline__ void load_right_rows(std::uint32_t (&b)[4], std::uint32_t panel,
                                                int lane, int row, int column) {
  load_matrices(b, transposed_block_address(panel, lane, row, column));
}
/// Rows of memory are summed over.
__device__ __forceinline__ void load_right(std::uint32_t (&b)[4], std::uint32_t panel, int lane,
                                           int row, int column) {
  load_matrices_transposed(b, block_address(panel, lane, row, column));
}
/// d [16, 16] += a b.
template <class T>
__device__ __forceinline__ void multiply_block(float (&d)[2][4], const std::uint32_t (&a)[4],
                                               const std::uint32_t (&b)[4]) {
  mma_m16n8k16<T>(d[0], a, b[0], b[1]);
  mma_m16n8k16<T>(d[1], a, b[2], b[3]);
}

/// Of two channels over this warp's eight positions.
struct Run {
  std::uint32_t x[kRun];
  std::uint32_t y[kRun];
  float2 decay[kRun];
  float2 log_over;      // of their product, base 2
  unsigned resets = 0;  // bit i: the decay at i is 0; bit 8 + i: that of the second channel

  __device__ __forceinline__ float2 over() const {
    float2 product = decay[0];
#pragma unroll
    for (int i = 1; i < kRun; ++i) product = times(product, decay[i]);
    return product;
  }
  /// Makes the compiler compute again what it would keep: products, and elements unpacked.
  __device__ __forceinline__ void forget() {
    forget_x();
#pragma unroll
    for (int i = 0; i < kRun; ++i) asm volatile("" : "+r"(y[i]));
  }
  __device__ __forceinline__ void forget_x() {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      asm volatile("" : "+r"(x[i]), "+f"(decay[i].x), "+f"(decay[i].y));
    }
  }
};

/// A block of 256 threads, of a chunk and head. Shared has what ExactTiles has. kTiled: flows may
/// be sums over tiles of channels.
template <class T, bool kTiled, class Shared>
class ExactBase {
 public:
  __device__ ExactBase(const GlaParams& p, Shared& shared)
      : p_(p), s_(shared), chunk_(shared.chunk) {}

  __device__ void put_shared_gradients() {
    if (p_.dg.data == nullptr && p_.dgamma_terms == nullptr) return;
    const int position = at_.position(folded_index());
    const bool owns = owns_sum() && chunk_.has(position);
    const float of_token = owns ? s_.shared_sums[at_.warp][folded_index()] : 0.0F;
    if (owns && p_.dg.data != nullptr) {
      static_cast<float*>(p_.dg.data)[row_offset(
          p_.dg, chunk_.batch, chunk_.token + chunk_.row(position), chunk_.head)] = of_token;
    }
    if (p_.dgamma_terms == nullptr) return;
    const float sum = warp_sum(of_token);
    if (at_.lane == 0) s_.warp_sums[at_.warp] = sum;
    __syncthreads();  // all warps' sums are there
    if (threadIdx.x != 0) return;
    float total = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) total += s_.warp_sums[warp];
    p_.dgamma_terms[chunk_.index] = total;
  }

 protected:
  using Flows = RunRows<const T>;

  __device__ __forceinline__ void forget(Run& run) {
    at_.forget();
    run.forget();
  }

  __device__ __forceinline__ void load_run(Run& run, int channel) const {
    float2 logs[kRun];
    load_pairs<T>(run.x, {p_.x, chunk_, at_, channel}, valid_);
    load_pairs<T>(run.y, {p_.y, chunk_, chunk_.kv_head, at_, channel}, valid_);
    load_log_decays<T>(logs, p_, chunk_, at_, channel, valid_);
    run.log_over = sum_of(logs);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      run.decay[i] = exp2_of(logs[i]);
      if (run.decay[i].x == 0.0F) run.resets |= 1U << i;
      if (run.decay[i].y == 0.0F) run.resets |= 1U << (kRun + i);
    }
  }

  /// Of the other side's tiles that are tensors from `first` on.
  __device__ __forceinline__ void load_flows(std::uint32_t (&flows)[kRun], int first,
                                             int channel) const {
    if (!chunk_.has_flows || channel >= p_.own_rows.channels) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) flows[i] = 0;
      return;
    }
    const Flows rows(p_.own_rows, first, chunk_, at_, channel);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      flows[i] = *reinterpret_cast<const std::uint32_t*>(rows.row(i));
    }
    if constexpr (kTiled) {
#pragma unroll 1
      for (int tile = 1; tile < p_.other_tiles; ++tile) {
        const Flows next(p_.own_rows, first + tile, chunk_, at_, channel);
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
          float2 sum = unpack<T>(*reinterpret_cast<const std::uint32_t*>(next.row(i)));
          add(sum, unpack<T>(flows[i]));
          flows[i] = pack<T>(sum.x, sum.y);
        }
      }
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
        if ((valid_ >> i & 1) != 0) rows.row(i)[0] = later[i].x;
      }
      const unsigned second = channel + 1 < p_.own ? valid_ : 0U;
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        if ((second >> i & 1) != 0) rows.row(i)[1] = later[i].y;
      }
    }
    if (p_.dg.data == nullptr && p_.dgamma_terms == nullptr) return;
    float shared[16];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      shared[i] = (valid_ >> i & 1) != 0 ? later[i].x + later[i].y : 0.0F;
    }
    add_over_channels(s_.shared_sums, shared, channel);
  }

  /// What the states and other warps' tokens, by all their sums, have to the gradients of all of
  /// this warp's tokens.
  __device__ __forceinline__ float2 gradient_of_others(int channel) const {
    const float* const products = p_.state_products + chunk_.index * own_channels(p_) + channel;
    float2 common{0.0F, 0.0F};
    if (chunk_.has_flows) common = *reinterpret_cast<const float2*>(products);
    if constexpr (kTiled) {
#pragma unroll 1
      for (int tile = 1; chunk_.has_flows && tile < p_.other_tiles; ++tile) {
        add(common, *reinterpret_cast<const float2*>(products + tile * p_.slots * p_.heads *
                                                                    own_channels(p_)));
      }
    }
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      if (warp < at_.warp) add(common, s_.writes[warp][at_.lane]);
      if (warp > at_.warp) add(common, s_.reads[warp][at_.lane]);
    }
    return common;
  }

  const GlaParams& p_;
  Shared& s_;
  const HeadChunk& chunk_;
  RunLane at_;
  unsigned valid_ = 0;  // valid_positions()
};

}  // namespace attune::cuda::gla
