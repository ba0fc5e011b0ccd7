// What the operand warps make of a chunk.
//
//   q'_i = s q_i 2^(y_i)    k'_j = k_j 2^(r - y_j)    P[i][j] = q'_i . 2^-r k'_j, j <= i
//
// q' and k' replace q and k; s is the outputs' scale. As 2^-r is a power of two, nothing but q', k'
// and P is rounded. Where a step r is so large that 2^-r or q' left the range, P is summed in fp32
// from q, k and y.
#pragma once

#include "cuda/chunks/channels/stages.cuh"
#include "cuda/chunks/mma_tile.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::channels {

inline constexpr int kOperandBarrier = 1;  // among these threads
using Operand = __nv_bfloat16;             // whatever T: its range is that of fp32

__device__ __forceinline__ void operand_sync() {
  named_barrier_sync<kOperandBarrier>(kOperandThreads);
}

/// Neighbouring channels in rows of a tile become operands: change(i, values) changes them. All are
/// loaded before the first is stored, as nothing else says that they are different places.
template <class T, int kCount, int kWidth, class Shape, class Row, class Change>
__device__ __forceinline__ void change_channels(const Tile<Shape>& tile, int channel, Row&& row,
                                                Change&& change) {
  std::uint32_t pairs[kCount][kWidth / 2];
#pragma unroll
  for (int i = 0; i < kCount; ++i) load_shared_words(pairs[i], tile.at(row(i), channel * 2));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float values[kWidth];
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      const float2 both = unpack<T>(pairs[i][pair]);
      values[2 * pair] = both.x;
      values[2 * pair + 1] = both.y;
    }
    change(i, values);
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      pairs[i][pair] = pack<Operand>(values[2 * pair], values[2 * pair + 1]);
    }
    store_shared_words(tile.at(row(i), channel * 2), pairs[i]);
  }
}

template <int kCount>
__device__ __forceinline__ void multiply(Channels<kCount>& product, const Channels<kCount>& by) {
#pragma unroll
  for (int c = 0; c < kCount; ++c) product.of[c] *= by.of[c];
}

/// q' and k' of a thread's channels and tokens: k' from the last on. The outputs' scale goes into
/// q'.
template <class T, class Shape, bool kWithQueries>
__device__ __forceinline__ void decay_keys(const Stage<Shape>& stage,
                                           const GateSums<Shape::kKeys, Shape::kChunk>& sums,
                                           float scale) {
  using Sums = GateSums<Shape::kKeys, Shape::kChunk>;
  constexpr int kWidth = Sums::kWidth;
  constexpr int kAtOnce = 8;
  static_assert(Sums::kRunTokens % kAtOnce == 0);
  const auto decays = sums.decays();
  typename Sums::Few decay = decays.to_end;
#pragma unroll
  for (int last = Sums::kRunTokens - 1; last > 0; last -= kAtOnce) {
    change_channels<T, kAtOnce, kWidth>(
        stage.k, Sums::channel(), [&](int i) { return Sums::row(last - i); },
        [&](int i, float(&keys)[kWidth]) {
#pragma unroll
          for (int c = 0; c < kWidth; ++c) keys[c] *= decay.of[c];
          multiply(decay, decays.of[last - i]);
        });
  }
  if constexpr (kWithQueries) {
    decay = decays.from_reference;
#pragma unroll
    for (float& factor : decay.of) factor *= scale;
#pragma unroll
    for (int first = 0; first < Sums::kRunTokens; first += kAtOnce) {
      change_channels<T, kAtOnce, kWidth>(
          stage.q, Sums::channel(), [&](int i) { return Sums::row(first + i); },
          [&](int i, float(&queries)[kWidth]) {
            multiply(decay, decays.of[first + i]);
#pragma unroll
            for (int c = 0; c < kWidth; ++c) queries[c] *= decay.of[c];
          });
    }
  }
}

/// A tile of another type as operands.
template <class T, class Shape>
__device__ __forceinline__ void convert_tile(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kPairs = Shape::kKeys / 2;
  constexpr int kRows = kAtOnce * kOperandThreads / 32;  // of 32 pairs
  static_assert(Shape::kChunk == kRows || 2 * Shape::kChunk == kRows);
  constexpr int kColumns = kRows / Shape::kChunk * 32;
#pragma unroll 1
  for (int column = operand_thread() % kColumns; column < kPairs; column += kColumns) {
    const auto row = [&](int i) { return operand_thread() / kColumns * kAtOnce + i; };
    change_channels<T, kAtOnce, 2>(tile, 2 * column, row, [](int, float(&)[2]) {});
  }
}

