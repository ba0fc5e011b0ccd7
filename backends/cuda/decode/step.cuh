// Any decode step: several tokens a row, kept states, replay, pools in 16 bits of any strides,
// stochastic rounding.
//
// A block takes one head of one row of the batch, some columns of its state. The loads of a tile
// are under way while all of its tokens are staged in shared memory, committed ones first; then
// threads take their elements through the tokens without a barrier. What a token reads is summed
// by threads, lanes and, at the end, over warps and tiles, always in the same order. A state is
// read by the thread that writes it, so that it may be kept in the slot that it came from.
#pragma once

#include <cstdlib>

#include "cuda/decode/step_tile.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::decode {

/// A block's tile, the same for all blocks of a launch.
struct StepShape {
  int warps_k = 1;
  int warps_v = 1;
  int rows = 0;     // of the tile
  int columns = 0;  // of the tile, no more than threads
  int tokens = 1;   // staged at a time: all of a row's
  bool evict_first = false;
};

template <class Tile>
StepShape step_shape(const StepParams& p, int warps_k, int warps_v, bool evict_first) {
  return {.warps_k = warps_k,
          .warps_v = warps_v,
          .rows = Tile::kWarpRows * warps_k,
          .columns = Tile::kWarpColumns * warps_v,
          .tokens = p.tokens + p.committed_tokens,
          .evict_first = evict_first};
}

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

struct StepRow {
  std::int64_t start;  // the slot that it starts from, or kPaddingSlot
  std::int64_t kept;   // with kept slots: in lane t, where the state after token t goes
  int committed;       // tokens that its state takes first, and is stored after
};

__device__ __forceinline__ StepRow step_row(const StepParams& p, std::int64_t b) {
  StepRow row{.start = kPaddingSlot, .kept = kPaddingSlot, .committed = 0};
  const std::int64_t accepted =
      p.accepted.data == nullptr ? 0 : number_at(p.accepted, b * p.accepted.stride);
  if (p.kept.data == nullptr) {
    if (accepted < 0 || accepted > p.committed_tokens) return row;
    row.start = slot_of(p, b);
    row.committed = static_cast<int>(accepted);
    return row;
  }
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane < p.tokens) {
    row.kept = slot_or_padding(p, number_at(p.kept, b * p.kept.stride + lane * p.kept_token));
  }
  if (accepted < 1 || accepted > p.tokens) return row;
  row.start = __shfl_sync(kFullWarp, row.kept, static_cast<int>(accepted) - 1);
  return row;
}

