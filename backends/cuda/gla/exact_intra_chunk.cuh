// The same as intra_chunk.cuh, exact whatever the decays: for chunks where they are too strong for
// it.
//
// Pairs of tokens are taken by the largest power of two that separates them. Tokens are halved: 32
// and 32, 16 and 16, 8 and 8. Of a half and the one after it, with the decay counted from the
// boundary between them, both x decayed from there and y decayed to there are products of factors
// up to 1, and their pairs a product of matrices. Pairs within 8 tokens are left to fp32, channel
// by channel.
//
// That also gives the gradient of a log decay without cancellation. It is the sum over the pairs on
// whose two sides the token is:
//
//   dgate_t = E <S, D> + sum_{i >= t} x_i . (scale E_i S u_i) + sum_{j < t} y_j . (L_j D z_j)
//             + over halvings: where t is in the later half, what its tokens i >= t read from the
//               earlier one; else what the tokens j < t of the earlier half give to the later one
//             + within 8 tokens, where all is fp32: sum_{s < t} (y_s . dy_s - x_s . dx_s)
//
// by channel. Each sum is of terms that a rounding of 16 bits changes by little of themselves.
#pragma once

#include "cuda/gla/exact_halves.cuh"
#include "cuda/gla/flow_arrivals.cuh"

namespace attune::cuda::gla {

template <class T, bool kTiled>
class ExactIntraChunk : public ExactHalves<T, kTiled> {
  using Base = ExactHalves<T, kTiled>;
  using Base::at_, Base::chunk_, Base::p_, Base::s_, Base::valid_;
  using Base::forget, Base::load_run, Base::load_flows, Base::fold_eight, Base::folded_index;
  using Base::load_half_scores, Base::exchange_halves, Base::to_boundaries;
  using Base::put_halves, Base::half_blocks, Base::half_block, Base::add_half_scores;
  using Base::write_pair, Base::put_gate_gradients, Base::common_gradient;
  using typename Base::HalfBlock;

 public:
  using Shared = ExactIntraChunkShared;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kStep = kPanelChannels;  // channels taken at once
  static constexpr int kMost = kMostChannels;
  static constexpr bool kBeginsAll = false;

  __device__ ExactIntraChunk(const GlaParams& p, Shared& shared, TileLoads&) : Base(p, shared) {
    for (int i = static_cast<int>(threadIdx.x); i < kDiagonalScores; i += kBlockThreads) {
      (&s_.a_diagonal[0][0][0])[i] = 0.0F;
    }
  }

  // ---- scores of the other side

  /// Waits for loads under way. Goes before all else.
  template <bool = true>
  __device__ void begin() {
    copy_async_commit();
    copy_async_wait<0>();
    async_proxy_fence();
    __syncthreads();  // all rows are there
  }

  /// Waits for the chunk's flows, which are loaded where they are taken.
  __device__ void begin_flows() const {
    if (p_.flow_arrivals == nullptr) return;  // what goes ahead has waited for all
    wait_for_flows(p_, chunk_);
    __syncthreads();  // they are there
  }

  /// P, rounded where it goes into products, in fp32 within 8 tokens.
  template <class Other>
  __device__ void make_p(const Other& other) {
    other.make_scores([&](int row, int column, float low, float high) {
      put_pair(row, column, low, high);
      if (row / kRun != column / kRun) return;
      s_.p_diagonal[row / kRun][column % kRun][row % kRun] = low;
      s_.p_diagonal[row / kRun][column % kRun + 1][row % kRun] = high;
    });
  }
  __device__ TokenTile<kPanelChannels>& p() { return s_.p; }

  __device__ void load_diagonal_scores() {
    for (int i = static_cast<int>(threadIdx.x); i < kDiagonalScores; i += kBlockThreads) {
      (&s_.p_diagonal[0][0][0])[i] = p_.diagonal_scores[chunk_.index * kDiagonalScores + i];
    }
  }
  __device__ void store_diagonal_scores() const {
    for (int i = static_cast<int>(threadIdx.x); i < kDiagonalScores; i += kBlockThreads) {
      p_.diagonal_scores[chunk_.index * kDiagonalScores + i] =
          p_.score_scale * (&s_.a_diagonal[0][0][0])[i];
    }
  }