/// One 16 x 16 block of P.
template <class Shape>
__device__ __forceinline__ void score_block(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths, int row_block,
                                            int column_block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float products[2][2][4] = {};  // of even and odd steps, so that more of them are under way
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_matrices(a, stage.q.down(16 * row_block, 16 * step));
    load_matrices(b, stage.k.across(16 * column_block, 16 * step));
    if constexpr (Shape::kKeysDecay) {
      const std::uint32_t low = growths[8 * step + lane % 4];
      const std::uint32_t high = growths[8 * step + 4 + lane % 4];
      b[0] = multiply_bf16_pairs(b[0], low);
      b[1] = multiply_bf16_pairs(b[1], high);
      b[2] = multiply_bf16_pairs(b[2], low);
      b[3] = multiply_bf16_pairs(b[3], high);
    }
    mma_m16n8k16<Operand>(products[step % 2][0], a, b[0], b[1]);
    mma_m16n8k16<Operand>(products[step % 2][1], a, b[2], b[3]);
  }
  store_scores<Operand>(scores, products, row_block, column_block,
                        [](int, int, float product) { return product; });
}

/// Zeros in one 16 x 16 block of P.
template <class Shape>
__device__ __forceinline__ void clear_block(const Tile<Shape>& scores, int row_block,
                                            int column_block) {
  constexpr std::uint32_t kZeros[2] = {};
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int column = 0; column < 16; column += 8) {
    const int first = 16 * column_block + column + lane % 2 * 4;
    store_shared_words(scores.at(16 * row_block + lane / 2, first * 2), kZeros);
  }
}

/// P, a block a warp. Of those above the diagonal, mma.sync reads none and wgmma all.
template <class Shape>
__device__ __forceinline__ void score_chunk(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths) {
  const int warp = operand_thread() / kWarpSize;
  constexpr int kBlocks = Shape::kChunk == 32 ? 3 : 1;
  if (warp < kBlocks) {
    score_block<Shape>(stage, scores, growths, warp > 0, warp > 1);
  } else if constexpr (Shape::kProducts == Products::kWgmma) {
    clear_block<Shape>(scores, 0, 1);
  }
}

