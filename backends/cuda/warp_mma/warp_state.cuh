// What a warp does with a chunk: its state over one chunk after the other.
//
//   O   = A (Q' S + M(Q' K'^T) V')         a, b: sums of the log decays of keys and of values
//   S  <- S + K'^T V'                      Q' = exp(a) Q, K' = exp(-a) K, V' = exp(-b) V, A = exp(b)
//
// S is due to be decayed by exp(a) and exp(b) of the chunk's last token when the next one begins
// (decays.cuh). Decays that all channels share count as values', but where keys alone have gates.
//
// Source: Yang et al., "Gated Linear Attention Transformers", arXiv:2312.06635, section 4.
#pragma once

#include "cuda/warp_mma/chunks.cuh"

namespace attune::cuda::warp_mma {

template <class Shape>
class WarpState {
 public:
  using T = typename Shape::T;
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr bool kSplit = kIsSplit<T>;
  using Block = Operand<kSplit>;
  using Blocks = Block[kBlocks];
  using Keys = SideDecays<Shape::kKeyLogs>;
  using Values = SideDecays<Shape::kValueLogs>;

  __device__ explicit WarpState(const Lane& lane) : lane_(lane) { state.clear(); }

  State<Shape::kWidth> state;

  /// Over a chunk, from whose first token on so many exist. Before the state goes over a piece of it,
  /// visit(piece, k, v) is called with K' and the words of V' transposed.
  template <class Visit>
  __device__ __forceinline__ void advance(const Chunk<Shape>& chunk, int left, Visit&& visit) {
    keys_.set([&](int i, int n) { return chunk.gk.at(i, n) + chunk.g[i]; });
    values_.set([&](int i, int n) {
      if constexpr (!Shape::kValueGates) return chunk.g[i];
      return chunk.gv.at(i, n) + (Shape::kKeyGates ? 0.0F : chunk.g[i]);
    });
    Piece piece;
    do {
      keys_.sum_behind(piece.first, lane_);
      values_.sum_behind(piece.first, lane_);
      piece.end = end_of_piece();
      decay_keys([&](int n) { return keys_.due(n, piece.first, lane_); });
      decay_values([&](int n) { return values_.due(n, piece.first, lane_); });
      Blocks k, v;
      make_operands(chunk, piece, k, v);
      visit(piece, k, v);
      add(k, v);
      keys_.end(piece, lane_);
      values_.end(piece, lane_);
      piece.first = piece.end;
    } while (piece.first < min(left, kChunk));
  }

  /// Decays the state by what is due.
  __device__ __forceinline__ void decay_due() {
    decay_keys([&](int n) { return keys_.due(n); });
    decay_values([&](int n) { return values_.due(n); });
    keys_.clear_due();
    values_.clear_due();
  }

