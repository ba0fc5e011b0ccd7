// What the operand warps make of a chunk.
//
//   q'_i = s q_i 2^(y_i)    k'_j = k_j 2^(r - y_j)    P[i][j] = q'_i . 2^-r k'_j, j <= i
//
// q' and k' replace q and k; s is the outputs' scale. As 2^-r is a power of two, nothing but q', k'
// and P is rounded. Where a step r is so large that 2^-r or q' left the range, P is summed in fp32
// from q, k and y.
//
// Operands of f16, for tensors of f16, have a narrow range:
//   * q' has s 2^-c for s, at most 1/2, and 2^(c - r) takes the place of 2^-r. As R = floor(G), no
//     q' and k' is larger than its q and k then.
//   * Where r is beyond -12, k' of the first tokens or q' of the last would vanish beside what P
//     takes of them. q' and k' are rounded to bf16 there, P is made, and they are rounded to f16.
//   * Where a score is beyond f16, or 2^(c - r) k' is, the products are made of bf16 once more, and
//     a score that is beyond f16 even so counts as its largest number.
#pragma once

#include "cuda/chunks/channels/stages.cuh"
#include "cuda/chunks/mma_tile.cuh"
#include "cuda/tiles/exchange.cuh"
#include "cuda/tiles/f16_pairs.cuh"

namespace attune::cuda::channels {

inline constexpr int kOperandBarrier = 1;  // among these threads

__device__ __forceinline__ void operand_sync() {
  named_barrier_sync<kOperandBarrier>(kOperandThreads);
}

/// Neighbouring channels in rows of a tile become operands: change(i, values) changes them. All are
/// loaded before the first is stored, as nothing else says that they are different places.
template <class T, class Operand, int kCount, int kWidth, class Shape, class Row, class Change>
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
template <class T, class Operand, class Shape, bool kWithQueries, class Sums>
__device__ __forceinline__ void decay_keys(const Stage<Shape>& stage, const Sums& sums,
                                           float scale) {
  constexpr int kWidth = Sums::kWidth;
  constexpr int kAtOnce = 8;
  static_assert(Sums::kRunTokens % kAtOnce == 0);
  const auto decays = sums.decays();
  typename Sums::Few decay = decays.to_end;
#pragma unroll
  for (int last = Sums::kRunTokens - 1; last > 0; last -= kAtOnce) {
    change_channels<T, Operand, kAtOnce, kWidth>(
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
      change_channels<T, Operand, kAtOnce, kWidth>(
          stage.q, Sums::channel(), [&](int i) { return Sums::row(first + i); },
          [&](int i, float(&queries)[kWidth]) {
            multiply(decay, decays.of[first + i]);
#pragma unroll
            for (int c = 0; c < kWidth; ++c) queries[c] *= decay.of[c];
          });
    }
  }
}

inline constexpr float kMostF16 = 65504.0F;

/// What f16 can hold of x: its largest number for what is larger, but infinities as they are.
__device__ __forceinline__ float within_f16(float x) {
  constexpr float kMostF32 = 3.40282347e38F;
  return fabsf(x) <= kMostF32 ? fminf(fmaxf(x, -kMostF16), kMostF16) : x;
}

/// A tile of another type as operands.
template <class T, class Operand, class Shape>
__device__ __forceinline__ void convert_tile(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kPairs = Shape::kKeys / 2;
  constexpr int kRows = kAtOnce * kOperandThreads / 32;  // of 32 pairs
  static_assert(Shape::kChunk == kRows || 2 * Shape::kChunk == kRows);
  constexpr int kColumns = kRows / Shape::kChunk * 32;
#pragma unroll 1
  for (int column = operand_thread() % kColumns; column < kPairs; column += kColumns) {
    const auto row = [&](int i) { return operand_thread() / kColumns * kAtOnce + i; };
    change_channels<T, Operand, kAtOnce, 2>(tile, 2 * column, row, [](int, float(&)[2]) {});
  }
}

/// A thread's channels and tokens of q' or k', which are bf16, as f16.
template <class Sums, class Shape>
__device__ __forceinline__ void narrow_keys(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kWords = Sums::kWidth / 2;
#pragma unroll
  for (int first = 0; first < Sums::kRunTokens; first += kAtOnce) {
    std::uint32_t words[kAtOnce][kWords];
    const auto at = [&](int i) { return tile.at(Sums::row(first + i), Sums::channel() * 2); };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) load_shared_words(words[i], at(i));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (std::uint32_t& word : words[i]) word = narrowed(word);
      store_shared_words(at(i), words[i]);
    }
  }
}

