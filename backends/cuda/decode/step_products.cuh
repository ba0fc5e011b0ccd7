// A step of several tokens a row whose reads and writes are products on tensor cores.
//
// With a_t the decays of token t, one a key channel, committed tokens first, and S the state that
// the row has in memory:
//
//   o_t = (q_t A_t) S + sum_{s <= t} w_ts v_s      A_t = a_0 ... a_t
//   S'  = A_{m-1} S + sum_{s < m} y_s v_s          y_s = k_s a_{s+1} ... a_{m-1}
//
// where w_ts = <q_t, k_s a_{s+1} ... a_t> and m tokens are stored. So an element is read, takes one
// multiply-add, and is written, however many tokens there are. Factors are products of decays, as
// in the recurrence: none is divided by.
//
// A block asks for its tokens before it knows where its state is, then for the state, and makes the
// tokens into factors and scores while that is on its way to shared memory. So the memory has
// others to serve all the while, and several blocks have room on a multiprocessor.
//
// Products are in TF32: numbers of 16 bits are exact in it, fp32 is the sum of two. The state itself
// is added to in fp32.
#pragma once

#include "cuda/decode/product_scores.cuh"
#include "cuda/decode/product_steps.cuh"
#include "cuda/decode/product_sums.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::decode {

/// Waits for the tokens of a tile and makes them into factors and scores; with the last tile's, what
/// tokens read of each other is done with.
template <class T, class Tile, bool kOfChannels, bool kKeeps>
__device__ __forceinline__ void make_operands(const StepParams& p, const ProductShape& shape,
                                              const ProductScratch<T>& scratch,
                                              const ProductBlock& at, const ProductRow& row,
                                              const RawHeadDecay<T>& head_decay, bool last_tile) {
  if (!kOfChannels && threadIdx.x < kWarpSize) {
    make_head_factors(p, scratch, row, head_decay.log_decay(p));
  }
  if (kKeeps && static_cast<int>(threadIdx.x) < p.tokens) {
    scratch.slots[threadIdx.x] =
        row.kept == kPaddingSlot
            ? nullptr
            : static_cast<typename Tile::State*>(p.state.data) + row.kept * p.state.sequence;
  }
  copy_async_wait<1>();
  __syncthreads();  // the tokens are there
  if constexpr (kOfChannels) {
    make_channel_factors<kKeeps>(p, shape, scratch, at, row, head_decay.log_decay(p));
    __syncthreads();  // the factors and decays are there
    add_scores_of_channels(p, scratch, at, row);
  } else if (threadIdx.x + kWarpSize >= blockDim.x) {
    add_scores_of_head(p, scratch, at, row);
    __syncwarp();  // the scores are there
    if (last_tile) put_score_sums<T, Tile>(p, shape, scratch, row);
  }
}

/// While the launch before this one ends, the first blocks ask the L2 cache for their states. That
/// launch may yet write them, or the slots: the cache is where its writes are seen, and what is read
/// here is used for nothing else.
template <class Tile, bool kKeeps>
__device__ __forceinline__ void prefetch_first_states(const StepParams& p,
                                                      const ProductShape& shape,
                                                      const ProductBlock& at) {
  const unsigned early = multiprocessors() * static_cast<unsigned>(shape.early_blocks);
  if (at.b >= p.rows || blockIdx.y * gridDim.x + blockIdx.x >= early) return;
  const ProductRow row = product_row<kKeeps>(p, at.b, read_product_row<kKeeps>(p, at.b));
  if (!row.is_padding) prefetch_state<Tile>(p, shape, at, row.slot);
}

/// Takes a tile of a head's rows, with its share of what tokens read. Returns whether the row of the
/// batch is padding. A tile reads all that it needs anew, so that nothing waits in registers for the
/// next one, which few problems have.
template <class T, class Tile, bool kOfChannels, bool kKeeps>
__device__ __forceinline__ bool take_tile(const StepParams& p, const ProductShape& shape,
                                          const ProductScratch<T>& scratch, const ProductBlock& at,
                                          bool last_tile) {
  const RawProductRow raw = read_product_row<kKeeps>(p, at.b);
  const StateCopy<Tile> copy(p, shape, scratch, at);
  copy_tokens<kOfChannels>(p, scratch, at);
  RawHeadDecay<T> head_decay;
  if (kOfChannels || threadIdx.x < kWarpSize) head_decay = read_head_decay<T>(p, at);
  const ProductRow row = product_row<kKeeps>(p, at.b, raw);
  if (row.is_padding) return true;
  copy.start(p, row.slot, policy_of(shape));
  make_operands<T, Tile, kOfChannels, kKeeps>(p, shape, scratch, at, row, head_decay, last_tile);
  copy_async_wait<0>();
  __syncwarp();  // the warp's part of the state is there
  const StepLane lane = product_lane<Tile>(shape);
  float o[Tile::kColumns / 2][4] = {};
  if constexpr (kKeeps) {
    keep_states<kOfChannels, T, Tile>(p, shape, scratch, lane, at, row, o);
  } else {
    run_products<kOfChannels, T, Tile>(p, shape, scratch, lane, at, row, o);
  }
  __syncwarp();  // the warp is done with its part of the state
  put_product_sums<Tile>(warp_sums(shape, scratch, warp_index()), p.tokens, o, at.first_row == 0);
  if (kOfChannels && last_tile) {
    __syncthreads();  // the scores are there
    if (threadIdx.x < kWarpSize) put_score_sums<T, Tile>(p, shape, scratch, row);
  }
  return false;
}