  /// Outputs of the lane's tokens, right for those that the piece has.
  __device__ __forceinline__ void make_outputs(float (&outputs)[2][Shape::kLaneChannels],
                                               const Chunk<Shape>& chunk, const Blocks& k,
                                               const Blocks& v, float scale) const {
    Blocks q;
    Sums scores = {};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      q[block] = block_of<!Shape::kKeyGates>(
          chunk.q, block, [&](int i, int n) { return exp2_approx(keys_.sum(i, n)); });
      multiply<kSplit>(scores, q[block], k[block].swapped());
    }
    keep_causal(scores);
    const Block left = operand_of<kSplit>(scores);
#pragma unroll
    for (int value = 0; value < kBlocks; ++value) {
      Sums sums = {};
#pragma unroll
      for (int key = 0; key < kBlocks; ++key) {
        multiply<kSplit>(sums, q[key], state.template operand<kSplit>(key, value));
      }
      multiply<kSplit>(sums, left, v[value]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int n = 4 * value + 2 * half + e % 2;
          float factor = scale;
          if constexpr (Values::kLogs > 0) factor *= exp2_approx(values_.sum(e / 2, n));
          outputs[e / 2][n] = sums[half][e] * factor;
        }
      }
    }
  }

  /// The logs that the state has been decayed by, summed up.
  float key_logs[Keys::kLogs + 1] = {};
  float value_logs[Values::kLogs + 1] = {};

 private:
  /// Where sums leave their range.
  __device__ __forceinline__ int end_of_piece() const {
    unsigned beyond[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool within = keys_.are_within(i, kMostLog<T>) && values_.are_within(i, kMostLog<T>);
      beyond[i] = __ballot_sync(kFullWarp, !within);
    }
    if ((beyond[0] | beyond[1]) == 0) return kChunk;
    const auto first = [&](int i) {
      return beyond[i] == 0 ? kChunk : 2 * ((__ffs(static_cast<int>(beyond[i])) - 1) / 4) + i;
    };
    return min(first(0), first(1));
  }

  template <class Log>
  __device__ __forceinline__ void decay_keys(Log&& log) {
    if constexpr (Keys::kLogs > 0) {
      state.scale_keys(factors_of<T, Keys::kLogs>(summing(log, key_logs)).of);
    }
  }
  template <class Log>
  __device__ __forceinline__ void decay_values(Log&& log) {
    if constexpr (Values::kLogs > 0) {
      state.scale_values(factors_of<T, Values::kLogs>(summing(log, value_logs)).of, lane_);
    }
  }
  template <class Log>
  __device__ __forceinline__ static auto summing(Log& log, float* sums) {
    return [&log, sums](int n) {
      const float own = log(n);
      sums[n] += own;
      return own;
    };
  }

  /// Rows as an operand, each element times factor(i, n); kAsIs: as they came.
  template <bool kAsIs, class OfElement>
  __device__ __forceinline__ static Block block_of(const Rows<T, Shape::kWidth>& rows, int block,
                                                   OfElement&& factor) {
    Block to;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = 4 * block + 2 * half;
        if constexpr (kAsIs && !kSplit) {
          to.high[i + 2 * half] = rows.words[i][block][half];
        } else if constexpr (kAsIs) {
          to.set(i + 2 * half, rows.at(i, n), rows.at(i, n + 1));
        } else {
          to.set(i + 2 * half, rows.at(i, n) * factor(i, n), rows.at(i, n + 1) * factor(i, n + 1));
        }
      }
    }
    return to;
  }

  /// K' and the words of V' transposed, of tokens that a piece does not have zeros in one of them.
  __device__ __forceinline__ void make_operands(const Chunk<Shape>& chunk, const Piece& piece,
                                                Blocks& k, Blocks& v) const {
    const bool has[] = {piece.has(lane_.token(0)), piece.has(lane_.token(1))};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      k[block] = block_of<!Shape::kKeyGates>(chunk.k, block, [&](int i, int n) {
        return has[i] ? exp2_approx(-keys_.sum(i, n)) : 0.0F;
      });
      v[block] = block_of<Values::kLogs == 0>(chunk.v, block, [&](int i, int n) {
                   return has[i] ? exp2_approx(-values_.sum(i, n)) : 0.0F;
                 }).transposed_words();
    }
  }

  /// Zeros for the scores of later tokens. Columns are tokens in the order of rows.
  __device__ __forceinline__ void keep_causal(Sums& scores) const {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int row = 2 * lane_.quarter + column;
      if (row > lane_.row) scores[0][column] = scores[0][2 + column] = scores[1][2 + column] = 0.0F;
      if (row >= lane_.row) scores[1][column] = 0.0F;
    }
  }

  /// S^T += V'^T K'. Of f32 sums that run on for long are no sums of mma, which cuts them off.
  __device__ __forceinline__ void add(const Blocks& k, const Blocks& v) {
#pragma unroll
    for (int key = 0; key < kBlocks; ++key) {
      const Block keys = k[key].transposed_words();
#pragma unroll
      for (int value = 0; value < kBlocks; ++value) {
        float(*const to)[4] = state.of[value] + 2 * key;
        if constexpr (!kSplit) {
          multiply<kSplit>(to, v[value].swapped(), keys);
        } else {
          Sums sums = {};
          multiply<kSplit>(sums, v[value].swapped(), keys);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int e = 0; e < 4; ++e) to[half][e] += sums[half][e];
          }
        }
      }
    }
  }

  const Lane& lane_;
  Keys keys_;
  Values values_;
};

}  // namespace attune::cuda::warp_mma
