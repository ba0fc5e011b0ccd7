// The tokens of a row where products on tensor cores take them: a block copies them to shared memory
// and makes them into factors of its rows and scores.
#pragma once

#include "cuda/decode/step_tokens.cuh"
#include "cuda/tiles/tf32.cuh"

namespace attune::cuda::decode {

/// What becomes of row b: one state is read and, after `stored` of its tokens, written, or after
/// each token where states are kept.
struct ProductRow {
  std::int64_t slot = kPaddingSlot;
  std::int64_t kept = kPaddingSlot;  // in lane t, where the state after token t goes
  int committed = 0;
  int stored = 0;
  bool is_padding = false;
};
template <bool kKeeps>
__device__ __forceinline__ ProductRow product_row(const StepParams& p, std::int64_t b) {
  if constexpr (kKeeps) {
    const StepRow row = step_row(p, b);
    return {.slot = row.start, .kept = row.kept, .is_padding = row.is_padding};
  }
  ProductRow row{.slot = slot_of(p, b), .stored = p.tokens};
  if (p.committed_tokens > 0) {
    const std::int64_t accepted = number_at(p.accepted, b * p.accepted.stride);
    row.is_padding = accepted < 0 || accepted > p.committed_tokens;
    row.committed = row.is_padding ? 0 : static_cast<int>(accepted);
    row.stored = row.committed;
  }
  row.is_padding = row.is_padding || row.slot == kPaddingSlot;
  return row;
}

/// A block's tile has at most so many rows and columns: how far apart tokens lie in shared memory.
inline constexpr int kProductRows = DecodeConfig::kProductRows;
inline constexpr int kProductColumns = DecodeConfig::kProductColumns;
/// Tokens of one kind, committed or new, that a row has at most: the depth of a product.
inline constexpr int kProductTokens = DecodeConfig::kProductTokens;

/// What a block works on at a time.
struct ProductBlock {
  std::int64_t b, first_row, first_column;
  int head, kv_head;
  int tile_rows;
  int rows, columns;  // of the tile, that exist
};
__device__ __forceinline__ ProductBlock product_block(const StepParams& p, const StepShape& shape,
                                                      std::int64_t b, int head,
                                                      std::int64_t first_row,
                                                      std::int64_t first_column) {
  return {.b = b,
          .first_row = first_row,
          .first_column = first_column,
          .head = head,
          .kv_head = kv_head_of(p, head),
          .tile_rows = shape.rows,
          .rows = static_cast<int>(min(p.keys - first_row, std::int64_t{shape.rows})),
          .columns = static_cast<int>(min(p.values - first_column, std::int64_t{shape.columns}))};
}

/// What a block stages of its row's tokens, and what it makes of them. Rows of factors are so far
/// apart that the lanes of an operand fall into different banks.
template <class T>
struct ProductScratch {
  static constexpr int kTokens = 2 * kProductTokens;
  T keys[kTokens][kProductRows];
  T queries[kProductTokens][kProductRows];
  T values[kTokens][kProductColumns];
  T gates[kTokens][kProductRows];                  // gk in the type of q
  float decays[kTokens][kProductRows];             // before, gk in fp32
  float reads[kProductTokens][kProductRows + 4];   // q_t A_t, times the scale
  float writes[kProductTokens][kProductRows + 8];  // y_s
  float kept[kProductRows];                        // A_{m-1}
  float scores[kTokens][kProductTokens];           // w_ts by s
  float sums[1];                                   // [T, warps_k, columns]