/// Where the state after token n goes, committed ones counted; kPaddingSlot: nowhere.
__device__ __forceinline__ std::int64_t slot_after(const StepParams& p, const StepRow& row, int n) {
  if (p.kept.data != nullptr) return __shfl_sync(kFullWarp, row.kept, n);
  const int last = p.committed_tokens > 0 ? row.committed : p.tokens;
  return n + 1 == last ? row.start : kPaddingSlot;
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
__device__ __forceinline__ float head_log_decays(const StepParams& p, std::int64_t b, int head,
                                                 int committed) {
  static_assert(2 * ops::kMaxStepTokens <= kWarpSize);
  const int t = static_cast<int>(threadIdx.x) % kWarpSize;
  const float constant = constant_decay(p.gamma, 0, head);
  if (t >= committed + p.tokens) return constant;
  const GateView& g = p.fresh.g;
  return constant + (t < committed
                         ? log_decay_of(p.committed.g, read_gate<T>(p.committed.g, b, t, head, 0))
                         : log_decay_of(g, read_gate<T>(g, b, t - committed, head, 0)));
}

/// How far decays may take a state, as a natural logarithm, before they are not deferred: numbers
/// stay well inside of fp32, and a sum of logarithms is exact to 1e-6.
inline constexpr float kMaxDeferred = 20;

/// Of all tokens of a row, what rows first_row .. of a tile take. Threads have one row each, those of
/// a warp have the same tokens.
///
/// With deferred decays, D_t = exp(sum of the log decays of tokens 0 .. t), a key has k / D_t, q D_t
/// and D_t: one multiply-add less for each element and token. Returns whether this thread's allow
/// for that.
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

/// The same of a tile's columns.
template <class T>
__device__ __forceinline__ void stage_values(const StepParams& p, const StepShape& shape,
                                             const StepScratch& scratch, std::int64_t b, int head,
                                             std::int64_t first_column, int committed) {
  const int at = static_cast<int>(threadIdx.x) % shape.columns;
  const int step = static_cast<int>(blockDim.x) / shape.columns;
  const std::int64_t j = first_column + at;
  const int count = committed + p.tokens;
  for (int first = static_cast<int>(threadIdx.x) / shape.columns; first < count;
       first += kStagedTogether * step) {
    RawValue<T> raw[kStagedTogether];
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      if (t >= count || j >= p.values) continue;
      raw[n] = t < committed ? read_value<T>(p, p.committed, b, t, head, j)
                             : read_value<T>(p, p.fresh, b, t - committed, head, j);
    }
#pragma unroll
    for (int n = 0; n < kStagedTogether; ++n) {
      const int t = first + n * step;
      if (t >= count) continue;
      scratch.values[t * shape.columns + at] = to_float(raw[n].v);
      if (p.fresh.gv.given()) {
        scratch.value_gates[t * shape.columns + at] =
            log_decay_of(p.committed.gv, p.fresh.gv, t < committed, raw[n].gv);
      }
    }
  }
}

// ---- the tokens ----

/// Takes a tile through all tokens. `first_tile`: of the head's rows; later ones add to its sums.
template <Decays kDecays, class Tile>
__device__ __forceinline__ void run_tokens(const StepParams& p, const StepShape& shape,
                                           const StepScratch& scratch, const StepLane& lane,
                                           const StepPart& part, const StepRow& row, Tile& tile,
                                           bool first_tile) {
  const DecodeKey* keys = scratch.keys + lane.row;
  const float* values = scratch.values + lane.column;
  const float* value_gates = scratch.value_gates + lane.column;
  float* sums = scratch.sums + lane.warp_k * shape.columns + lane.column;
  const int count = row.committed + p.tokens;
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    float o[Tile::kColumns] = {};
    if (n < row.committed) {
      advance<kDecays, false>(tile, o, keys, values, value_gates);
    } else {
      advance<kDecays, true>(tile, o, keys, values, value_gates);
    }
    const std::int64_t slot = slot_after(p, row, n);
    if (slot != kPaddingSlot) store_part<kDecays>(p, part, tile, keys, slot);
    if (n >= row.committed) {
      sum_over_lanes<Tile>(o, sums, [first_tile](float* to, const auto& some) {
        if (first_tile) {
          store_sums(to, some);
        } else {
          add_sums(to, some);
        }
      });
      sums += shape.warps_k * shape.columns;
    }
    keys += shape.rows;
    values += shape.columns;
    value_gates += shape.columns;
  }
}

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

