// The tokens of a row where products on tensor cores take them: what the row does with them, and how
// a block copies them to shared memory.
#pragma once

#include "cuda/decode/product_shape.hpp"
#include "cuda/decode/token.cuh"

namespace attune::cuda::decode {

inline constexpr int kProductTokens = ProductShape::kTokens;
inline constexpr int kProductRows = ProductShape::kRows;
inline constexpr int kTokenStride = ProductShape::kTokenStride;
inline constexpr int kFactorRows = ProductShape::kFactorRows;
inline constexpr int kFactorStride = ProductShape::kFactorStride;

// Of unsigned numbers, so that they are one instruction each.
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x % kWarpSize); }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x / kWarpSize); }

/// A block's shared memory.
template <class T>
struct ProductScratch {
  std::byte* tile;  // of the state, by warps; later their sums
  T *keys, *values, *queries, *gates;
  float *decays, *reads, *writes, *kept, *scores, *spans;
  void** slots;  // where the state after each token goes; null: nowhere

  __device__ __forceinline__ explicit ProductScratch(const ProductShape& shape) {
    extern __shared__ __align__(128) std::byte shared[];
    tile = shared;
    keys = reinterpret_cast<T*>(shared + shape.keys);
    values = reinterpret_cast<T*>(shared + shape.values);
    queries = reinterpret_cast<T*>(shared + shape.queries);
    gates = reinterpret_cast<T*>(shared + shape.gates);
    decays = reinterpret_cast<float*>(shared + shape.decays);
    reads = reinterpret_cast<float*>(shared + shape.reads);
    writes = reinterpret_cast<float*>(shared + shape.writes);
    kept = reinterpret_cast<float*>(shared + shape.kept);
    scores = reinterpret_cast<float*>(shared + shape.scores);
    spans = reinterpret_cast<float*>(shared + shape.spans);
    slots = reinterpret_cast<void**>(shared + shape.slots);
  }
};

/// What is read of a row's indices, in the lanes that have it: their loads may be under way while
/// others are asked for.
struct RawProductRow {
  RawIndex slot;      // in lane 0, or in lane t where the state after token t goes
  RawIndex accepted;  // in lane 0
};
template <bool kKeeps>
__device__ __forceinline__ RawProductRow read_product_row(const StepParams& p, int b) {
  const int lane = lane_index();
  RawProductRow raw;
  if (kKeeps && lane < p.tokens) {
    raw.slot = read_index(p.kept.data, p.kept.is_i64, b * p.kept.stride + lane * p.kept_token);
  }
  if (!kKeeps && lane == 0) raw.slot = read_slot(p, b);
  if (lane == 0 && p.accepted.data != nullptr) {
    raw.accepted = read_index(p.accepted.data, p.accepted.is_i64, b * p.accepted.stride);
  }
  return raw;
}

/// What becomes of row b: one state is read and, after the first `stored` places, written, or after
/// each token where states are kept.
struct ProductRow {
  std::int64_t slot = kPaddingSlot;
  std::int64_t kept = kPaddingSlot;  // in lane t, where the state after token t goes
  int committed = 0;                 // that were accepted
  int stored = 0;
  bool is_padding = false;
};
template <bool kKeeps>
__device__ __forceinline__ ProductRow product_row(const StepParams& p, int b,
                                                  const RawProductRow& raw) {
  ProductRow row;
  const std::int64_t accepted = __shfl_sync(kFullWarp, raw.accepted.value(), 0);
  if constexpr (kKeeps) {
    const int lane = lane_index();
    if (lane < p.tokens) row.kept = slot_or_padding(p, raw.slot.value());
    const bool is_given = accepted >= 1 && accepted <= p.tokens;
    row.slot = __shfl_sync(kFullWarp, row.kept, is_given ? static_cast<int>(accepted) - 1 : 0);
    row.is_padding = !is_given || row.slot == kPaddingSlot;
    return row;
  }
  row.slot = __shfl_sync(kFullWarp, slot_of(p, b, raw.slot), 0);
  row.is_padding = row.slot == kPaddingSlot;
  row.stored = p.tokens;
  if (p.committed_tokens > 0) {
    row.is_padding = row.is_padding || accepted < 0 || accepted > p.committed_tokens;
    row.committed = row.is_padding ? 0 : static_cast<int>(accepted);
    row.stored = row.committed;
  }
  return row;
}