/// P from q, k and y as they are: a row a warp, lanes have channels.
template <class T, class Shape>
__device__ __forceinline__ void score_exactly(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                              float scale) {
  constexpr int kPerLane = Shape::kKeys / (2 * kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto sums = [&](int row, int m) {
    return *reinterpret_cast<const float2*>(&stage.key_sums(row)[2 * lane + 2 * kWarpSize * m]);
  };
  const auto pair = [&](const Tile<Shape>& tile, int row, int m) {
    return unpack<T>(load_shared_4(tile.at(row, 4 * lane + 4 * kWarpSize * m)));
  };
#pragma unroll 1
  for (int row = operand_thread() / kWarpSize; row < Shape::kChunk; row += kOperandWarps) {
    float2 query[kPerLane];
    float2 y[kPerLane];
#pragma unroll
    for (int m = 0; m < kPerLane; ++m) {
      query[m] = pair(stage.q, row, m);
      y[m] = sums(row, m);
    }
    float own = 0.0F;  // of column `lane`
#pragma unroll 1
    for (int column = 0; column <= row; ++column) {
      float product = 0.0F;
#pragma unroll
      for (int m = 0; m < kPerLane; ++m) {
        const float2 key = pair(stage.k, column, m);
        const float2 before = sums(column, m);
        product += query[m].x * key.x * exp2_approx(y[m].x - before.x) +
                   query[m].y * key.y * exp2_approx(y[m].y - before.y);
      }
      product = scale * warp_sum(product);
      if (lane == column) own = product;
    }
    const float next = __shfl_down_sync(kFullWarp, own, 1);
    if (lane % 2 == 0 && lane < Shape::kChunk) {
      store_shared_4(scores.at(row, lane * 2), pack<Operand>(own, next));
    }
  }
}

/// One of the threads of the operand warps.
template <class T, class Shape, bool kWithOutputs>
class OperandWarps {
 public:
  __device__ explicit OperandWarps(const Params& p)
      : key_gates_are_f32_(p.gk.view.is_f32),
        value_gates_are_f32_(p.gv.view.is_f32),
        scale_(p.scale) {}

  /// Makes a chunk's operands; `common_gates` are its own.
  __device__ __forceinline__ void make(const Stage<Shape>& stage, ChunkOperands<Shape>& to,
                                       Shared<Shape>& shared, const float* common_gates) {
    const bool strong =
        named_barrier_any<kOperandBarrier>(kOperandThreads, sum(stage, shared, common_gates));
    set_reference(stage, to, shared);
    const Tile<Shape> scores(shared_address(to.scores));
    if (operand_thread() == 0) to.strong = strong;
    if constexpr (kWithOutputs && Shape::kKeysDecay) {
      if (strong) score_strongly(stage, scores);
    }
    make_tiles(stage);
    if constexpr (kWithOutputs) {
      operand_sync();  // q' and k' are there
      if (!Shape::kKeysDecay || !strong) score_chunk<Shape>(stage, scores, to.key_growths);
    }
  }

  /// Lets the state warps know what the state lacks.
  __device__ __forceinline__ void put_rests(Shared<Shape>& shared) const {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine() && key_sums_.run() == 0) {
        *reinterpret_cast<typename KeySums::Few*>(&shared.key_rests[KeySums::channel()]) =
            key_sums_.rest();
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine() && value_sums_.run() == 0) {
        *reinterpret_cast<typename ValueSums::Few*>(&shared.value_rests[ValueSums::channel()]) =
            value_sums_.rest();
      }
    }
  }

  /// The same at the end, and later launches what the state decayed.
  __device__ __forceinline__ void finish(Shared<Shape>& shared, const Params& p,
                                         const Walk& walk) const {
    put_rests(shared);
    if constexpr (!kWithOutputs) store_decays(p, walk);
  }

 private:
  using KeySums = GateSums<Shape::kKeys, Shape::kChunk>;
  using ValueSums = GateSums<Shape::kValues, Shape::kChunk>;

  /// Whether a step may be too large.
  __device__ __forceinline__ bool sum(const Stage<Shape>& stage, Shared<Shape>& shared,
                                      const float* common) {
    bool strong = false;
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        if (key_gates_are_f32_) {
          key_sums_.template read<float>(stage.key_gates, Shape::kKeyGateRowBytes, common);
        } else {
          key_sums_.template read<T>(stage.key_gates, Shape::kKeyGateRowBytes, common);
        }
        strong |= key_sums_.publish(shared.key_totals);
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if constexpr (Shape::kKeysDecay) common = nullptr;  // it is with the keys
      if (ValueSums::is_mine()) {
        if (value_gates_are_f32_) {
          value_sums_.template read<float>(stage.value_gates, Shape::kValueGateRowBytes, common);
        } else {
          value_sums_.template read<T>(stage.value_gates, Shape::kValueGateRowBytes, common);
        }
        strong |= value_sums_.publish(shared.value_totals);
      }
    }
    return strong;
  }

  __device__ __forceinline__ void set_reference(const Stage<Shape>& stage, ChunkOperands<Shape>& to,
                                                const Shared<Shape>& shared) {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        key_sums_.set_reference(shared.key_totals);
        if (key_sums_.run() == 0) store_key_step(to);
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine()) {
        value_sums_.set_reference(shared.value_totals);
        value_sums_.for_each_sum([&](int i, const typename ValueSums::Few& y) {
          float* const sums = stage.value_sums(ValueSums::row(i));
          *reinterpret_cast<typename ValueSums::Few*>(&sums[ValueSums::channel()]) = y;
        });
        if (value_sums_.run() == 0) {
          *reinterpret_cast<typename ValueSums::Few*>(&to.value_steps[ValueSums::channel()]) =
              value_sums_.step();
        }
      }
    }
  }

  __device__ __forceinline__ void store_key_step(ChunkOperands<Shape>& to) const {
    constexpr int kWidth = KeySums::kWidth;
    typename KeySums::Few decays;
    std::uint32_t growths[kWidth / 2];
#pragma unroll
    for (int c = 0; c < kWidth; ++c) decays.of[c] = exp2_approx(key_sums_.step().of[c]);
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      growths[pair] = pack<Operand>(exp2_approx(-key_sums_.step().of[2 * pair]),
                                    exp2_approx(-key_sums_.step().of[2 * pair + 1]));
    }
    *reinterpret_cast<typename KeySums::Few*>(&to.key_decays[KeySums::channel()]) = decays;
    store_shared_words(shared_address(&to.key_growths[KeySums::channel() / 2]), growths);
  }

  __device__ __forceinline__ void score_strongly(const Stage<Shape>& stage,
                                                 const Tile<Shape>& scores) const {
    if (KeySums::is_mine()) {
      key_sums_.for_each_sum([&](int i, const typename KeySums::Few& y) {
        float* const sums = stage.key_sums(KeySums::row(i));
        *reinterpret_cast<typename KeySums::Few*>(&sums[KeySums::channel()]) = y;
      });
    }
    operand_sync();  // the sums are there
    score_exactly<T, Shape>(stage, scores, scale_);
    operand_sync();  // q and k were read
  }

  __device__ __forceinline__ void make_tiles(const Stage<Shape>& stage) const {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) decay_keys<T, Shape, kWithOutputs>(stage, key_sums_, scale_);
    } else if constexpr (!std::is_same_v<T, Operand>) {
      convert_tile<T, Shape>(stage.k);
      if constexpr (kWithOutputs) convert_tile<T, Shape>(stage.q);
    }
  }

  /// Of the whole subsegment.
  __device__ __forceinline__ void store_decays(const Params& p, const Walk& walk) const {
    const std::int64_t saved = sum_index(p, walk, walk.segment);
    if constexpr (Shape::kKeysDecay) {
      if (walk.value_tile == 0 && KeySums::is_mine() && key_sums_.run() == 0) {
        float* const to = p.segment_decays + saved * Shape::kKeys;
        *reinterpret_cast<typename KeySums::Few*>(to + KeySums::channel()) = key_sums_.decay();
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine() && value_sums_.run() == 0) {
        float* const to =
            p.segment_value_decays + (saved * p.value_tiles + walk.value_tile) * Shape::kValues;
        *reinterpret_cast<typename ValueSums::Few*>(to + ValueSums::channel()) =
            value_sums_.decay();
      }
    }
  }

  const bool key_gates_are_f32_, value_gates_are_f32_;
  const float scale_;
  KeySums key_sums_;
  ValueSums value_sums_;
};

}  // namespace attune::cuda::channels