/// Four 8 x 8 matrices of a tile as an operand of P, with factors of the channels of each half.
template <class Operand>
__device__ __forceinline__ void grow_keys(std::uint32_t (&b)[4], std::uint32_t low,
                                          std::uint32_t high) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t factors = i % 2 == 0 ? low : high;
    if constexpr (std::is_same_v<Operand, __half>) {
      b[i] = multiply_f16_pairs(b[i], factors);
    } else {
      b[i] = multiply_bf16_pairs(b[i], factors);
    }
  }
}

/// Pairs of f16 as pairs of bf16.
template <int kCount>
__device__ __forceinline__ void widen(std::uint32_t (&pairs)[kCount]) {
#pragma unroll
  for (std::uint32_t& pair : pairs) {
    const float2 both = unpack<__half>(pair);
    pair = pack<__nv_bfloat16>(both.x, both.y);
  }
}

/// Products of 16 x 16, those of even and of odd steps apart, so that more of them are under way.
using ScoreProducts = float[2][2][4];

/// Of one block of P. Tiles and growths are of type Tiles, what is multiplied of type Operand.
template <class Tiles, class Operand, class Shape>
__device__ __forceinline__ void multiply_block(ScoreProducts& products, const Stage<Shape>& stage,
                                               const std::uint32_t* growths, int row_block,
                                               int column_block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_matrices(a, stage.q.down(16 * row_block, 16 * step));
    load_matrices(b, stage.k.across(16 * column_block, 16 * step));
    if constexpr (Shape::kKeysDecay) {
      std::uint32_t growth[2] = {growths[8 * step + lane % 4], growths[8 * step + 4 + lane % 4]};
      if constexpr (!std::is_same_v<Tiles, Operand>) {
        widen(a);
        widen(b);
        widen(growth);
      }
      grow_keys<Operand>(b, growth[0], growth[1]);
    }
    mma_m16n8k16<Operand>(products[step % 2][0], a, b[0], b[1]);
    mma_m16n8k16<Operand>(products[step % 2][1], a, b[2], b[3]);
  }
}

