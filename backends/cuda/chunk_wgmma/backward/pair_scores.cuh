// Both scores of each pair of tokens in a chunk, and what they add to the gradient of the decay.
//
// With w_ij as in dkdv_walk.cuh, token j along rows and i along columns:
//
//   P^T_ji = w_ij (q_i . k_j)     rounded into shared memory
//   A^T_ji = w_ij (do_i . v_j)    rounded into registers, as an operand
//   M_ij   = P_ij A_ij / w_ij     summed along rows and along columns (gate_gradients.cuh)
//
// Where two blocks share the registers of a multiprocessor, half of the columns are made at once.
#pragma once

#include "cuda/chunk_wgmma/backward/dkdv_shared.cuh"

namespace attune::cuda::chunk_wgmma::backward {

#if ATTUNE_SM90A_CODE

/// Those of one chunk, by a warpgroup.
template <class T, class Tile, bool kGateGradients>
class PairScores {
 public:
  using Shared = DkdvShared<Tile>;

  __device__ PairScores(const BackwardParams& p, Shared& shared, const FragmentLane& at)
      : p_(p), s_(shared), at_(at) {}

  /// A^T, once P^T is handed over, of the chunk visited n-th. Waits for its tokens and decays.
  __device__ __forceinline__ void make(std::uint32_t (&read_scores)[4][4], const ChunkGates& gates,
                                       int n) {
    const int stage = s_.stage_ring.stage(n);
    RowDecays row0, row1;
    s_.stage_ring.wait_full(n);
#pragma unroll
    for (int first = 0; first < kChunkTokens; first += kColumns) {
      float kq[kColumns / 2];
      float vo[kColumns / 2];
      wgmma_fence();
      multiply_rows_from<Tile::kKeys>(kq, shared_address(&s_.k[stage]),
                                      shared_address(&s_.q[stage]), first);
      multiply_rows_from<Tile::kValues>(vo, shared_address(&s_.v[stage]),
                                        shared_address(&s_.d_o[stage]), first);
      wgmma_commit();
      if (first == 0) {
        s_.gate_ring.wait_full(n);
        row0 = RowDecays(gates, at_.row());
        row1 = RowDecays(gates, at_.row() + 8);
        s_.score_ring.wait_empty(n);
      }
      wgmma_wait<0>();
      wgmma_pin(kq);
      wgmma_pin(vo);
      const std::uint32_t panel = shared_address(&s_.scores[s_.score_ring.stage(n)]);
      float inward[kChunkTokens / 4];
#pragma unroll
      for (int step = 0; step < kColumns / 16; ++step) {  // 16 columns
#pragma unroll
        for (int block = 2 * step; block < 2 * step + 2; ++block) {
          weigh(&kq[4 * block], &vo[4 * block], gates, row0, row1, first + 8 * block + at_.column(),
                &inward[2 * block]);
        }
        store_block<T>(panel, &kq[8 * step], at_, first / 16 + step);
        to_operand<T>(read_scores[first / 16 + step], &vo[8 * step]);
      }
      if constexpr (kGateGradients) begin_sums(inward, first);
    }
    async_proxy_fence();
    s_.score_ring.publish_chunk(n);
    // Frees registers for what comes next.
    if constexpr (kGateGradients && !kHalves) fold_lanes<8>(inward_, at_.lane());
  }

  /// Hands over what the chunk visited n-th adds to the gradient of the decay.
  __device__ __forceinline__ void put_sums(int n) {
    s_.flow_ring.wait_empty(n);
    auto& flows = s_.flows[s_.flow_ring.stage(n)];
    put_row_sums(flows.outward, outward_[0], outward_[1]);
    if constexpr (!kHalves) {
      fold_lanes<4>(inward_, at_.lane());
      fold_lanes<2>(inward_, at_.lane());
    }
    *reinterpret_cast<float2*>(&flows.inward[at_.warp()][2 * at_.lane()]) = {inward_[0],
                                                                             inward_[1]};
    s_.flow_ring.publish_chunk(n);
  }

 private:
  static constexpr bool kHalves = kFewRegisters<Tile>;
  static constexpr int kColumns = kHalves ? kChunkTokens / 2 : kChunkTokens;  // at once

  /// d = a b^T of two tiles of tokens, of b's from `first` on as many as d has columns.
  template <int kD, int kCount>
  __device__ __forceinline__ static void multiply_rows_from(float (&d)[kCount], std::uint32_t a,
                                                            std::uint32_t b, int first) {
    if constexpr (kHalves) {
      constexpr std::uint32_t kRowBytes = 2 * kPanelChannels;
      b += static_cast<std::uint32_t>(first) * kRowBytes;
#pragma unroll
      for (int i = 0; i < kD / kDepth; ++i) {
        wgmma_n32<T, Major::kK, Major::kK>(d, along_channels(a, i), along_channels(b, i), i > 0);
      }
    } else {
      multiply_rows<T, kD>(d, a, b);
    }
  }

  /// Weighs a block's scores of two rows and two columns in place.
  __device__ __forceinline__ void weigh(float* kq, float* vo, const ChunkGates& gates,
                                        const RowDecays& row0, const RowDecays& row1, int column,
                                        float* inward) {
    const float2 b = *reinterpret_cast<const float2*>(&gates.log2_sum[column]);
    weigh_score(kq[0], vo[0], row0, b.x, column, inward[0], outward_[0], true);
    weigh_score(kq[1], vo[1], row0, b.y, column + 1, inward[1], outward_[0], true);
    weigh_score(kq[2], vo[2], row1, b.x, column, inward[0], outward_[1], false);
    weigh_score(kq[3], vo[3], row1, b.y, column + 1, inward[1], outward_[1], false);
  }
  __device__ __forceinline__ void weigh_score(float& kq, float& vo, const RowDecays& row, float b,
                                              int column, float& inward, float& outward,
                                              bool first) const {
    const float decay = p_.scale * row.to(b, column);
    kq *= decay;
    if constexpr (kGateGradients) {
      inward = first ? kq * vo : fmaf(kq, vo, inward);
      outward = fmaf(kq, vo, outward);
    }
    vo *= decay;
  }

  /// Keeps this thread's sums of columns from `first` on. Half of all are summed over the lanes at
  /// once: as by sum_columns(), lane l has columns 2 l and 2 l + 1.
  __device__ __forceinline__ void begin_sums(float (&inward)[kChunkTokens / 4], int first) {
    if constexpr (kHalves) {
      constexpr int kLanes = kWarpSize / 2;  // that have a half
      fold_lanes<4>(inward, at_.lane());
      fold_lanes<2>(inward, at_.lane());
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = inward[i] + __shfl_xor_sync(kFullWarp, inward[i], kLanes);
        if (at_.lane() / kLanes == first / kColumns) inward_[i] = sum;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunkTokens / 4; ++i) inward_[i] = inward[i];
    }
  }
  __device__ __forceinline__ void put_row_sums(float* to, float sum0, float sum1) const {
    sum0 = sum_row(sum0);
    sum1 = sum_row(sum1);
    if (at_.lane() % 4 != 0) return;
    to[at_.row()] = sum0;
    to[at_.row() + 8] = sum1;
  }

  const BackwardParams& p_;
  Shared& s_;
  const FragmentLane at_;
  float inward_[kChunkTokens / 4];  // M over its rows j, by column i
  float outward_[2] = {};           // over its columns i, by row j
};

#endif

}  // namespace attune::cuda::chunk_wgmma::backward
