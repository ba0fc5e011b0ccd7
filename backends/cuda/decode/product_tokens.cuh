// The tokens of a row where products on tensor cores take them: a block copies them to shared memory
// and makes them into factors of its rows.
#pragma once

#include "cuda/decode/product_shape.hpp"
#include "cuda/decode/token.cuh"
#include "cuda/tiles/tf32.cuh"

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
  std::int64_t* slots;

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
    slots = reinterpret_cast<std::int64_t*>(shared + shape.slots);
  }
};

/// What is read of a row's indices, in the lanes that have it: their loads may be under way while
/// others are asked for.
struct RawProductRow {
  RawIndex slot;      // in lane 0, or in lane t where the state after token t goes
  RawIndex accepted;  // in lane 0
};
template <bool kKeeps>
__device__ __forceinline__ RawProductRow read_product_row(const StepParams& p, std::int64_t b) {
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
__device__ __forceinline__ ProductRow product_row(const StepParams& p, std::int64_t b,
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
  std::int64_t b;
  int head, kv_head;
  int first_row, first_column;
  int rows, columns;  // of the tile, that exist
};
__device__ __forceinline__ BlockTile product_tile_of(const ProductShape& shape) {
  const auto block = static_cast<int>(blockIdx.x);
  if (shape.tiles == 1) return {block, 0};
  const int head = block / shape.tiles;
  return {head, (block - head * shape.tiles) * shape.columns};
}
__device__ __forceinline__ ProductBlock product_block(const StepParams& p,
                                                      const ProductShape& shape, std::int64_t b,
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

/// Half warps take rows of tokens in turn, whatever those are of.
struct CopyTurns {
  static constexpr int kLanes = kWarpSize / 2;
  int next = static_cast<int>(threadIdx.x / kLanes);
  int step = static_cast<int>(blockDim.x / kLanes);

  /// Copies the first `left` elements of `count` rows of tokens.
  template <int kStride, class Element>
  __device__ __forceinline__ void copy(Element* to, int count, int left, const ConstTokenView& from,
                                       std::int64_t b, int head, int first) {
    constexpr int kElements = 16 / sizeof(Element);
    const int lane = static_cast<int>(threadIdx.x % kLanes) * kElements;
    const auto* const rows =
        static_cast<const Element*>(from.data) + b * from.batch + head * from.head + (first + lane);
    for (; next < count; next += step) {
#pragma unroll
      for (int more = 0; more < kProductRows; more += kLanes * kElements) {
        if (lane + more >= left) continue;
        copy_async_16(shared_address(to + next * kStride + lane + more),
                      rows + next * from.token + more, true);
      }
    }
    next -= count;
  }
};

/// Asks for the tokens of a tile, all committed ones among them: how many of those were accepted
/// need not be known.
template <class T>
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
  const GateView &gk = p.fresh.gk, &old_gk = p.committed.gk;
  if (gk.given() && gk.is_f32) {
    copy.template operator()<kProductRows>(scratch.decays, old_gk.rows, gk.rows, at.rows, at.head,
                                           at.first_row);
  } else if (gk.given()) {
    copy.template operator()<kTokenStride>(scratch.gates, old_gk.rows, gk.rows, at.rows, at.head,
                                           at.first_row);
  }
  turns.copy<kTokenStride, T>(scratch.queries, fresh, at.rows, p.q, at.b, at.head, at.first_row);
  copy_async_commit();
}

/// In the lane of a place: what all channels of the head share of its token's log decay, as it comes
/// from memory.
template <class T>
struct RawHeadDecay {
  float constant = 0;
  RawGate<T> g;
  __device__ __forceinline__ float log_decay(const StepParams& p) const {
    return constant + log_decay_of(p.fresh.g, g);
  }
};
template <class T>
__device__ __forceinline__ RawHeadDecay<T> read_head_decay(const StepParams& p,
                                                           const ProductBlock& at) {
  RawHeadDecay<T> raw;
  const int place = lane_index(), t = place - p.committed_tokens;
  if (t < 0) {
    raw.g = read_gate<T>(p.committed.g, at.b, place, at.head, 0);
  } else if (t < p.tokens) {
    raw.g = read_gate<T>(p.fresh.g, at.b, t, at.head, 0);
  }
  raw.constant = constant_decay(p.gamma, 0, at.head);
  return raw;
}

/// Whether a place has a token that the state takes or that is new.
__device__ __forceinline__ bool is_taken(const StepParams& p, const ProductRow& row, int place) {
  return place < row.committed ||
         (place >= p.committed_tokens && place < p.committed_tokens + p.tokens);
}

/// Decays by place, of a channel of the tile: one for all of them where there is no gk.
struct PlaceDecays {
  const float* first;
  int token, row;  // strides
  __device__ __forceinline__ float operator()(int place, int i) const {
    return first[place * token + i * row];
  }
};
template <class T>
__device__ __forceinline__ PlaceDecays decays_of(const StepParams& p,
                                                 const ProductScratch<T>& scratch) {
  return p.fresh.gk.given() ? PlaceDecays{scratch.decays, kProductRows, 1}
                            : PlaceDecays{scratch.decays, 1, 0};
}

/// Makes gk into decays, those of tokens that are not taken into 1. `head_log_decay` is a lane's of
/// its place.
template <class T>
__device__ __forceinline__ void make_channel_decays(const StepParams& p, const ProductShape& shape,
                                                    const ProductScratch<T>& scratch,
                                                    const ProductRow& row, float head_log_decay) {
  const int places = p.committed_tokens + p.tokens;
  const int step = static_cast<int>(blockDim.x / kWarpSize);
  for (int warp = warp_index(); warp < places; warp += step) {
    const float of_head = __shfl_sync(kFullWarp, head_log_decay, warp);
    const bool taken = is_taken(p, row, warp);
    for (int i = lane_index(); i < shape.rows; i += kWarpSize) {
      float& decay = scratch.decays[warp * kProductRows + i];
      const float of_channel =
          p.fresh.gk.is_f32 ? decay : to_float(scratch.gates[warp * kTokenStride + i]);
      decay = taken ? expf(of_head + of_channel) : 1.0F;
    }
  }
}

/// q_t A_t, times the scale: what tokens read of row i of the tile.
template <class T>
__device__ __forceinline__ void make_reads(const StepParams& p, const ProductScratch<T>& scratch,
                                           const PlaceDecays& decays, int i, bool exists) {
  float until = p.scale;
  for (int place = 0; place < p.committed_tokens; ++place) until *= decays(place, i);
  float* const to = scratch.reads + i / kFactorRows * kFactorStride + i % kFactorRows;
#pragma unroll
  for (int t = 0; t < kProductTokens; ++t) {
    float read = 0;
    if (t < p.tokens) {
      until *= decays(p.committed_tokens + t, i);
      read = exists ? to_float(scratch.queries[t * kTokenStride + i]) * until : 0;
    }
    to[t * kFactorRows] = read;
  }
}

/// y_s, what tokens write to row i of the tile, and A_{m-1}. Tokens four apart are side by side.
template <class T>
__device__ __forceinline__ void make_writes(const ProductScratch<T>& scratch,
                                            const PlaceDecays& decays, int stored, int i,
                                            bool exists) {
  float since = 1;
  float writes[kProductTokens];
#pragma unroll
  for (int s = kProductTokens - 1; s >= 0; --s) {
    writes[s] = 0;
    if (s >= stored) continue;
    if (exists) writes[s] = to_float(scratch.keys[s * kTokenStride + i]) * since;
    since *= decays(s, i);
  }
  scratch.kept[i] = since;
  auto* const to = reinterpret_cast<float4*>(scratch.writes + i / kFactorRows * kFactorStride +
                                             i % kFactorRows * kProductTokens);
  to[0] = {writes[0], writes[4], writes[1], writes[5]};
  to[1] = {writes[2], writes[6], writes[3], writes[7]};
}

/// Makes the factors of the tile's rows; those of rows that do not exist are zero.
template <bool kKeeps, class T>
__device__ __forceinline__ void make_factors(const StepParams& p, const ProductShape& shape,
                                             const ProductScratch<T>& scratch,
                                             const ProductBlock& at, const ProductRow& row) {
  const PlaceDecays decays = decays_of(p, scratch);
  const int step = static_cast<int>(blockDim.x);
  for (int n = static_cast<int>(threadIdx.x); n < (kKeeps ? 1 : 2) * shape.rows; n += step) {
    if (n < shape.rows) {
      make_reads(p, scratch, decays, n, n < at.rows);
    } else {
      make_writes(scratch, decays, row.stored, n - shape.rows, n - shape.rows < at.rows);
    }
  }
}

}  // namespace attune::cuda::decode