  // ---- 64 channels of the gated side

  __device__ void take_channels(int first) {
    at_.forget();
    const int channel = first + at_.channel();
    Run run;
    halve_channels(run, channel);
    add_half_scores(first == 0);
    exchange_halves();
    forget(run);
    float2 earlier[kRun];
    take_diagonal_writes<true>(earlier, run);
    forget(run);
    __syncthreads();  // what halves give each other is there
    finish_writes(earlier, run, channel);
    forget(run);
    float2 later[kRun];
    take_diagonal_reads(later, run);
    at_.forget();
    run.forget_x();
    finish_reads(later, earlier, run, channel);
    __syncthreads();  // all warps' sums are there
    at_.forget();
    put_gate_gradients(later, earlier, common_gradient(channel), run.resets, channel);
  }

  /// Only the scores that 64 channels add to A.
  __device__ void take_scores(int first) {
    at_.forget();
    Run run;
    halve_channels(run, first + at_.channel());
    add_half_scores(first == 0);
    forget(run);
    float2 unused[kRun];
    take_diagonal_writes<false>(unused, run);
    __syncthreads();  // the halves are free
  }

  /// A in the place of P, rounded; after all channels.
  __device__ const TokenTile<kPanelChannels>& make_a() {
    const int blocks = half_blocks();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= blocks) continue;
      const HalfBlock block = half_block(i);
      float sums[2][4];
      load_half_scores(sums, i);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = block.row * kBlock + at_.lane / 4 + e % 2 * 8;
        const int column = block.column * kBlock + e / 2 * 8 + at_.lane % 4 * 2;
        const float* const pair = &sums[e / 2][e % 2 * 2];
        put_pair(row, column, score_of_a(block, row, column, pair[0]),
                 score_of_a(block, row, column + 1, pair[1]));
      }
    }
    return s_.p;
  }
  __device__ unsigned char* staged() { return s_.staged[0].bytes[0]; }

 private:
  static constexpr int kDiagonalScores = kBlockWarps * kRun * kRun;  // scores within 8 tokens

  __device__ __forceinline__ void halve_channels(Run& run, int channel) {
    valid_ = valid_positions(chunk_, at_, channel < p_.own);
    load_run(run, channel);
    s_.decays[at_.warp][at_.lane] = run.over();
    __syncthreads();  // all warps' decays, and P, are there
    put_halves(run);
    __syncthreads();  // all halves are there
    forget(run);
  }

  __device__ __forceinline__ void put_pair(int row, int column, float low, float high) {
    *reinterpret_cast<std::uint32_t*>(s_.p.bytes[0] + tile_byte(row, column)) = pack<T>(low, high);
  }
  /// Within 8 tokens it is kept apart.
  __device__ __forceinline__ float score_of_a(const HalfBlock& block, int row, int column,
                                              float sum) const {
    if (row < column) return 0.0F;
    const bool diagonal = block.level == 0 && row / kRun == column / kRun;
    return (diagonal ? s_.a_diagonal[row / kRun][column % kRun][row % kRun] : sum) * p_.score_scale;
  }

  // The pairs within this warp's eight tokens: what is written, with A, and what is read.

  /// Or only A.
  template <bool kOutputs>
  __device__ __forceinline__ void take_diagonal_writes(float2 (&dy)[kRun], Run& run) {
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      forget(run);
      const float2 y = unpack<T>(run.y[j]);
      float2 decay{1.0F, 1.0F};
      float a[16] = {};
      dy[j] = {0.0F, 0.0F};
#pragma unroll
      for (int i = j; i < kRun; ++i) {
        if (i > j) decay = times(decay, run.decay[i]);
        const float2 x = times(decay, unpack<T>(run.x[i]));
        if constexpr (kOutputs) {
          const float p = s_.p_diagonal[at_.warp][j][i];
          dy[j].x = fmaf(p, x.x, dy[j].x);
          dy[j].y = fmaf(p, x.y, dy[j].y);
        }
        a[i] = x.x * y.x + x.y * y.y;
      }
      const float sum = fold_eight(a);
      if ((at_.lane & 17) == 0) s_.a_diagonal[at_.warp][j][folded_index()] += sum;
    }
  }
  __device__ __forceinline__ void take_diagonal_reads(float2 (&dx)[kRun], Run& run) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      forget(run);
      float2 decay{1.0F, 1.0F};
      dx[i] = {0.0F, 0.0F};
