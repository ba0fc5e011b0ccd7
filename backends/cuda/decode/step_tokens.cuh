// The tokens of a row in the kernel of any step: what the row does with them, and how a block
// stages them in shared memory, committed ones first; and its outputs.
#pragma once

#include "cuda/decode/token.cuh"

namespace attune::cuda::decode {

/// A block's tile, the same for all blocks of a launch.
struct StepShape {
  int warps_k = 1;
  int warps_v = 1;
  int rows = 0;     // of the tile
  int columns = 0;  // of the tile, no more than threads
  int tokens = 1;   // staged at a time: all of a row's
  bool evict_first = false;
  bool overlap = false;  // starts while the launch before it ends
};

/// What a block stages, and its sums.
struct StepScratch {
  DecodeKey* keys;     // [tokens, rows]
  float* values;       // [tokens, columns]
  float* value_gates;  // the same, when there is a gv
  float* sums;         // [T, warps_k, columns]

  __device__ StepScratch(const StepShape& shape, bool value_gate) {
    extern __shared__ __align__(16) std::byte shared[];
    keys = reinterpret_cast<DecodeKey*>(shared);
    values = reinterpret_cast<float*>(keys + shape.tokens * shape.rows);
    value_gates = values + shape.tokens * shape.columns;
    sums = value_gates + (value_gate ? shape.tokens * shape.columns : 0);
  }
};

// ---- what a row does ----

struct StepRow : DecodeRow {
  std::int64_t kept =
      kPaddingSlot;   // with kept slots: in lane t, where the state after token t goes
  int committed = 0;  // tokens that its state takes first, and is stored after
};

__device__ __forceinline__ StepRow step_row(const StepParams& p, std::int64_t b) {
  const std::int64_t accepted =
      p.accepted.data == nullptr ? 0 : number_at(p.accepted, b * p.accepted.stride);
  StepRow row;
  if (p.kept.data == nullptr) {
    static_cast<DecodeRow&>(row) = row_of(p, b, read_slot(p, b));
    row.is_padding = row.is_padding || accepted < 0 || accepted > p.committed_tokens;
    row.committed = row.is_padding ? 0 : static_cast<int>(accepted);
    return row;
  }
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane < p.tokens) {
    row.kept = slot_or_padding(p, number_at(p.kept, b * p.kept.stride + lane * p.kept_token));
  }
  row.at = b;
  row.start = kPaddingSlot;
  if (accepted >= 1 && accepted <= p.tokens) {
    row.start = __shfl_sync(kFullWarp, row.kept, static_cast<int>(accepted) - 1);
  }
  row.is_padding = row.start == kPaddingSlot;
  return row;
}

/// Where the state after token n goes, committed ones counted; kPaddingSlot: nowhere.
__device__ __forceinline__ std::int64_t slot_after(const StepParams& p, const StepRow& row, int n) {
  if (p.kept.data != nullptr) return __shfl_sync(kFullWarp, row.kept, n);
  const int last = p.committed_tokens > 0 ? row.committed : p.tokens;
  return n + 1 == last ? row.end : kPaddingSlot;
}

// ---- staging ----

/// So many loads of a thread are under way together.
inline constexpr int kStagedTogether = 4;

template <class T>
__device__ __forceinline__ float log_decay_of(const GateView& committed, const GateView& fresh,
                                              bool is_committed, const RawGate<T>& raw) {
  return is_committed ? log_decay_of(committed, raw) : log_decay_of(fresh, raw);
}

/// In lane t: the log decay that all channels of the head share for token t, committed ones first.
template <class T>
__device__ __forceinline__ float head_log_decays(const StepParams& p, const DecodeRow& row,
                                                 int head, int committed) {
  static_assert(2 * ops::kMaxStepTokens <= kWarpSize);
  const int t = static_cast<int>(threadIdx.x) % kWarpSize;
  const float constant = constant_decay(p.gamma, row.sequence, head);
  if (t >= committed + p.tokens) return constant;
  const GateView& g = p.fresh.g;
  return constant +
         (t < committed
              ? log_decay_of(p.committed.g, read_gate<T>(p.committed.g, row.at, t, head, 0))
              : log_decay_of(g, read_gate<T>(g, row.at, t - committed, head, 0)));
}

/// How far decays may take a state, as a natural logarithm, before they are not deferred: numbers
/// stay well inside of fp32, and a sum of logarithms is exact to 1e-6.
inline constexpr float kMaxDeferred = 20;

