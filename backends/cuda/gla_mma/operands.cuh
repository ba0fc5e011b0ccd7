// The half of a block that makes operands.
//
//   q'_i = q_i 2^(y_i)    k'_j = k_j 2^(r - y_j)    P[i][j] = q'_i . 2^-r k'_j, j <= i
//
// q' and k' replace q and k. As 2^-r is a power of two, nothing but q', k' and P is rounded. Where
// a step r is so large that 2^-r or q' left the range, P is summed in fp32 from q, k and y.
#pragma once

#include "cuda/device/reduce.cuh"
#include "slots.cuh"

namespace attune::cuda::gla_mma {

inline constexpr int kOperandBarrier = 1;  // among these threads
using Operand = __nv_bfloat16;             // whatever T: its range is that of fp32

__device__ __forceinline__ void operand_sync() {
  named_barrier_sync<kOperandBarrier>(kRoleThreads);
}

/// Pairs of neighbouring channels in rows of a tile become pairs of operands: change(i, pair). All
/// are loaded before the first is stored, as nothing else says that they are different places.
template <class T, int kCount, class Shape, class Row, class Change>
__device__ __forceinline__ void change_pairs(const Tile<Shape>& tile, int channel, Row&& row,
                                             Change&& change) {
  std::uint32_t pairs[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) pairs[i] = load_shared_4(tile.at(row(i), channel * 2));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 changed = change(i, unpack<T>(pairs[i]));
    store_shared_4(tile.at(row(i), channel * 2), pack<Operand>(changed.x, changed.y));
  }
}

/// q' and k' of a thread's channels and tokens.
template <class T, class Shape, bool kWithQueries>
__device__ __forceinline__ void decay_keys(const Slot<Shape>& slot,
                                           const GateSums<Shape::kKeys, Shape::kChunk>& sums) {
  using Sums = GateSums<Shape::kKeys, Shape::kChunk>;
  constexpr int kAtOnce = 8;
  static_assert(Sums::kRun % kAtOnce == 0);
  const float2 step = sums.step();
#pragma unroll
  for (int first = 0; first < Sums::kRun; first += kAtOnce) {
    const auto row = [&](int i) { return Sums::row(first + i); };
    change_pairs<T, kAtOnce>(slot.k, Sums::channel(), row, [&](int i, float2 key) {
      const float2 y = sums.at(first + i);
      return float2{key.x * exp2_approx(step.x - y.x), key.y * exp2_approx(step.y - y.y)};
    });
    if constexpr (kWithQueries) {
      change_pairs<T, kAtOnce>(slot.q, Sums::channel(), row, [&](int i, float2 query) {
        const float2 y = sums.at(first + i);
        return float2{query.x * exp2_approx(y.x), query.y * exp2_approx(y.y)};
      });
    }
  }
}

/// A tile of another type as operands.
template <class T, class Shape>
__device__ __forceinline__ void convert_tile(const Tile<Shape>& tile) {
  constexpr int kAtOnce = 8;
  constexpr int kPairs = Shape::kKeys / 2;
  constexpr int kRows = kAtOnce * kRoleThreads / 32;  // of 32 pairs
  static_assert(Shape::kChunk == kRows || 2 * Shape::kChunk == kRows);
  constexpr int kColumns = kRows / Shape::kChunk * 32;
#pragma unroll 1
  for (int column = operand_thread() % kColumns; column < kPairs; column += kColumns) {
    const auto row = [&](int i) { return operand_thread() / kColumns * kAtOnce + i; };
    change_pairs<T, kAtOnce>(tile, 2 * column, row, [](int, float2 pair) { return pair; });
  }
}

/// One 16 x 16 block of P.
template <class Shape>
__device__ __forceinline__ void weigh_block(const Slot<Shape>& slot, const Tile<Shape>& weights,
                                            const std::uint32_t* growths, int row_block,
                                            int column_block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float products[2][2][4] = {};  // of even and odd steps, so that more of them are under way
#pragma unroll
  for (int step = 0; step < Shape::kKeys / 16; ++step) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    load_matrices(a, slot.q.down(16 * row_block, 16 * step));
    load_matrices(b, slot.k.across(16 * column_block, 16 * step));
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
#pragma unroll
  for (int half = 0; half < 4; ++half) {  // 8 rows of 8 columns
    const int row = 16 * row_block + lane / 4 + half / 2 * 8;
    const int column = 16 * column_block + lane % 4 * 2 + half % 2 * 8;
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = half / 2 * 2 + e;
      const float product = products[0][half % 2][at] + products[1][half % 2][at];
      pair[e] = column + e <= row ? product : 0.0F;
    }
    store_shared_4(weights.at(row, column * 2), pack<Operand>(pair[0], pair[1]));
  }
}

/// P, a block a warp; nothing reads those above the diagonal.
template <class Shape>
__device__ __forceinline__ void weigh(const Slot<Shape>& slot, const Tile<Shape>& weights,
                                      const std::uint32_t* growths) {
  const int warp = operand_thread() / kWarpSize;
  if (warp == 0) weigh_block<Shape>(slot, weights, growths, 0, 0);
  if constexpr (Shape::kChunk == 32) {
    if (warp == 1) weigh_block<Shape>(slot, weights, growths, 1, 0);
    if (warp == 2) weigh_block<Shape>(slot, weights, growths, 1, 1);
  }
}

