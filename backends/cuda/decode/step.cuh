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
#include "cuda/decode/step_tokens.cuh"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::decode {

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

/// As prefetch_first_tiles() of row_tiles.cuh: by the blocks that wait for the launch before, of
/// memory that it may yet write.
template <class Tile>
__device__ __forceinline__ void prefetch_first_part(const StepParams& p, const StepPart& part) {
  using State = typename Tile::State;
  constexpr int kLineColumns = 128 / sizeof(State);
  if (blockIdx.y * gridDim.x + blockIdx.x >= multiprocessors()) return;
  const std::int64_t slot = step_row(p, blockIdx.y).start;
  if (slot == kPaddingSlot || part.column % kLineColumns != 0) return;
  const State* row =
      static_cast<const State*>(p.state.data) + slot * p.state.sequence + part.offset;
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, row += Tile::kRowStep * p.state.k) {
#pragma unroll
    for (int column = 0; column < Tile::kWarpColumns; column += kLineColumns) {
      if (r * Tile::kRowStep < part.rows_left && column < part.columns_left) {
        prefetch_line(row + column);
      }
    }
  }
}

template <class T, class Tile, bool kValueGate>
__global__ void __launch_bounds__(DecodeConfig::kMaxThreads, DecodeConfig::kResidentBlocks)
    decode_step(const __grid_constant__ StepParams p, const __grid_constant__ StepShape shape) {
  const StepScratch scratch(shape, kValueGate);
  const StepLane lane = step_lane<Tile>(shape.warps_v);
  const auto [head, first_column] = block_tile(p, shape.columns);
  if constexpr (Tile::kIsVectors) {
    if (shape.overlap) {
      prefetch_first_part<Tile>(p, step_part<Tile>(p, lane, head, 0, first_column, false));
    }
  }
  take_over_from_previous_launch();

  for (std::int64_t b = blockIdx.y; b < p.rows; b += gridDim.y) {
    const StepRow task = step_row(p, b);
    if (!task.exists) continue;
    const bool is_padding = task.is_padding;
    for (std::int64_t first_row = 0; first_row < p.keys && !is_padding; first_row += shape.rows) {
      const StepPart part =
          step_part<Tile>(p, lane, head, first_row, first_column, shape.evict_first);
      StepPart start = part;
      if (task.start == kPaddingSlot) start.rows_left = 0;  // of zeros
      const typename Tile::Loaded loaded = load_part<Tile>(p, start, task.start);
      const float head_log_decay = head_log_decays<T>(p, task, head, task.committed);
      __syncthreads();  // all warps are done with the tokens and sums before
      const auto run = [&]<Decays kDecays>() {
        Tile tile = widened<Tile>(loaded);
        run_tokens<kDecays>(p, shape, scratch, lane, part, task, tile, first_row == 0);
      };
      constexpr bool kMayDefer = Tile::kIsVectors && !kValueGate;
      const auto stage = [&]<bool kDeferred>() {
        return stage_keys<T, kDeferred>(p, shape, scratch.keys, task.at, head, first_row,
                                        task.committed, head_log_decay);
      };
      bool in_range = true;
      stage_values<T, kValueGate>(p, shape, scratch, task.at, head, first_column, task.committed,
                                  [&] { in_range = stage.template operator()<kMayDefer>(); });
      if constexpr (kMayDefer) {
        if (__syncthreads_and(in_range)) {  // the tokens are there
          run.template operator()<Decays::kDeferred>();
          continue;
        }
        stage.template operator()<false>();
      }
      __syncthreads();  // the tokens are there
      run.template operator()<kValueGate ? Decays::kOfValues : Decays::kTaken>();
    }
    __syncthreads();  // the sums are there
    write_step_output<T>(p, shape, scratch.sums, task.at, head, first_column, is_padding);
  }
}

template <class Tile>
StepShape step_shape(const StepParams& p, int warps_k, int warps_v, const DecodeConfig& config) {
  return {.warps_k = warps_k,
          .warps_v = warps_v,
          .rows = Tile::kWarpRows * warps_k,
          .columns = Tile::kWarpColumns * warps_v,
          .tokens = p.tokens + p.committed_tokens,
          .evict_first = config.evict_first,
          .overlap = config.overlap};
}

template <class T, class Tile>
void launch_step_tiles(const StepParams& params, const StepShape& shape, int shared_bytes,
                       cudaStream_t stream) {
  const auto needed =
      DecodeConfig::step_shared_bytes(shape.rows, shape.columns, shape.warps_k, params.tokens,
                                      params.committed_tokens, params.fresh.gv.given());
  const LaunchShape launched{
      .grid = decode_grid(params, shape.columns),
      .block = dim3(static_cast<unsigned>(kWarpSize * shape.warps_k * shape.warps_v)),
      .shared_bytes = static_cast<std::size_t>(std::max(needed, shared_bytes)),
      .overlaps_previous = shape.overlap};
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
    const StepShape shape = step_shape<Tile>(params, config.warps_k, config.warps_v, config);
    launch_step_tiles<T, Tile>(params, shape, config.shared_bytes(), stream);
  } else if (std::abs(params.state.v) <= std::abs(params.state.k)) {
    using Tile = StepTile<State, StepLayout::kAlongValues>;
    launch_step_tiles<T, Tile>(params, step_shape<Tile>(params, kWarps, 1, config), 0, stream);
  } else {
    using Tile = StepTile<State, StepLayout::kAlongKeys>;
    launch_step_tiles<T, Tile>(params, step_shape<Tile>(params, 1, kWarps, config), 0, stream);
  }
}

}  // namespace attune::cuda::decode