/// kOfChannels: there is a gk. kKeeps: there are kept slots.
template <class T, class Tile, bool kOfChannels, bool kKeeps>
__global__ void __launch_bounds__(DecodeConfig::kProductThreads, Tile::kResidentBlocks)
    decode_step_products(const __grid_constant__ StepParams p,
                         const __grid_constant__ ProductShape shape) {
  const ProductScratch<T> scratch(shape);
  const BlockTile block = product_tile_of(shape);
  const auto b = static_cast<int>(blockIdx.y + gridDim.y * blockIdx.z);
  prefetch_first_states<Tile, kKeeps>(p, shape, product_block(p, shape, b, block, 0));
  take_over_from_previous_launch();
  if (b >= p.rows) return;

  bool is_padding = false;
  for (int first_row = 0;; first_row += shape.rows) {
    const bool last_tile = first_row + shape.rows >= p.keys;
    is_padding = take_tile<T, Tile, kOfChannels, kKeeps>(
        p, shape, scratch, product_block(p, shape, b, block, first_row), last_tile);
    if (is_padding || last_tile) break;
    __syncthreads();  // all warps are done with the tile
  }
  copy_async_wait<0>();
  __syncthreads();  // the sums are there
  write_product_output<T, Tile>(p, shape, scratch, product_block(p, shape, b, block, 0),
                                is_padding);
}

/// Calls f with the config's tile. Elements of 16 bits have one line a row or two.
template <class State, class F>
void with_product_tile(const DecodeConfig& config, const F& f) {
  constexpr int kOneLine = DecodeConfig::kStepWarpColumns;
  if constexpr (sizeof(State) == sizeof(float)) {
    with_value<8, 16>(config.rows,
                      [&]<int kRows>() { f.template operator()<ProductTile<State, kRows, 2>>(); });
  } else {
    with_value<kOneLine, 2 * kOneLine>(config.warp_columns, [&]<int kColumns>() {
      f.template operator()<ProductTile<State, 8, kColumns / kOneLine>>();
    });
  }
}

template <class T, class State>
void launch_step_products(const DecodeConfig& config, const StepParams& params,
                          cudaStream_t stream) {
  with_product_tile<State>(config, [&]<class Tile>() {
    ProductShape shape = ProductShape::of(config, {.keys = params.keys,
                                                   .tokens = params.tokens,
                                                   .committed = params.committed_tokens,
                                                   .has_gk = params.fresh.gk.given(),
                                                   .gk_is_f32 = params.fresh.gk.is_f32,
                                                   .keeps_states = params.kept.data != nullptr,
                                                   .state_bytes = static_cast<int>(sizeof(State))});
    dim3 grid = decode_grid(params, shape.columns);
    shape.tiles = static_cast<int>(grid.x / params.heads);
    if (grid.y > 0) grid.z = static_cast<unsigned>((params.rows - 1) / grid.y + 1);
    // Kept states, most of which are written, were slower with more.
    if (config.overlap && params.kept.data == nullptr) shape.early_blocks = 2;
    const LaunchShape launched{
        .grid = grid,
        .block = dim3(static_cast<unsigned>(config.threads())),
        .shared_bytes = static_cast<std::size_t>(std::max(shape.bytes, config.shared_bytes())),
        .overlaps_previous = config.overlap};
    with_value<false, true>(params.kept.data != nullptr, [&]<bool kKeeps>() {
      with_value<false, true>(params.fresh.gk.given(), [&]<bool kOfChannels>() {
        launch<decode_step_products<T, Tile, kOfChannels, kKeeps>>(launched, stream, params, shape);
      });
    });
  });
}

}  // namespace attune::cuda::decode