/// P from q, k and y as they are: a row a warp, lanes have channels.
template <class T, class Shape>
__device__ __forceinline__ void weigh_exactly(const Slot<Shape>& slot, const Tile<Shape>& weights) {
  constexpr int kPerLane = Shape::kKeys / (2 * kWarpSize);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto sums = [&](int row, int m) {
    return *reinterpret_cast<const float2*>(&slot.key_sums(row)[2 * lane + 2 * kWarpSize * m]);
  };
  const auto pair = [&](const Tile<Shape>& tile, int row, int m) {
    return unpack<T>(load_shared_4(tile.at(row, 4 * lane + 4 * kWarpSize * m)));
  };
#pragma unroll 1
  for (int row = operand_thread() / kWarpSize; row < Shape::kChunk; row += kRoleWarps) {
    float2 query[kPerLane];
    float2 y[kPerLane];
#pragma unroll
    for (int m = 0; m < kPerLane; ++m) {
      query[m] = pair(slot.q, row, m);
      y[m] = sums(row, m);
    }
    float own = 0.0F;  // of column `lane`
#pragma unroll 1
    for (int column = 0; column <= row; ++column) {
      float product = 0.0F;
#pragma unroll
      for (int m = 0; m < kPerLane; ++m) {
        const float2 key = pair(slot.k, column, m);
        const float2 before = sums(column, m);
        product += query[m].x * key.x * exp2_approx(y[m].x - before.x) +
                   query[m].y * key.y * exp2_approx(y[m].y - before.y);
      }
      product = warp_sum(product);
      if (lane == column) own = product;
    }
    const float next = __shfl_down_sync(kFullWarp, own, 1);
    if (lane % 2 == 0 && lane < Shape::kChunk) {
      store_shared_4(weights.at(row, lane * 2), pack<Operand>(own, next));
    }
  }
}

/// One of the threads that make a block's operands.
template <class T, class Shape, bool kWithOutputs>
class OperandMaker {
 public:
  __device__ OperandMaker(const Params& p, const Walk& walk)
      : q_(rows_of<const T>(p.q, walk, walk.head, 0)),
        k_(rows_of<const T>(p.k, walk, walk.head / p.heads_per_kv, 0)),
        v_(rows_of<const T>(p.v, walk, walk.head / p.heads_per_kv, walk.first_value)),
        keys_(p.key_channels),
        values_(p.value_channels - walk.first_value),
        key_gates_(p.gk, walk, 0, keys_),
        value_gates_(p.gv, walk, walk.first_value, values_),
        common_(p, walk) {
    common_.fetch(walk, 0);
  }

  /// Begins to copy a chunk.
  __device__ __forceinline__ void load(const Slot<Shape>& to, const Walk& walk, int chunk) const {
    if (chunk < walk.chunks) {
      load_tile<Shape, Shape::kKeys>(to.k, k_, walk, chunk, keys_);
      load_tile<Shape, Shape::kValues>(to.v, v_, walk, chunk, values_);
      if constexpr (kWithOutputs) load_tile<Shape, Shape::kKeys>(to.q, q_, walk, chunk, keys_);
      if constexpr (Shape::kKeysDecay) {
        key_gates_.template load<T, Shape::kKeys, Shape::kChunk>(
            to.key_gates, Shape::kKeyGateRowBytes, walk, chunk);
      }
      if constexpr (Shape::kValuesDecay) {
        value_gates_.template load<T, Shape::kValues, Shape::kChunk>(
            to.value_gates, Shape::kValueGateRowBytes, walk, chunk);
      }
    }
    copy_async_commit();
  }

  /// Makes a chunk's operands. This thread's copies have arrived.
  __device__ __forceinline__ void make(const Slot<Shape>& slot, Handover<Shape>& to,
                                       Shared<Shape>& shared, const Walk& walk, int chunk) {
    common_.put(shared.common_gates);
    common_.fetch(walk, chunk + 1);
    operand_sync();  // the others' copies and gates
    const bool strong = named_barrier_any<kOperandBarrier>(kRoleThreads, sum(slot, shared));
    anchor(slot, to, shared);
    const Tile<Shape> weights(shared_address(to.weights));
    if (operand_thread() == 0) to.strong = strong;
    if constexpr (kWithOutputs && Shape::kKeysDecay) {
      if (strong) weigh_strong(slot, weights);
    }
    make_tiles(slot);
    if constexpr (kWithOutputs) {
      operand_sync();  // q' and k' are there
      if (!Shape::kKeysDecay || !strong) weigh<Shape>(slot, weights, to.key_growths);
    }
  }