/// One 16 x 16 block of P, of which the state warps take type Score.
template <class Operand, class Score, class Shape>
__device__ __forceinline__ void score_block(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths, int row_block,
                                            int column_block) {
  ScoreProducts products = {};
  multiply_block<Operand, Operand, Shape>(products, stage, growths, row_block, column_block);
  const auto store = [&](auto&& score_of) {
    store_scores<Score>(scores, products, row_block, column_block, score_of);
  };
  if constexpr (std::is_same_v<Score, __nv_bfloat16>) {
    store([](int, int, float product) { return product; });
  } else if constexpr (std::is_same_v<Operand, __nv_bfloat16>) {
    store([](int, int, float product) { return within_f16(product); });
  } else {
    bool beyond = false;
    store([&](int, int, float product) {
      beyond |= !(fabsf(product) <= kMostF16);
      return product;
    });
    if (!__any_sync(kFullWarp, beyond)) return;
    for (auto& of_step : products) {
      for (auto& half : of_step) {
        for (float& product : half) product = 0.0F;
      }
    }
    multiply_block<Operand, __nv_bfloat16, Shape>(products, stage, growths, row_block,
                                                  column_block);
    store([](int, int, float product) { return within_f16(product); });
  }
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
template <class Operand, class Score, class Shape>
__device__ __forceinline__ void score_chunk(const Stage<Shape>& stage, const Tile<Shape>& scores,
                                            const std::uint32_t* growths) {
  const int warp = operand_thread() / kWarpSize;
  constexpr int kBlocks = Shape::kChunk == 32 ? 3 : 1;
  if (warp < kBlocks) {
    score_block<Operand, Score, Shape>(stage, scores, growths, warp > 0, warp > 1);
  } else if constexpr (Shape::kProducts == Products::kWgmma) {
    clear_block<Shape>(scores, 0, 1);
  }
}

template <class Score>
__device__ __forceinline__ std::uint32_t pack_score(float low, float high) {
  if constexpr (std::is_same_v<Score, __half>) {
    return pack<Score>(within_f16(low), within_f16(high));
  } else {
    return pack<Score>(low, high);
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
      store_shared_4(scores.at(row, lane * 2), pack_score<Operand<T, Shape>>(own, next));
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
        scale_(p.scale),
        query_scale_(kNarrow<T, Shape> ? p.scale / p.query_growth : p.scale),
        query_growth_(p.query_growth) {}

  /// Makes a chunk's operands; `common_gates` are its own.
  __device__ __forceinline__ void make(const Stage<Shape>& stage, ChunkOperands<Shape>& to,
                                       Shared<Shape>& shared, const float* common_gates) {
    const bool beyond =
        named_barrier_any<kOperandBarrier>(kOperandThreads, sum(stage, shared, common_gates));
    if constexpr (kNarrow<T, Shape>) {
      if (!beyond) return make_as<__half>(stage, to, shared, false);
      const bool is_strong = KeySums::is_mine() && key_sums_.is_strong();
      const bool strong = named_barrier_any<kOperandBarrier>(kOperandThreads, is_strong);
      make_as<__nv_bfloat16>(stage, to, shared, strong);
      operand_sync();  // q' and k' were read
      if (!KeySums::is_mine()) return;
      narrow_keys<KeySums, Shape>(stage.k);
      if constexpr (kWithOutputs) narrow_keys<KeySums, Shape>(stage.q);
    } else {
      make_as<__nv_bfloat16>(stage, to, shared, beyond);
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
  using KeySums = GateSums<Shape::kKeys, Shape::kChunk, kNarrow<T, Shape>>;
  using ValueSums = GateSums<Shape::kValues, Shape::kChunk, false>;

  /// Operands of type O.
  template <class O>
  __device__ __forceinline__ void make_as(const Stage<Shape>& stage, ChunkOperands<Shape>& to,
                                          Shared<Shape>& shared, bool strong) {
    set_reference<O>(stage, to, shared);
    const Tile<Shape> scores(shared_address(to.scores));
    if (operand_thread() == 0) to.strong = strong;
    if constexpr (kWithOutputs && Shape::kKeysDecay) {
      if (strong) score_strongly(stage, scores);
    }
    make_tiles<O>(stage);
    if constexpr (kWithOutputs) {
      operand_sync();  // q' and k' are there
      if (!Shape::kKeysDecay || !strong) {
        score_chunk<O, Operand<T, Shape>, Shape>(stage, scores, to.key_growths);
      }
    }
  }

  /// Whether a step may be too large for operands of the usual type.
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
        key_sums_.publish(shared.key_totals);
        if constexpr (kNarrow<T, Shape>) {
          strong = key_sums_.is_beyond_f16();
        } else {
          strong = key_sums_.is_strong();
        }
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
        value_sums_.publish(shared.value_totals);
        strong |= value_sums_.is_strong();
      }
    }
    return strong;
  }

  template <class O>
  __device__ __forceinline__ void set_reference(const Stage<Shape>& stage, ChunkOperands<Shape>& to,
                                                const Shared<Shape>& shared) {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        key_sums_.set_reference(shared.key_totals);
        if (key_sums_.run() == 0) store_key_step<O>(to);
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

  template <class O>
  __device__ __forceinline__ void store_key_step(ChunkOperands<Shape>& to) const {
    constexpr int kWidth = KeySums::kWidth;
    typename KeySums::Few decays;
    std::uint32_t growths[kWidth / 2];
#pragma unroll
    for (int c = 0; c < kWidth; ++c) decays.of[c] = exp2_approx(key_sums_.step().of[c]);
#pragma unroll
    for (int pair = 0; pair < kWidth / 2; ++pair) {
      growths[pair] =
          pack<O>(growth(key_sums_.step().of[2 * pair]), growth(key_sums_.step().of[2 * pair + 1]));
    }
    *reinterpret_cast<typename KeySums::Few*>(&to.key_decays[KeySums::channel()]) = decays;
    store_shared_words(shared_address(&to.key_growths[KeySums::channel() / 2]), growths);
  }

  /// 2^(c - r).
  __device__ __forceinline__ float growth(float step) const {
    const float growth = exp2_approx(-step);
    return kNarrow<T, Shape> ? query_growth_ * growth : growth;
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

  template <class O>
  __device__ __forceinline__ void make_tiles(const Stage<Shape>& stage) const {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        decay_keys<T, O, Shape, kWithOutputs>(stage, key_sums_, query_scale_);
      }
    } else if constexpr (!std::is_same_v<T, O>) {
      convert_tile<T, O, Shape>(stage.k);
      if constexpr (kWithOutputs) convert_tile<T, O, Shape>(stage.q);
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
  const float query_scale_, query_growth_;  // s 2^-c and 2^c
  KeySums key_sums_;
  ValueSums value_sums_;
};

}  // namespace attune::cuda::channels