  __device__ static ProductScratch& get() {
    extern __shared__ __align__(16) std::byte shared[];
    return *reinterpret_cast<ProductScratch*>(shared);
  }
  static std::size_t bytes(const StepParams& p, const StepShape& shape) {
    const int sums = p.tokens * shape.warps_k * shape.columns;
    return sizeof(ProductScratch) + static_cast<std::size_t>(sums) * sizeof(float);
  }
};

/// Copies tokens' rows, of which `left` elements exist. row_of(t) is where token t's begins.
template <int kStride, class Element, class RowOf>
__device__ __forceinline__ void copy_rows(Element (*to)[kStride], int count, int left,
                                          const RowOf& row_of) {
  constexpr int kElements = 16 / sizeof(Element);
  constexpr int kLanes = kStride / kElements;
  const int element = static_cast<int>(threadIdx.x) % kLanes * kElements;
  if (element >= left) return;
  const int step = static_cast<int>(blockDim.x) / kLanes;
  for (int t = static_cast<int>(threadIdx.x) / kLanes; t < count; t += step) {
    copy_async_16(shared_address(&to[t][element]), row_of(t) + element, true);
  }
}

/// Where the row of a committed token or a new one begins.
template <class Element>
__device__ __forceinline__ const Element* token_row(const ConstTokenView& committed,
                                                    const ConstTokenView& fresh, std::int64_t b,
                                                    int t, const ProductRow& row, int head) {
  const bool is_fresh = t >= row.committed;
  const ConstTokenView& view = is_fresh ? fresh : committed;
  return static_cast<const Element*>(view.data) +
         row_offset(view, b, is_fresh ? t - row.committed : t, head);
}

template <class T>
__device__ __forceinline__ void copy_tokens(const StepParams& p, ProductScratch<T>& scratch,
                                            const ProductBlock& at, const ProductRow& row) {
  const int count = row.committed + p.tokens;
  const GateView &gk = p.fresh.gk, &old_gk = p.committed.gk;
  copy_rows(scratch.keys, count, at.rows, [&](int t) {
    return token_row<T>(p.committed.k, p.fresh.k, at.b, t, row, at.kv_head) + at.first_row;
  });
  copy_rows(scratch.queries, p.tokens, at.rows, [&](int t) {
    return static_cast<const T*>(p.q.data) + row_offset(p.q, at.b, t, at.head) + at.first_row;
  });
  copy_rows(scratch.values, count, at.columns, [&](int t) {
    return token_row<T>(p.committed.v, p.fresh.v, at.b, t, row, at.kv_head) + at.first_column;
  });
  if (gk.given() && gk.is_f32) {
    copy_rows(scratch.decays, count, at.rows, [&](int t) {
      return token_row<float>(old_gk.rows, gk.rows, at.b, t, row, at.head) + at.first_row;
    });
  } else if (gk.given()) {
    copy_rows(scratch.gates, count, at.rows, [&](int t) {
      return token_row<T>(old_gk.rows, gk.rows, at.b, t, row, at.head) + at.first_row;
    });
  }
  copy_async_commit();
}

/// In lane t: what all channels of the head share of token t's log decay, as it lies in memory.
template <class T>
__device__ __forceinline__ RawGate<T> read_head_gate(const StepParams& p, const ProductBlock& at,
                                                     const ProductRow& row) {
  const int t = static_cast<int>(threadIdx.x) % kWarpSize;
  if (t >= row.committed + p.tokens) return {};
  return t < row.committed ? read_gate<T>(p.committed.g, at.b, t, at.head, 0)
                           : read_gate<T>(p.fresh.g, at.b, t - row.committed, at.head, 0);
}

/// The decays of channel `row` of a tile, from the first token on: calls take(t, decay).
template <class T, class Take>
__device__ __forceinline__ void for_each_decay(const StepParams& p, ProductScratch<T>& scratch,
                                               int row, int count, float head_log_decay,
                                               const Take& take) {
  const GateView& gk = p.fresh.gk;
  const float head_decay = expf(head_log_decay);
  for (int t = 0; t < count; ++t) {
    float decay = __shfl_sync(kFullWarp, gk.given() ? head_log_decay : head_decay, t);
    if (gk.given()) {
      decay = expf(decay + (gk.is_f32 ? scratch.decays[t][row] : to_float(scratch.gates[t][row])));
    }
    scratch.decays[t][row] = decay;
    take(t, decay);
  }
}

/// Makes the factors of the tile's rows, one a thread; those of rows that do not exist are zero.
template <class T>
__device__ __forceinline__ void make_factors(const StepParams& p, ProductScratch<T>& scratch,
                                             const ProductBlock& at, const ProductRow& row,
                                             float head_log_decay) {
  const int step = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < at.tile_rows; i += step) {
    const bool exists = i < at.rows;
    float until = 1;
    for_each_decay(p, scratch, i, row.committed + p.tokens, head_log_decay,
                   [&](int t, float decay) {
                     until *= decay;
                     if (t + 1 == row.stored) scratch.kept[i] = until;
                     if (t < row.committed) return;
                     const float q = to_float(scratch.queries[t - row.committed][i]) * p.scale;
                     scratch.reads[t - row.committed][i] = exists ? q * until : 0;
                   });
    for (int t = p.tokens; t < kProductTokens; ++t) scratch.reads[t][i] = 0;
    float since = 1;
    for (int s = kProductTokens - 1; s >= 0; --s) {
      const bool writes = exists && s < row.stored;
      scratch.writes[s][i] = writes ? to_float(scratch.keys[s][i]) * since : 0;
      if (writes) since *= scratch.decays[s][i];
    }
  }
}

