// What stays within a chunk: the pairs (read at i, write at j <= i) of its 64 tokens; and from that
// and the walks' flows all outputs, and the gradients of the gates.
//
// In blocks of 16 tokens, by channel, with G the sums of log decays (base 2) in the chunk and R_I
// the integer nearest to G before block I:
//
//   x'_i = 2^(G_i - R_I) x_i   y'_j = 2^(R_{J+1} - G_j) y_j   M_IJ = 2^(R_I - R_{J+1})
//   dx_i = 2^(G_i - R_I) sum_J M_IJ P_IJ y'_J
//   dy_j = 2^(R_{J+1} - G_j) sum_I M_IJ P_IJ^T x'_I
//   A_IJ = (x'_I M_IJ) y'_J^T
//
// are products of matrices. x' and y' are bf16, whose exponents are those of fp32, and M is exact.
// In the sums over blocks only m_I = 2^(R_{I+1} - R_I) is needed: what was summed is scaled by it
// between two products, and by 1 / m of its own block, where M_II is that, at the end. Blocks whose
// decay is stronger than kStrongDecay, of which 1 / m would be infinite, are for exact_pairs.cuh.
//
// Gradients of log decays are sums over the pairs on whose two sides the token is. They come
// without cancellation from the difference of two sums over tokens from t on, as both have the same
// product P x' M y', of the same rounded factors, for each pair:
//
//   dgate_t = E <S, D> + sum_{i >= t} x_i . (scale E_i S u_i) + sum_{j < t} y_j . (L_j D z_j)
//             + sum_{s >= t} (x'_s . sum_J M P y'_J - y'_s . sum_I M P^T x'_I)
#pragma once

#include "cuda/gla_backward/pairs_base.cuh"

namespace attune::cuda::gla_backward {

/// Decays from and to what is around a warp's eight tokens.
struct Around {
  float2 before;     // from before the chunk, with the scale
  float2 after;      // to after it
  float2 reference;  // from 2^R before the block
  float2 target;     // to 2^R after it
};

struct PairsShared : PairsTiles {
  static constexpr int kBlocks = kChunkTokens / kBlock;
  static constexpr int kPitch = kPanelChannels + 8;  // rows of a fragment in banks of their own

  Tile<kPanelChannels> scaled[2];                  // x', y' of 64 channels
  alignas(16) float got[2][kChunkTokens][kPitch];  // dx / e, dy / l
  float2 logs[kBlockWarps][kWarpSize];             // over each warp's tokens
  Around around[kBlockWarps][kWarpSize];           // of this thread: not in registers meanwhile
  float over[kBlocks][kPanelChannels];             // m
  float inverse[kBlocks][kPanelChannels];
  float own_scores[kBlockWarps][kRun];         // of each token's read of its own write, in fp32
  float third[kBlockWarps / 2][4][kWarpSize];  // sums of those warps' third part of A

  __device__ unsigned char* staged() { return scaled[0].bytes[0]; }
};

template <class T, bool kParted>
class Pairs : public PairsBase<T, kParted, PairsShared> {
  using Base = PairsBase<T, kParted, PairsShared>;
  using Base::at_, Base::chunk_, Base::p_, Base::s_, Base::valid_;
  using Base::forget, Base::load_run, Base::load_flows, Base::write_pair;

 public:
  using Base::Base;
  using Shared = PairsShared;
  using Score = __nv_bfloat16;  // as P is kept

  template <class Other>
  __device__ void make_p(const Other& other) {
    other.template make_scores<Score>(at_, [](int, int, float) {});
  }

  /// 64 channels of the gated side.
  __device__ void take_channels(int panel) {
    at_.forget();
    Run run;
    Around around;
    scale_channels(run, around, panel * kPanelChannels + at_.channel());
    s_.around[at_.warp][at_.lane] = around;
    __syncthreads();  // x', y' and m are there
    if (p_.makes_scores) add_scores(panel == 0);
    exchange<kReads>();
    exchange<kWrites>();
    __syncthreads();  // what the tokens get is there
    forget(run);
    const int channel = panel * kPanelChannels + at_.channel();
    valid_ = valid_positions(chunk_, at_, channel < p_.own);
    around = s_.around[at_.warp][at_.lane];
    float2 later[kRun];
    float2 earlier[kRun];
    finish_reads(later, run, around, channel);
    forget(run);
    finish_writes(later, earlier, run, around, channel);
    __syncthreads();  // all warps' sums are there
    at_.forget();
    constexpr unsigned kNoResets = 0;  // a decay of 0 is strong
    this->put_gate_gradients(later, earlier, this->gradient_of_others(channel), kNoResets, channel);
  }