#pragma unroll
      for (int j = i; j >= 0; --j) {
        const float p = s_.p_diagonal[at_.warp][j][i];
        const float2 y = times(decay, unpack<T>(run.y[j]));
        dx[i].x = fmaf(p, y.x, dx[i].x);
        dx[i].y = fmaf(p, y.y, dx[i].y);
        decay = times(decay, run.decay[j]);
      }
    }
  }
  /// Completes and writes dy, and puts y dy in its place.
  __device__ __forceinline__ void finish_writes(float2 (&dy)[kRun], const Run& run, int channel) {
    std::uint32_t flow[kRun];
    load_flows(flow, p_.y_flow(0), channel);
    const RunRows<T> rows(p_.dy, chunk_, at_, channel);
    float2 crossing[kLevels] = {};
    float2 boundary[kLevels];
    to_boundaries(boundary);
    const float2 after = over_warps(s_.decays, at_.warp + 1, kBlockWarps, at_.lane);
    float2 writes{0.0F, 0.0F};
    float2 until{1.0F, 1.0F};
#pragma unroll
    for (int i = kRun - 1; i >= 0; --i) {
      at_.forget();
      const float2 y = unpack<T>(run.y[i]);
      float2 outer = times(after, times(until, unpack<T>(flow[i])));
      add(writes, times(y, outer));
      this->template add_crossings<false>(outer, crossing, boundary, until, y, i);
      until = times(until, run.decay[i]);
      add(dy[i], outer);
      if ((valid_ >> i & 1) != 0) write_pair(rows.row(i), dy[i]);
      dy[i] = times(y, dy[i]);
    }
    s_.writes[at_.warp][at_.lane] = writes;
    this->template put_crossings<false>(crossing);
  }

  /// Completes and writes dx, puts x dx of what is from before the eight tokens in its place, and
  /// takes the rest from `earlier`.
  __device__ __forceinline__ void finish_reads(float2 (&dx)[kRun], float2 (&earlier)[kRun],
                                               const Run& run, int channel) {
    std::uint32_t flow[kRun];
    load_flows(flow, p_.x_flow(0), channel);
    const RunRows<T> rows(p_.dx, chunk_, at_, channel);
    const unsigned wanted = p_.dx.data != nullptr ? valid_ : 0U;
    float2 crossing[kLevels] = {};
    float2 boundary[kLevels];
    to_boundaries(boundary);
    const float2 before = times({p_.scale, p_.scale}, over_warps(s_.decays, 0, at_.warp, at_.lane));
    float2 reads{0.0F, 0.0F};
    float2 since{1.0F, 1.0F};
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      at_.forget();
      const float2 x = unpack<T>(run.x[i]);
      since = times(since, run.decay[i]);
      float2 outer = times(before, times(since, unpack<T>(flow[i])));
      add(reads, times(x, outer));
      this->template add_crossings<true>(outer, crossing, boundary, since, x, i);
      if ((wanted >> i & 1) != 0) write_pair(rows.row(i), {dx[i].x + outer.x, dx[i].y + outer.y});
      earlier[i] = {earlier[i].x - x.x * dx[i].x, earlier[i].y - x.y * dx[i].y};
      dx[i] = times(x, outer);
    }
    s_.reads[at_.warp][at_.lane] = reads;
    this->template put_crossings<true>(crossing);
  }
};

}  // namespace attune::cuda::gla
