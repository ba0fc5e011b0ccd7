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

#include "cuda/chunks/channels/operand_tiles.cuh"
#include "cuda/chunks/channels/scores.cuh"
#include "cuda/tiles/exchange.cuh"

namespace attune::cuda::channels {

inline constexpr int kOperandBarrier = 1;  // among these threads

__device__ __forceinline__ void operand_sync() {
  named_barrier_sync<kOperandBarrier>(kOperandThreads);
}

/// One of the threads of the operand warps. `kStoresDecays`: of the whole segment, at the end.
template <class T, class Shape, bool kWithOutputs, bool kStoresDecays>
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

  /// Lets the state warps know whether the start of a segment but the first reaches channels of this warp
  /// in the next chunk to be made, and in all before it.
  __device__ __forceinline__ void put_reached(int (&reached)[kOperandWarps], const Params& p,
                                              const Walk& walk) {
    const bool own = KeySums::is_mine() && key_sums_.is_reached(p.copied_keys);
    const bool any = __any_sync(kFullWarp, own) != 0;
    is_reached_ = is_reached_ && any && walk.segment > 0;
    kept_ += is_reached_ ? 1 : 0;
    if (operand_thread() % kWarpSize == 0) reached[operand_thread() / kWarpSize] = is_reached_;
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
    if constexpr (kStoresDecays) store_decays(p, walk);
    if constexpr (kStoresDecays && kWithOutputs) {
      if (operand_thread() % kWarpSize == 0) shared.kept[operand_thread() / kWarpSize] = kept_;
    }
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

  /// Of the whole subsegment. Blocks that wait for each other each store what theirs read.
  __device__ __forceinline__ void store_decays(const Params& p, const Walk& walk) const {
    const std::int64_t saved = sum_index(p, walk, walk.segment);
    if constexpr (Shape::kKeysDecay) {
      const bool is_wanted = walk.value_tile == 0 || kWithOutputs;
      if (is_wanted && KeySums::is_mine() && key_sums_.run() == 0) {
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
  bool is_reached_ = true;
  int kept_ = 0;
};

}  // namespace attune::cuda::channels
