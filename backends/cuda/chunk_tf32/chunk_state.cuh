// The state warps of a walk: each keeps 16 columns of the block's tile in registers, takes them
// through staged chunks and writes what is read.
//
// S^T lies over a warp as the accumulators of 16 x 8 products do, columns along its 16, eight rows
// a product, in the order of a left operand's registers. As such it is the left side of S^T read^T:
// element (g, 2t) of an accumulator is element (g, t) of an operand and (g, 2t + 1) is (g, t + 4),
// so along the sum rows come in the order 0, 2, 4, 6, 1, 3, 5, 7, and pairs of rows that follow
// each other are one lane's of the other side. So do tokens.
#pragma once

#include <type_traits>

#include "cuda/chunk_tf32/state_tile.cuh"
#include "cuda/tiles/tf32.cuh"
#include "cuda/walks/decay.cuh"

namespace attune::cuda::chunk_tf32 {

template <class T, int kRows, int kParts>
class ChunkState : public StateTile<T, kRows, kParts> {
  using Base = StateTile<T, kRows, kParts>;
  using Base::block_, Base::columns_, Base::p_, Base::reads_, Base::shared_, Base::tile_;
  using Base::column, Base::output_at, Base::plane_at, Base::sum_of_rows;
  using Base::group_, Base::pair_, Base::state_, Base::warp_, Base::kTiles;
  using typename Base::At;

 public:
  using Base::Base;

  /// Takes the state through a chunk of one of the buffers.
  __device__ __forceinline__ void advance(std::int64_t chunk) {
    const float* const buffer = shared_ + chunk % 2 * columns_.end;
    if (buffer[At::kFlags] != 0.0F) {
      advance_by_token(chunk, buffer);
    } else {
      advance_at_once(chunk, buffer);
    }
  }

 private:
  static constexpr int kStateBarrier = 2;
  using Left = LeftOperand<kParts>;
  using Right = RightOperand<kParts>;

  /// Elements [token][row] and [token][row + 1] of an operand in shared memory.
  __device__ __forceinline__ static Right pair_at(const float* high, const float* low, int at) {
    Right right;
    const float2 x = *reinterpret_cast<const float2*>(high + at);
    right.high[0] = x.x, right.high[1] = x.y;
    if constexpr (kParts > 1) {
      const float2 y = *reinterpret_cast<const float2*>(low + at);
      right.low[0] = y.x, right.low[1] = y.y;
    }
    return right;
  }

  __device__ __forceinline__ void advance_at_once(std::int64_t chunk, const float* buffer) {
    Accumulator<kParts> sums[2];  // columns x tokens
    float* const scores =
        shared_ + 2 * columns_.end + chunk % 2 * tile_.score_parts() * kScoreFloats;
    if (reads_) {
      make_scores(buffer, scores);
      read_state(buffer, sums);
      named_barrier_sync<kStateBarrier>(tile_.state_threads());  // the chunk's scores are there
    }
    Left values[2];
    load_values(buffer, values);
    if (reads_) {
      add_chunk(scores, values, sums);
      store_outputs(chunk, buffer, sums);
    }
    write_state(buffer, values);
  }

  /// P, 16 tokens x 8 a warp and a share of the rows; with one warp, both halves of it.
  __device__ __forceinline__ void make_scores(const float* buffer, float* scores) const {
    const int parts = tile_.score_parts();
    const bool alone = tile_.column_warps == 1;
    const float* const read = buffer + At::kRead;
    const float* const read_low = buffer + At::kReadLow;
    const float* const write = buffer + At::kWrite;
    const float* const write_low = buffer + At::kWriteLow;
    for (int half = alone ? 0 : warp_ % 2; half < 2; half += alone ? 1 : 2) {
      Accumulator<kParts> sums[1];
#pragma unroll 2
      for (int n = warp_ / 2; n < kTiles; n += parts) {
        Left left[1];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = (group_ + 8 * e) * At::kReadStride + 8 * n + pair_;
          const Right x = pair_at(read, read_low, at);
          left[0].high[e] = x.high[0], left[0].high[e + 2] = x.high[1];
          if constexpr (kParts > 1) left[0].low[e] = x.low[0], left[0].low[e + 2] = x.low[1];
        }
        const int at = (8 * half + group_) * At::kWriteStride + 8 * n + pair_;
        const Right right[1] = {pair_at(write, write_low, at)};
        multiply<kParts>(sums, left, right);
      }
      float* const to = scores + warp_ / 2 * kScoreFloats + 8 * half + pair_;
      *reinterpret_cast<float2*>(to + group_ * kScoreStride) = {sums[0][0], sums[0][1]};
      *reinterpret_cast<float2*>(to + (group_ + 8) * kScoreStride) = {sums[0][2], sums[0][3]};
    }
  }

