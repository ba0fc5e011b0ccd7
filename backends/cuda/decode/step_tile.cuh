// A thread's part of a state in the kernel of any step: 64 elements or fewer, in fp32 from the
// first token to the last.
#pragma once

#include "cuda/decode/state_vector.cuh"
#include "cuda/decode/token.cuh"

namespace attune::cuda::decode {

/// How the elements of a state are spread over a warp, and how they lie in memory.
enum class StepLayout {
  kRowVectors,   // rows of aligned vectors
  kAlongValues,  // any strides, lanes along V
  kAlongKeys     // any strides, lanes along K
};

/// Lanes lie side by side along V and, where those are fewer than a warp has, one row below the
/// other. A thread has vectors of columns: that many lanes apart.
template <class StateType, StepLayout kLayout>
struct StepTile {
  using State = StateType;
  static constexpr bool kIsVectors = kLayout == StepLayout::kRowVectors;
  static constexpr int kRows = kIsVectors                            ? DecodeConfig::kStepRows
                               : kLayout == StepLayout::kAlongValues ? 16
                                                                     : 4;
  static constexpr int kColumns = kIsVectors                            ? DecodeConfig::kStepColumns
                                  : kLayout == StepLayout::kAlongValues ? 1
                                                                        : 4;
  static constexpr int kVector = kIsVectors ? kVectorColumns<State> : kColumns;
  static constexpr int kVectors = kColumns / kVector;
  static constexpr int kLanesAcross = kIsVectors
                                          ? DecodeConfig::kStepWarpColumns / kColumns
                                          : (kLayout == StepLayout::kAlongValues ? kWarpSize : 1);
  static constexpr int kRowStep = kWarpSize / kLanesAcross;  // from one row to the next
  static constexpr int kWarpRows = kRows * kRowStep;
  static constexpr int kWarpColumns = kLanesAcross * kColumns;

  /// Of the thread's column c, counted from its first.
  static constexpr int column_offset(int c) {
    return c / kVector * kLanesAcross * kVector + c % kVector;
  }

  /// As they come from memory, which they may do while the thread goes on.
  struct Loaded {
    float4 vectors[kIsVectors ? kRows : 1][kVectors];
    State elements[kIsVectors ? 1 : kRows][kColumns];
  };

  float s[kRows][kColumns];
};

/// Where a thread stands in its block's tile: the first of its rows and columns, and its warp's
/// place along K.
struct StepLane {
  int warp_k, row, column;
};

template <class Tile>
__device__ __forceinline__ StepLane step_lane(int warps_v) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warp_k = quotient(warp, warps_v);
  return {
      warp_k, warp_k * Tile::kWarpRows + lane / Tile::kLanesAcross,
      (warp - warp_k * warps_v) * Tile::kWarpColumns + lane % Tile::kLanesAcross * Tile::kVector};
}

/// A thread's part of one head's states, at any slot.
struct StepPart {
  std::int64_t offset;          // of its first element, from the slot's first one
  std::int64_t row;             // of its first element among the rows of all heads of a slot
  int column;                   // of it
  int rows_left, columns_left;  // from it on; 0 or less: none
  bool evict_first;

  __device__ std::uint64_t policy() const {
    return evict_first ? policy_evict_first() : policy_evict_normal();
  }
};

/// What a thread has of the tile at `first_row` and `first_column` of a head.
template <class Tile>
__device__ __forceinline__ StepPart step_part(const DecodeParams& p, const StepLane& lane, int head,
                                              std::int64_t first_row, std::int64_t first_column,
                                              bool evict_first) {
  const std::int64_t row = first_row + lane.row;
  const std::int64_t column = first_column + lane.column;
  const std::int64_t rows_left = min(p.keys - row, std::int64_t{Tile::kWarpRows});
  return {.offset = head * p.state.head + row * p.state.k + column * p.state.v,
          .row = head * p.keys + row,
          .column = static_cast<int>(column),
          .rows_left = static_cast<int>(rows_left),
          .columns_left = static_cast<int>(p.values - column),
          .evict_first = evict_first};
}

/// Rows and columns that do not exist are zero.
template <class Tile>
__device__ __forceinline__ typename Tile::Loaded load_part(const DecodeParams& p,
                                                           const StepPart& part,
                                                           std::int64_t slot) {
  using State = typename Tile::State;
  const State* from =
      static_cast<const State*>(p.state.data) + slot * p.state.sequence + part.offset;
  const std::uint64_t policy = part.policy();
  typename Tile::Loaded loaded;
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, from += Tile::kRowStep * p.state.k) {
    const bool has_row = r * Tile::kRowStep < part.rows_left;
    if constexpr (Tile::kIsVectors) {
#pragma unroll
      for (int n = 0; n < Tile::kVectors; ++n) {
        const int column = Tile::column_offset(n * Tile::kVector);
        loaded.vectors[r][n] = make_float4(0, 0, 0, 0);
        if (has_row && column < part.columns_left) {
          loaded.vectors[r][n] = load_vector(from + column, policy);
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) {
        loaded.elements[r][c] = State(0);
        if (has_row && c < part.columns_left) loaded.elements[r][c] = from[c * p.state.v];
      }
    }
  }
  return loaded;
}