  /// Lets the keepers of the state know what it lacks, and others what it decayed.
  __device__ __forceinline__ void finish(Shared<Shape>& shared, const Params& p,
                                         const Walk& walk) const {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine() && key_sums_.part() == 0) {
        *reinterpret_cast<float2*>(&shared.key_rests[KeySums::channel()]) = key_sums_.rest();
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine() && value_sums_.part() == 0) {
        *reinterpret_cast<float2*>(&shared.value_rests[ValueSums::channel()]) = value_sums_.rest();
      }
    }
    if constexpr (!kWithOutputs) store_decays(p, walk);
  }

 private:
  using KeySums = GateSums<Shape::kKeys, Shape::kChunk>;
  using ValueSums = GateSums<Shape::kValues, Shape::kChunk>;

  /// Whether a step may be too large.
  __device__ __forceinline__ bool sum(const Slot<Shape>& slot, Shared<Shape>& shared) {
    bool strong = false;
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        if (key_gates_.is_f32()) {
          key_sums_.template read<float>(slot.key_gates, Shape::kKeyGateRowBytes,
                                         shared.common_gates);
        } else {
          key_sums_.template read<T>(slot.key_gates, Shape::kKeyGateRowBytes, shared.common_gates);
        }
        strong |= key_sums_.publish(shared.key_totals);
      }
    }
    if constexpr (Shape::kValuesDecay) {
      // With gk too, the common decay is with the keys.
      if (ValueSums::is_mine()) {
        if (value_gates_.is_f32()) {
          value_sums_.template read<float>(slot.value_gates, Shape::kValueGateRowBytes,
                                           Shape::kKeysDecay ? nullptr : shared.common_gates);
        } else {
          value_sums_.template read<T>(slot.value_gates, Shape::kValueGateRowBytes,
                                       Shape::kKeysDecay ? nullptr : shared.common_gates);
        }
        strong |= value_sums_.publish(shared.value_totals);
      }
    }
    return strong;
  }

  __device__ __forceinline__ void anchor(const Slot<Shape>& slot, Handover<Shape>& to,
                                         const Shared<Shape>& shared) {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) {
        key_sums_.anchor(shared.key_totals);
        if (key_sums_.part() == 0) {
          const float2 r = key_sums_.step();
          *reinterpret_cast<float2*>(&to.key_decays[KeySums::channel()]) = {exp2_approx(r.x),
                                                                            exp2_approx(r.y)};
          to.key_growths[KeySums::channel() / 2] =
              pack<Operand>(exp2_approx(-r.x), exp2_approx(-r.y));
        }
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine()) {
        value_sums_.anchor(shared.value_totals);
#pragma unroll
        for (int i = 0; i < ValueSums::kRun; ++i) {
          *reinterpret_cast<float2*>(&slot.value_sums(ValueSums::row(i))[ValueSums::channel()]) =
              value_sums_.at(i);
        }
        if (value_sums_.part() == 0) {
          *reinterpret_cast<float2*>(&to.value_steps[ValueSums::channel()]) = value_sums_.step();
        }
      }
    }
  }

  __device__ __forceinline__ void weigh_strong(const Slot<Shape>& slot,
                                               const Tile<Shape>& weights) const {
    if (KeySums::is_mine()) {
#pragma unroll
      for (int i = 0; i < KeySums::kRun; ++i) {
        *reinterpret_cast<float2*>(&slot.key_sums(KeySums::row(i))[KeySums::channel()]) =
            key_sums_.at(i);
      }
    }
    operand_sync();  // the sums are there
    weigh_exactly<T, Shape>(slot, weights);
    operand_sync();  // q and k were read
  }

  __device__ __forceinline__ void make_tiles(const Slot<Shape>& slot) const {
    if constexpr (Shape::kKeysDecay) {
      if (KeySums::is_mine()) decay_keys<T, Shape, kWithOutputs>(slot, key_sums_);
    } else if constexpr (!std::is_same_v<T, Operand>) {
      convert_tile<T, Shape>(slot.k);
      if constexpr (kWithOutputs) convert_tile<T, Shape>(slot.q);
    }
  }

  /// Of the whole segment.
  __device__ __forceinline__ void store_decays(const Params& p, const Walk& walk) const {
    const std::int64_t slot = (walk.sequence * p.heads + walk.head) * p.segments + walk.segment;
    if constexpr (Shape::kKeysDecay) {
      if (walk.value_tile == 0 && KeySums::is_mine() && key_sums_.part() == 0) {
        float* const to = p.segment_decays + slot * Shape::kKeys;
        *reinterpret_cast<float2*>(to + KeySums::channel()) = key_sums_.decay();
      }
    }
    if constexpr (Shape::kValuesDecay) {
      if (ValueSums::is_mine() && value_sums_.part() == 0) {
        float* const to =
            p.segment_value_decays + (slot * p.value_tiles + walk.value_tile) * Shape::kValues;
        *reinterpret_cast<float2*>(to + ValueSums::channel()) = value_sums_.decay();
      }
    }
  }

  const Rows<const T> q_, k_, v_;
  const int keys_;
  const int values_;  // of the block's range and beyond it
  const GateRows key_gates_, value_gates_;
  CommonGate<T, Shape::kChunk> common_;
  KeySums key_sums_;
  ValueSums value_sums_;
};

}  // namespace attune::cuda::gla_mma