  __device__ __forceinline__ void read_state(const float* buffer,
                                             Accumulator<kParts> (&sums)[2]) const {
    const float* const read = buffer + At::kRead + group_ * At::kReadStride + pair_;
    const float* const low = buffer + At::kReadLow + group_ * At::kReadStride + pair_;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      Left left[1];
#pragma unroll
      for (int e = 0; e < 4; ++e) left[0].set(e, state_[n][e]);
      const Right right[2] = {pair_at(read, low, 8 * n),
                              pair_at(read, low, 8 * At::kReadStride + 8 * n)};
      multiply<kParts>(sums, left, right);
    }
  }

  /// The warp's columns of the chunk's values, eight tokens an operand.
  __device__ __forceinline__ void load_values(const float* buffer, Left (&values)[2]) const {
    const float* const high = buffer + columns_.value;
    const float* const low = buffer + columns_.value_low;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = (8 * step + pair_ + e / 2) * columns_.stride + column(e % 2);
        values[step].high[e] = high[at];
        if constexpr (kParts > 1) values[step].low[e] = low[at];
      }
    }
  }

  __device__ __forceinline__ void add_chunk(const float* scores, const Left (&values)[2],
                                            Accumulator<kParts> (&sums)[2]) const {
    // No token reads what a later one writes: of eight tokens and those eight before them, the
    // later ones' scores are zeros.
    const Left early[1] = {values[0]};
    const Right right[2] = {scores_at(scores, group_, pair_), scores_at(scores, 8 + group_, pair_)};
    multiply<kParts>(sums, early, right);
    const Left late[1] = {values[1]};
    const Right last[1] = {scores_at(scores, 8 + group_, 8 + pair_)};
    Accumulator<kParts> second[1] = {sums[1]};
    multiply<kParts>(second, late, last);
    sums[1] = second[0];
  }
  /// P[token, written] and the next, 0 where `written` is a later token.
  __device__ __forceinline__ Right scores_at(const float* scores, int token, int written) const {
    float2 sum{};
    for (int part = 0; part < tile_.score_parts(); ++part) {
      const float2 x = *reinterpret_cast<const float2*>(scores + part * kScoreFloats +
                                                        token * kScoreStride + written);
      sum = {sum.x + x.x, sum.y + x.y};
    }
    Right right;
    right.set(0, written <= token ? sum.x : 0.0F);
    right.set(1, written + 1 <= token ? sum.y : 0.0F);
    return right;
  }

  __device__ __forceinline__ void write_state(const float* buffer, const Left (&values)[2]) {
    const float* const write = buffer + At::kWrite + pair_ * At::kWriteStride + group_;
    const float* const low = buffer + At::kWriteLow + pair_ * At::kWriteStride + group_;
    const auto* const totals = reinterpret_cast<const float4*>(buffer + At::kRowTotal);
    constexpr int kTogether = 4;
#pragma unroll
    for (int first = 0; first < kTiles; first += kTogether) {
      float added[kTogether][4] = {};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const Left left[1] = {values[step]};
        Right right[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int at = (8 * step + e) * At::kWriteStride + 8 * (first + i);
            right[i].high[e] = write[at];
            if constexpr (kParts > 1) right[i].low[e] = low[at];
          }
        }
        multiply_into<kParts>(added, left[0], right);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int n = first + i;
        const float4 total = totals[(8 * n + pair_) / 2];  // of two rows, high and low
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float sum = added[i][e % 2 * 2 + e / 2];  // from an accumulator's order
          state_[n][e] =
              decayed(state_[n][e] + sum, e < 2 ? total.x : total.z, e < 2 ? total.y : total.w);
        }
      }
    }
    if (!p_.column_gate.view.given()) return;
    const auto* const column_totals = reinterpret_cast<const float2*>(buffer + columns_.total);
    const float2 total[2] = {column_totals[column(0)], column_totals[column(1)]};
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        state_[n][e] = decayed(state_[n][e], total[e % 2].x, total[e % 2].y);
      }
    }
  }

  /// Loads after it are not moved before it.
  __device__ __forceinline__ static void keep_order() { asm volatile("" ::: "memory"); }

  __device__ __forceinline__ static float decayed(float x, float high, float low) {
    if constexpr (kParts > 1) return fmaf(x, high, x * low);
    return x * high;
  }

  __device__ __forceinline__ void store_outputs(std::int64_t chunk, const float* buffer,
                                                const Accumulator<kParts> (&sums)[2]) const {
    float outputs[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) outputs[half][e] = sums[half][e];
    }
    if (p_.column_gate.view.given()) {
      const float* const factors = buffer + columns_.factor + pair_ * columns_.stride;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          outputs[half][e] *= factors[(8 * half + e % 2) * columns_.stride + column(e / 2)];
        }
      }
    }
    const std::int64_t first = block_.first_step(chunk);
    const int tokens =
        static_cast<int>(min(std::int64_t{block_.steps(chunk)}, block_.span.length - first));
    const bool is_full = tokens == kChunk && block_.columns == tile_.columns();
    const auto store = [&](auto* to, std::int64_t stride) {
      using Out = std::remove_pointer_t<decltype(to)>;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int token = 8 * half + e % 2;
          if (is_full || (token + pair_ < tokens && column(e / 2) < block_.columns)) {
            to[token * stride + e / 2 * 8] = from_float<Out>(outputs[half][e]);
          }
        }
      }
    };
    if (p_.out.data != nullptr) {
      store(output_at(first + pair_), p_.descending ? -p_.out.token : p_.out.token);
    }
    if (p_.planes != nullptr) {
      const std::int64_t stride = p_.heads * p_.columns;
      store(plane_at(first + pair_), p_.descending ? -stride : stride);
    }
  }

  /// A chunk whose decays are too strong to be divided by: a token after the other, as they are.
  __device__ __forceinline__ void advance_by_token(std::int64_t chunk, const float* buffer) {
    const bool gated = p_.column_gate.view.given();
    const std::int64_t first = block_.first_step(chunk);
    const int steps = block_.steps(chunk);
#pragma unroll 1
    for (int token = 0; token < steps; ++token) {
      const float* const read = buffer + At::kRead + token * At::kReadStride + pair_;
      const float* const low = buffer + At::kReadLow + token * At::kReadStride + pair_;
      const float* const write = buffer + At::kWrite + token * At::kWriteStride + pair_;
      const float* const decay = buffer + At::kWriteLow + token * At::kWriteStride + pair_;
      const float* const of_columns = buffer + token * columns_.stride;
      float value[2];
      DecayFactor of_column[2];
      float sums[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        value[half] = of_columns[columns_.value + column(half)];
        if (!gated) continue;
        of_column[half].high = of_columns[columns_.factor + column(half)];
        if constexpr (kParts > 1)
          of_column[half].low = of_columns[columns_.value_low + column(half)];
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        keep_order();  // or all loads would come first, and take registers
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 8 * n + e / 2;
          const int half = e % 2;
          float& x = state_[n][e];
          float y = x * decay[row];
          if constexpr (kParts > 1) y = fmaf(x, low[row], y);
          y = decayed(y, of_column[half].high, of_column[half].low);
          x = fmaf(write[row], value[half], y);
          sums[half] = fmaf(read[row], x, sums[half]);
        }
      }
#pragma unroll
      for (float& sum : sums) sum = sum_of_rows(sum);
      if (!reads_ || pair_ != 0 || !block_.has_token(first + token)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (column(half) >= block_.columns) continue;
        if (p_.out.data != nullptr) output_at(first + token)[8 * half] = from_float<T>(sums[half]);
        if (p_.planes != nullptr) plane_at(first + token)[8 * half] = sums[half];
      }
    }
  }
};

}  // namespace attune::cuda::chunk_tf32