  /// Only the scores that 64 channels add to A.
  __device__ void take_scores(int panel) {
    at_.forget();
    Run run;
    Around around;
    scale_channels(run, around, panel * kPanelChannels + at_.channel());
    __syncthreads();  // x', y' and m are there
    add_scores(panel == 0);
    __syncthreads();  // x' and y' are free
  }

  /// A in the place of P, after all channels.
  template <class Element>
  __device__ void make_a() {
    put_part<Element>(part_of(0), a_[0]);
    put_part<Element>(part_of(1), a_[1]);
    if (!has_third()) return;
    float third[4];
    load_third(third);
    put_part<Element>(part_of(2), third);
  }

  // All scores are in A and P.
  __device__ void load_near_scores() {}
  __device__ void store_near_scores() const {}

 private:
  using Scaled = Score;
  enum Side : int { kReads, kWrites };
  static constexpr int kBlocks = Shared::kBlocks;

  /// Half the columns of a 16 x 16 block of A: 20 of them for eight warps.
  struct Part {
    int row;
    int column;
    int half;
  };
  __device__ __forceinline__ Part part_of(int i) const {
    const int part = at_.warp + i * kBlockWarps;
    const int block = part / 2;
    const int row = (block >= 1) + (block >= 3) + (block >= 6);
    return {row, block - row * (row + 1) / 2, part % 2};
  }
  __device__ bool has_third() const { return at_.warp < kBlockWarps / 2; }
  __device__ __forceinline__ void load_third(float (&sums)[4]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[e] = s_.third[at_.warp][e][at_.lane];
  }

  __device__ __forceinline__ void scale_channels(Run& run, Around& around, int channel) {
    valid_ = valid_positions(chunk_, at_, channel < p_.own);
    load_run(run, channel);
    s_.logs[at_.warp][at_.lane] = run.log_over;
    __syncthreads();  // all warps' decays, and P, are there
    find_around(around);
    put_scaled(run, around);
    put_own_scores(run, channel);
  }

  __device__ __forceinline__ void find_around(Around& around) {
    const int first = at_.warp & ~1;  // of the block's two warps
    float2 before_block{0.0F, 0.0F};
    float2 after_block{0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      const float2 over = s_.logs[warp][at_.lane];
      if (warp < first) add(before_block, over);
      if (warp > first + 1) add(after_block, over);
    }
    const float2 other = s_.logs[at_.warp ^ 1][at_.lane];
    float2 through = s_.logs[at_.warp][at_.lane];
    add(through, other);
    add(through, before_block);
    const float2 from{rintf(before_block.x), rintf(before_block.y)};
    const float2 to{rintf(through.x), rintf(through.y)};
    const bool is_last = at_.warp != first;
    const float2 earlier = is_last ? other : float2{0.0F, 0.0F};
    const float2 later = is_last ? float2{0.0F, 0.0F} : other;
    around.reference = {before_block.x - from.x, before_block.y - from.y};
    around.target = {to.x - through.x, to.y - through.y};
    add(around.reference, earlier);
    add(around.target, later);
    add(before_block, earlier);
    add(after_block, later);
    around.reference = exp2_of(around.reference);
    around.target = exp2_of(around.target);
    around.before = times({p_.scale, p_.scale}, exp2_of(before_block));
    around.after = exp2_of(after_block);
    if (!is_last) return;
    const int at = at_.channel();
    *reinterpret_cast<float2*>(&s_.over[first / 2][at]) = exp2_of({to.x - from.x, to.y - from.y});
    *reinterpret_cast<float2*>(&s_.inverse[first / 2][at]) =
        exp2_of({from.x - to.x, from.y - to.y});
  }

  __device__ __forceinline__ std::uint32_t& scaled_pair(Side side, int i) const {
    return *reinterpret_cast<std::uint32_t*>(positions_of(s_.scaled[side].bytes[0], at_).row(i));
  }