template <class Tile>
__device__ __forceinline__ Tile widened(const typename Tile::Loaded& loaded) {
  Tile tile;
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    if constexpr (Tile::kIsVectors) {
#pragma unroll
      for (int n = 0; n < Tile::kVectors; ++n) {
        widen<typename Tile::State>(&tile.s[r][n * Tile::kVector], loaded.vectors[r][n]);
      }
    } else {
#pragma unroll
      for (int c = 0; c < Tile::kColumns; ++c) tile.s[r][c] = to_float(loaded.elements[r][c]);
    }
  }
  return tile;
}

/// What a tile's elements are to the state's.
enum class Decays {
  kTaken,     // the state's own
  kOfValues,  // the same, and there is a gv
  kDeferred   // over the decays of all tokens so far, which are in DecodeKey::decay of the last one
};

/// kStochastic: rounded by p.rounding's seed. `keys` are of the last token.
template <Decays kDecays, bool kStochastic, class Tile>
__device__ __forceinline__ void store_rounded(const StepParams& p, const StepPart& part,
                                              const Tile& tile, const DecodeKey* keys,
                                              std::int64_t slot) {
  using State = typename Tile::State;
  const std::uint64_t policy = part.policy();
  State* to = static_cast<State*>(p.state.data) + slot * p.state.sequence + part.offset;
  std::int64_t row = slot * p.heads * p.keys + part.row;
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, to += Tile::kRowStep * p.state.k, row += Tile::kRowStep) {
    if (r * Tile::kRowStep >= part.rows_left) break;
    const RowRounding rounding = kStochastic ? row_rounding(p.rounding, row) : RowRounding{};
    float x[Tile::kColumns];
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
      x[c] = tile.s[r][c];
      if constexpr (kDecays == Decays::kDeferred) x[c] *= keys[r * Tile::kRowStep].decay;
    }
#pragma unroll
    for (int n = 0; n < Tile::kVectors; ++n) {
      const int column = Tile::column_offset(n * Tile::kVector);
      const auto in_row = static_cast<std::uint32_t>(part.column + column);
      if constexpr (Tile::kIsVectors) {
        if (column < part.columns_left) {
          store_vector(to + column, narrowed<State>(x + n * Tile::kVector, rounding, in_row),
                       policy);
        }
      } else {
#pragma unroll
        for (int c = 0; c < Tile::kColumns; ++c) {
          if (c < part.columns_left) to[c * p.state.v] = rounded<State>(x[c], rounding, in_row + c);
        }
      }
    }
  }
}

template <Decays kDecays, class Tile>
__device__ __forceinline__ void store_part(const StepParams& p, const StepPart& part,
                                           const Tile& tile, const DecodeKey* keys,
                                           std::int64_t slot) {
  if constexpr (sizeof(typename Tile::State) < sizeof(float)) {
    if (p.rounding.kind == StateRounding::Kind::kStochastic) {
      return store_rounded<kDecays, true>(p, part, tile, keys, slot);
    }
  }
  store_rounded<kDecays, false>(p, part, tile, keys, slot);
}

/// Takes one token and, where kReads, adds what it reads to `o`.
template <Decays kDecays, bool kReads, class Tile>
__device__ __forceinline__ void advance(Tile& tile, float (&o)[Tile::kColumns],
                                        const DecodeKey* keys, const float* values,
                                        const float* value_gates) {
  constexpr bool kValueGate = kDecays == Decays::kOfValues;
  DecodeValue value[Tile::kColumns];
#pragma unroll
  for (int c = 0; c < Tile::kColumns; ++c) {
    value[c].v = values[Tile::column_offset(c)];
    value[c].log_decay = kValueGate ? value_gates[Tile::column_offset(c)] : 0;
  }
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r) {
    const DecodeKey key = keys[r * Tile::kRowStep];
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
      float& s = tile.s[r][c];
      s = kDecays == Decays::kDeferred ? fmaf(key.k, value[c].v, s)
                                       : advanced(s, key, value[c], kValueGate);
      if constexpr (kReads) o[c] = fmaf(key.q, s, o[c]);
    }
  }
}

}  // namespace attune::cuda::decode