/// What a block works on at a time.
struct ProductBlock {
  int b, head, kv_head;
  int first_row, first_column;
  int rows, columns;  // of the tile, that exist
};
__device__ __forceinline__ BlockTile product_tile_of(const ProductShape& shape) {
  const auto block = static_cast<int>(blockIdx.x);
  const int head = quotient(block, shape.tiles);
  return {head, (block - head * shape.tiles) * shape.columns};
}
__device__ __forceinline__ ProductBlock product_block(const StepParams& p,
                                                      const ProductShape& shape, int b,
                                                      const BlockTile& tile, int first_row) {
  const int keys = static_cast<int>(p.keys), values = static_cast<int>(p.values);
  return {.b = b,
          .head = tile.head,
          .kv_head = p.heads_per_kv == 1 ? tile.head : kv_head_of(p, tile.head),
          .first_row = first_row,
          .first_column = tile.first_column,
          .rows = min(keys - first_row, shape.rows),
          .columns = min(values - tile.first_column, shape.columns)};
}

/// Where a token's row begins: takes_products() sees to it that 32 bits are enough.
template <class View>
__device__ __forceinline__ int row_of(const View& view, int b, int t, int head) {
  return b * static_cast<int>(view.batch) + t * static_cast<int>(view.token) +
         head * static_cast<int>(view.head);
}

/// Half warps take rows of tokens in turn, whatever those are of.
struct CopyTurns {
  static constexpr int kLanes = kWarpSize / 2;
  int next = static_cast<int>(threadIdx.x / kLanes);
  int step = static_cast<int>(blockDim.x / kLanes);

  /// Copies the first `left` elements of `count` rows of tokens; what is behind them becomes zero.
  template <int kStride, class Element>
  __device__ __forceinline__ void copy(Element* to, int count, int left, const ConstTokenView& from,
                                       int b, int head, int first) {
    constexpr int kElements = 16 / sizeof(Element);
    const int lane = static_cast<int>(threadIdx.x % kLanes) * kElements;
    const auto* const rows = static_cast<const Element*>(from.data);
    const int first_row = row_of(from, b, 0, head) + first + lane;
    const auto token = static_cast<int>(from.token);
    for (; next < count; next += step) {
#pragma unroll
      for (int more = 0; more < kProductRows; more += kLanes * kElements) {
        copy_async_16(shared_address(to + next * kStride + lane + more),
                      rows + (first_row + next * token + more), lane + more < left);
      }
    }
    next -= count;
  }
};

/// Asks for the tokens of a tile, all committed ones among them: how many of those were accepted
/// need not be known.
template <bool kOfChannels, class T>
__device__ __forceinline__ void copy_tokens(const StepParams& p, const ProductScratch<T>& scratch,
                                            const ProductBlock& at) {
  const int old = p.committed_tokens, fresh = p.tokens;
  CopyTurns turns;
  const auto copy = [&]<int kStride>(auto* to, const ConstTokenView& before,
                                     const ConstTokenView& now, int left, int head, int first) {
    using Element = std::remove_pointer_t<decltype(to)>;
    turns.copy<kStride, Element>(to, old, left, before, at.b, head, first);
    turns.copy<kStride, Element>(to + old * kStride, fresh, left, now, at.b, head, first);
  };
  copy.template operator()<kTokenStride>(scratch.keys, p.committed.k, p.fresh.k, at.rows,
                                         at.kv_head, at.first_row);
  copy.template operator()<kTokenStride>(scratch.values, p.committed.v, p.fresh.v, at.columns,
                                         at.kv_head, at.first_column);
  if constexpr (kOfChannels) {
    const GateView &gk = p.fresh.gk, &old_gk = p.committed.gk;
    if (gk.is_f32) {
      copy.template operator()<kProductRows>(scratch.decays, old_gk.rows, gk.rows, at.rows, at.head,
                                             at.first_row);
    } else {
      copy.template operator()<kTokenStride>(scratch.gates, old_gk.rows, gk.rows, at.rows, at.head,
                                             at.first_row);
    }
  }
  turns.copy<kTokenStride, T>(scratch.queries, fresh, at.rows, p.q, at.b, at.head, at.first_row);
  copy_async_commit();
}

}  // namespace attune::cuda::decode