template <class T, class Tile, bool kValueGate>
__global__ void __launch_bounds__(DecodeConfig::kMaxThreads, DecodeConfig::kResidentBlocks)
    decode_step(const __grid_constant__ StepParams p, const __grid_constant__ StepShape shape) {
  const StepScratch scratch(shape, kValueGate);
  const StepLane lane = step_lane<Tile>(shape.warps_v);
  const int tiles = tile_count(p, shape.columns);
  const int head = static_cast<int>(blockIdx.x) / tiles;
  const std::int64_t first_column = static_cast<int>(blockIdx.x) % tiles * shape.columns;
  const std::int64_t column = first_column + lane.column;
  take_over_from_previous_launch();

  for (std::int64_t b = blockIdx.y; b < p.rows; b += gridDim.y) {
    const StepRow does = step_row(p, b);
    const bool is_padding = does.start == kPaddingSlot;
    for (std::int64_t first_row = 0; first_row < p.keys && !is_padding; first_row += shape.rows) {
      const std::int64_t row = first_row + lane.row;
      const std::int64_t rows_left = min(p.keys - row, std::int64_t{Tile::kWarpRows});
      const StepPart part{.offset = head * p.state.head + row * p.state.k + column * p.state.v,
                          .row = head * p.keys + row,
                          .column = static_cast<int>(column),
                          .rows_left = static_cast<int>(rows_left),
                          .columns_left = static_cast<int>(p.values - column),
                          .evict_first = shape.evict_first};
      const typename Tile::Loaded loaded = load_part<Tile>(p, part, does.start);
      const float head_log_decay = head_log_decays<T>(p, b, head, does.committed);
      __syncthreads();  // all warps are done with the tokens and sums before
      stage_values<T>(p, shape, scratch, b, head, first_column, does.committed);
      const auto run = [&]<Decays kDecays>() {
        Tile tile = widened<Tile>(loaded);
        run_tokens<kDecays>(p, shape, scratch, lane, part, does, tile, first_row == 0);
      };
      if constexpr (Tile::kIsVectors && !kValueGate) {
        const bool in_range = stage_keys<T, true>(p, shape, scratch.keys, b, head, first_row,
                                                  does.committed, head_log_decay);
        if (__syncthreads_and(in_range)) {  // the tokens are there
          run.template operator()<Decays::kDeferred>();
          continue;
        }
      }
      stage_keys<T, false>(p, shape, scratch.keys, b, head, first_row, does.committed,
                           head_log_decay);
      __syncthreads();  // the tokens are there
      run.template operator()<kValueGate ? Decays::kOfValues : Decays::kTaken>();
    }
    __syncthreads();  // the sums are there
    write_step_output<T>(p, shape, scratch.sums, b, head, first_column, is_padding);
  }
}

template <class T, class Tile>
void launch_step_tiles(const StepParams& params, const StepShape& shape, int shared_bytes,
                       bool overlap, cudaStream_t stream) {
  const auto needed =
      DecodeConfig::step_shared_bytes(shape.rows, shape.columns, shape.warps_k, params.tokens,
                                      params.committed_tokens, params.fresh.gv.given());
  const LaunchShape launched{
      .grid = decode_grid(params, shape.columns),
      .block = dim3(static_cast<unsigned>(kWarpSize * shape.warps_k * shape.warps_v)),
      .shared_bytes = static_cast<std::size_t>(std::max(needed, shared_bytes)),
      .overlaps_previous = overlap};
  if (params.fresh.gv.given()) {
    launch<decode_step<T, Tile, true>>(launched, stream, params, shape);
  } else {
    launch<decode_step<T, Tile, false>>(launched, stream, params, shape);
  }
}

template <class T, class State>
void launch_decode_step(const DecodeConfig& config, const StepParams& params, bool row_vectors,
                        cudaStream_t stream) {
  constexpr int kWarps = DecodeConfig::kMaxThreads / kWarpSize;
  if (row_vectors) {
    using Tile = StepTile<State, StepLayout::kRowVectors>;
    launch_step_tiles<T, Tile>(
        params, step_shape<Tile>(params, config.warps_k, config.warps_v, config.evict_first),
        config.shared_bytes(), config.overlap, stream);
  } else if (std::abs(params.state.v) <= std::abs(params.state.k)) {
    using Tile = StepTile<State, StepLayout::kAlongValues>;
    launch_step_tiles<T, Tile>(params, step_shape<Tile>(params, kWarps, 1, false), 0,
                               config.overlap, stream);
  } else {
    using Tile = StepTile<State, StepLayout::kAlongKeys>;
    launch_step_tiles<T, Tile>(params, step_shape<Tile>(params, 1, kWarps, false), 0,
                               config.overlap, stream);
  }
}

}  // namespace attune::cuda::decode