  __device__ __forceinline__ void put_scaled(const Run& run, const Around& around) {
    float2 decay = around.reference;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      decay = times(decay, run.decay[i]);
      const float2 x = times(decay, unpack<T>(run.x[i]));
      scaled_pair(kReads, i) = pack<Scaled>(x.x, x.y);
    }
    decay = around.target;
#pragma unroll
    for (int i = kRun - 1; i >= 0; --i) {
      const float2 y = times(decay, unpack<T>(run.y[i]));
      scaled_pair(kWrites, i) = pack<Scaled>(y.x, y.y);
      decay = times(decay, run.decay[i]);
    }
  }

  /// Where tokens are few these are all of A, and a sum that cancels is not to be of rounded terms.
  __device__ __forceinline__ void put_own_scores(const Run& run, int channel) {
    float scores[16];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float2 xy = times(unpack<T>(run.x[i]), unpack<T>(run.y[i]));
      scores[i] = xy.x + xy.y;
    }
    this->add_over_channels(s_.own_scores, scores, channel);
  }

  // ---- matrix products

  /// Adds to A, or begins it.
  __device__ __forceinline__ void add_scores(bool first) {
    add_to(part_of(0), a_[0]);
    add_to(part_of(1), a_[1]);
    if (!has_third()) return;
    float third[4] = {};
    if (!first) load_third(third);
    add_to(part_of(2), third);
#pragma unroll
    for (int e = 0; e < 4; ++e) s_.third[at_.warp][e][at_.lane] = third[e];
  }
  __device__ __forceinline__ void add_to(const Part& part, float (&sums)[4]) const {
    const std::uint32_t x = shared_address(&s_.scaled[kReads]);
    const std::uint32_t y = shared_address(&s_.scaled[kWrites]);
    const auto row =
        static_cast<std::uint32_t>(part.column * kBlock + part.half * 8 + at_.lane % 8);
#pragma unroll
    for (int k = 0; k < kPanelChannels; k += 2 * kBlock) {
      std::uint32_t right[4];
      load_matrices(right, y + swizzled(row, static_cast<std::uint32_t>(k + at_.lane / 8 * 8) * 2));
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t left[4];
        load_left<false>(left, x, at_.lane, part.row * kBlock, k + step * kBlock);
        scale_between(left, part, k + step * kBlock);
        mma_m16n8k16<Scaled>(sums, left, right[2 * step], right[2 * step + 1]);
      }
    }
  }
  template <class Element>
  __device__ __forceinline__ void put_part(const Part& part, const float (&sums)[4]) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = part.row * kBlock + at_.lane / 4 + e * 8;
      const int column = part.column * kBlock + part.half * 8 + at_.lane % 4 * 2;
      const float own = s_.own_scores[row / kRun][row % kRun];
      const float low = column < row ? sums[2 * e] : column == row ? own : 0.0F;
      const float high = column + 1 < row ? sums[2 * e + 1] : column + 1 == row ? own : 0.0F;
      *reinterpret_cast<std::uint32_t*>(s_.p.bytes[0] + tile_byte(row, column)) =
          pack<Element>(low * p_.score_scale, high * p_.score_scale);
    }
  }
  /// By M, where it is not 1.
  __device__ __forceinline__ void scale_between(std::uint32_t (&left)[4], const Part& part,
                                                int first) const {
    const int between = part.row - part.column;
    if (between == 1) return;
    const float* const factors = between == 0 ? s_.inverse[part.row] : s_.over[part.column + 1];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int channel = first + i * 8 + at_.lane % 4 * 2;
      float2 m = *reinterpret_cast<const float2*>(&factors[channel]);
      if (between == 3) m = times(m, *reinterpret_cast<const float2*>(&s_.over[2][channel]));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float2 scaled = times(m, unpack<Scaled>(left[2 * i + e]));
        left[2 * i + e] = pack<Scaled>(scaled.x, scaled.y);
      }
    }
  }

  /// Puts what this warp's block of tokens gets in 32 channels: those of reads from writes of its
  /// own and earlier blocks, those of writes from reads of its own and later ones.
  template <Side kSide>
  __device__ __forceinline__ void exchange() {
    constexpr int kColumns = kPanelChannels / 2;
    const int own = at_.warp / 2;
    const int column = at_.warp % 2 * kColumns;
    const std::uint32_t p = shared_address(&s_.p);
    const std::uint32_t from = shared_address(&s_.scaled[kSide == kReads ? kWrites : kReads]);
    float sums[kColumns / kBlock][2][4] = {};
    const int count = kSide == kReads ? own + 1 : kBlocks - own;
    for (int n = 0; n < count; ++n) {
      const int other = kSide == kReads ? n : kBlocks - 1 - n;
      if (n > 0) scale_columns(sums, s_.over[other], column);
      std::uint32_t left[4];
      load_left<kSide == kWrites>(left, p, at_.lane, own * kBlock, other * kBlock);
#pragma unroll
      for (int i = 0; i < kColumns / kBlock; ++i) {
        std::uint32_t right[4];
        load_right(right, from, at_.lane, other * kBlock, column + i * kBlock);
        multiply_block<Scaled>(sums[i], left, right);
      }
    }
    scale_columns(sums, s_.inverse[own], column);
#pragma unroll
    for (int i = 0; i < kColumns / kBlock; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int position = own * kBlock + at_.lane / 4 + e % 2 * 8;
        const int channel = column + i * kBlock + e / 2 * 8 + at_.lane % 4 * 2;
        const float* const pair = &sums[i][e / 2][e % 2 * 2];
        *reinterpret_cast<float2*>(&s_.got[kSide][position][channel]) = {pair[0], pair[1]};
      }
    }
  }
  template <int kCount>
  __device__ __forceinline__ void scale_columns(float (&sums)[kCount][2][4], const float* factors,
                                                int column) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float2 f = *reinterpret_cast<const float2*>(
            &factors[column + i * kBlock + n * 8 + at_.lane % 4 * 2]);
        sums[i][n][0] *= f.x;
        sums[i][n][1] *= f.y;
        sums[i][n][2] *= f.x;
        sums[i][n][3] *= f.y;
      }
    }
  }

  // ---- outputs of the side with gates

  __device__ __forceinline__ float2 got(Side side, int i) const {
    return *reinterpret_cast<const float2*>(&s_.got[side][at_.position(i)][at_.channel()]);
  }

  /// Writes dx, and leaves the terms of the gates' gradients that it has.
  __device__ __forceinline__ void finish_reads(float2 (&later)[kRun], const Run& run,
                                               const Around& around, int channel) {
    std::uint32_t flow[kRun];
    load_flows(flow, p_.x_flow, channel);
    const RunRows<T> rows(p_.dx, chunk_, at_, channel);
    const unsigned wanted = p_.dx.data != nullptr ? valid_ : 0U;
    float2 since{1.0F, 1.0F};
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i % 4 == 0) at_.forget();
      since = times(since, run.decay[i]);
      const float2 far = times(times(around.before, since), unpack<T>(flow[i]));
      const float2 near = got(kReads, i);
      later[i] = times(unpack<Scaled>(scaled_pair(kReads, i)), near);
      add(later[i], times(unpack<T>(run.x[i]), far));
      float2 dx = times(times(around.reference, since), near);
      add(dx, far);
      if ((wanted >> i & 1) != 0) write_pair(rows.row(i), dx);
    }
  }

  /// Writes dy, and adds the terms that it has; and this warp's sums of them.
  __device__ __forceinline__ void finish_writes(float2 (&later)[kRun], float2 (&earlier)[kRun],
                                                const Run& run, const Around& around, int channel) {
    std::uint32_t flow[kRun];
    load_flows(flow, p_.y_flow, channel);
    const RunRows<T> rows(p_.dy, chunk_, at_, channel);
    float2 reads{0.0F, 0.0F};
    float2 writes{0.0F, 0.0F};
    float2 until{1.0F, 1.0F};
#pragma unroll
    for (int i = kRun - 1; i >= 0; --i) {
      if (i % 4 == 3) at_.forget();
      const float2 far = times(times(around.after, until), unpack<T>(flow[i]));
      const float2 near = got(kWrites, i);
      const float2 given = times(unpack<Scaled>(scaled_pair(kWrites, i)), near);
      later[i] = {later[i].x - given.x, later[i].y - given.y};
      earlier[i] = times(unpack<T>(run.y[i]), far);
      float2 dy = times(times(around.target, until), near);
      add(dy, far);
      if ((valid_ >> i & 1) != 0) write_pair(rows.row(i), dy);
      until = times(until, run.decay[i]);
      add(reads, later[i]);
      add(writes, earlier[i]);
    }
    s_.reads[at_.warp][at_.lane] = reads;
    s_.writes[at_.warp][at_.lane] = writes;
  }

  float a_[2][4] = {};
};

}  // namespace attune::cuda::gla_backward