/// Of all tokens of a row, what rows first_row .. of a tile take. Threads have one row each, those
/// of a warp have the same tokens.
///
/// With deferred decays, D_t = exp(sum of the log decays of tokens 0 .. t), a key has k / D_t,
/// q D_t and D_t: one multiply-add less for each element and token. Returns whether this thread's
/// allow for that.
template <class T, bool kDeferred>
__device__ __forceinline__ bool stage_keys(const StepParams& p, const StepShape& shape,
                                           DecodeKey* keys, std::int64_t b, int head,
                                           std::int64_t first_row, int committed,
                                           float head_log_decay) {
  const int at = static_cast<int>(threadIdx.x) % shape.rows;
  const int part = static_cast<int>(threadIdx.x) / shape.rows;
  // A sum over tokens is one thread's.
  const int step = kDeferred ? 1 : static_cast<int>(blockDim.x) / shape.rows;
  if (kDeferred && part > 0) return true;
  const std::int64_t i = first_row + at;
  const int count = committed + p.tokens;
  float total = 0;
  bool in_range = true;
  for (int first = part; first < count; first += kStagedTogether * step) {
    RawKey<T> raw[kStagedTogether];
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      if (t >= count || i >= p.keys) continue;
      raw[n] = t < committed ? read_key<T>(p, p.committed, b, t, head, i)
                             : read_fresh_key<T>(p, b, t - committed, head, i);
    }
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      if (t >= count) continue;
      const float log_decay = __shfl_sync(kFullWarp, head_log_decay, t) +
                              log_decay_of(p.committed.gk, p.fresh.gk, t < committed, raw[n].gk);
      total = kDeferred ? total + log_decay : log_decay;
      DecodeKey key = key_of(p, raw[n], total);
      if constexpr (kDeferred) {
        in_range = in_range && fabsf(total) <= kMaxDeferred;  // not where it is a NaN
        key.k *= expf(-total);
        key.q *= key.decay;
      }
      keys[t * shape.rows + at] = key;
    }
  }
  return in_range;
}

/// The same of a tile's columns. Calls meanwhile() when the first loads are under way.
template <class T, bool kValueGate, class Meanwhile>
__device__ __forceinline__ void stage_values(const StepParams& p, const StepShape& shape,
                                             const StepScratch& scratch, std::int64_t b, int head,
                                             std::int64_t first_column, int committed,
                                             const Meanwhile& meanwhile) {
  const int at = static_cast<int>(threadIdx.x) % shape.columns;
  const int step = static_cast<int>(blockDim.x) / shape.columns;
  const std::int64_t j = first_column + at;
  const int count = committed + p.tokens;
  RawValue<T> raw[kStagedTogether];
  const auto load = [&](int first) {
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      raw[n] = {};
      if (t >= count || j >= p.values) continue;
      raw[n] = t < committed ? read_value<T>(p, p.committed, b, t, head, j)
                             : read_value<T>(p, p.fresh, b, t - committed, head, j);
    }
  };
  int first = static_cast<int>(threadIdx.x) / shape.columns;
  load(first);
  meanwhile();
  while (first < count) {
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      if (t >= count) continue;
      scratch.values[t * shape.columns + at] = to_float(raw[n].v);
      if constexpr (kValueGate) {
        scratch.value_gates[t * shape.columns + at] =
            log_decay_of(p.committed.gv, p.fresh.gv, t < committed, raw[n].gv);
      }
    }
    first += kStagedTogether * step;
    load(first);
  }
}

// ---- outputs ----

/// o of a tile's columns: the sums over its warps, or zeros of a padding row.
template <class T>
__device__ __forceinline__ void write_step_output(const StepParams& p, const StepShape& shape,
                                                  const float* sums, std::int64_t b, int head,
                                                  std::int64_t first_column, bool is_padding) {
  const int at = static_cast<int>(threadIdx.x) % shape.columns;
  const int step = static_cast<int>(blockDim.x) / shape.columns;
  if (first_column + at >= p.values) return;
  for (int t = static_cast<int>(threadIdx.x) / shape.columns; t < p.tokens; t += step) {
    float sum = 0;
    for (int warp = 0; warp < shape.warps_k && !is_padding; ++warp) {
      sum += sums[(t * shape.warps_k + warp) * shape.columns + at];
    }
    store_output<T>(p, b, t, head, first_column + at, sum);
  }
}

}  // namespace attune::cuda::decode