/// Four elements at an address that is a multiple of 8.
template <class T>
__device__ __forceinline__ void load_four(float (&to)[4], const T* from) {
  const uint2 vector = *reinterpret_cast<const uint2*>(from);
  const float2 low = unpack<T>(vector.x), high = unpack<T>(vector.y);
  to[0] = low.x;
  to[1] = low.y;
  to[2] = high.x;
  to[3] = high.y;
}

template <class T>
__device__ __forceinline__ void clear_scores(ProductScratch<T>& scratch) {
  for (int at = static_cast<int>(threadIdx.x); at < 2 * kProductTokens * kProductTokens;
       at += static_cast<int>(blockDim.x)) {
    scratch.scores[0][at] = 0;
  }
}

/// Adds the tile's part of all scores. A token s has some lanes, each some channels of k_s, which
/// they take through the tokens behind it.
template <class T>
__device__ __forceinline__ void add_scores(const StepParams& p, ProductScratch<T>& scratch,
                                           const ProductBlock& at, const ProductRow& row) {
  constexpr int kLanes = 16;
  constexpr int kVectors = kProductRows / kLanes / 4;
  const int count = row.committed + p.tokens;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int step = static_cast<int>(blockDim.x) / kLanes;
  for (int s = static_cast<int>(threadIdx.x) / kLanes; s < scratch.kTokens; s += step) {
    float key[kVectors][4] = {};
    const auto each = [&](const auto& take) {
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        const int i = 4 * (lane + n * kLanes);
        if (i < at.rows && s < count) take(key[n], i);
      }
    };
    each([&](float(&k)[4], int i) { load_four(k, &scratch.keys[s][i]); });
#pragma unroll 1
    for (int t = s - s % step; t < count; ++t) {
      if (t > s) {
        each([&](float(&k)[4], int i) {
          const float4 by = *reinterpret_cast<const float4*>(&scratch.decays[t][i]);
          k[0] *= by.x;
          k[1] *= by.y;
          k[2] *= by.z;
          k[3] *= by.w;
        });
      }
      if (t < row.committed) continue;
      float score = 0;
      each([&](float(&k)[4], int i) {
        float q[4];
        load_four(q, &scratch.queries[t - row.committed][i]);
#pragma unroll
        for (int e = 0; e < 4; ++e) score = fmaf(q[e], k[e], score);
      });
#pragma unroll
      for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        score += __shfl_xor_sync(kFullWarp, score, apart);
      }
      if (lane == 0 && t >= s) scratch.scores[s][t - row.committed] += score * p.scale;
    }
  }
}

}  // namespace attune::cuda::decode
