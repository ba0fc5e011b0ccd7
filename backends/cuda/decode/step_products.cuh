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
// in the recurrence: none is divided by. While the loads of a tile are under way, its tokens are
// copied to shared memory and made into factors and scores.
//
// Products are in TF32: numbers of 16 bits are exact in it, fp32 is the sum of two. The state itself
// is added to in fp32.
#pragma once

#include "cuda/decode/product_tile.cuh"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/launch.hpp"

namespace attune::cuda::decode {

/// kKeeps: there are kept slots.
template <class T, class Tile, bool kKeeps>
__global__ void __launch_bounds__(Tile::kMaxThreads, Tile::kResidentBlocks)
    decode_step_products(const __grid_constant__ StepParams p,
                         const __grid_constant__ StepShape shape) {
  ProductScratch<T>& scratch = ProductScratch<T>::get();
  const StepLane lane = product_lane<Tile>(shape.warps_v);
  const auto [head, first_column] = block_tile(p, shape.columns);
  const std::int64_t b = blockIdx.y + static_cast<std::int64_t>(gridDim.y) * blockIdx.z;
  take_over_from_previous_launch();
  if (b >= p.rows) return;

  const ProductRow row = product_row<kKeeps>(p, b);
  for (std::int64_t first_row = 0; first_row < p.keys && !row.is_padding; first_row += shape.rows) {
    const ProductBlock block = product_block(p, shape, b, head, first_row, first_column);
    const StepPart part =
        step_part<Tile>(p, lane, head, first_row, first_column, shape.evict_first);
    if (first_row > 0) __syncthreads();  // all warps are done with the tile before
    copy_tokens<T>(p, scratch, block, row);
    const RawGate<T> gate = read_head_gate<T>(p, block, row);
    const float constant = constant_decay(p.gamma, 0, head);
    typename Tile::Loaded loaded = load_part<Tile>(p, part, row.slot);
    if (first_row == 0) clear_scores(scratch);
    copy_async_wait<0>();
    __syncthreads();  // the tokens are there
    make_factors<T>(p, scratch, block, row, constant + log_decay_of(p.fresh.g, gate));
    __syncthreads();  // the factors are there
    add_scores<T>(p, scratch, block, row);
    float o[Tile::kColumns / 2][4] = {};
    if constexpr (kKeeps) {
      keep_states<T, Tile>(p, scratch, lane, part, row, loaded, o);
    } else {
      run_products<T, Tile>(p, scratch, lane, part, row, loaded, o);
    }
    if (first_row + shape.rows >= p.keys) {
      __syncthreads();  // the scores are there
      if (lane.warp_k == 0) {
        add_products_of_scores<T, Tile>(scratch, lane, row.committed + p.tokens, o);
      }
    }
    put_product_sums<Tile>(p, shape, scratch.sums, lane, o, first_row == 0);
  }
  __syncthreads();  // the sums are there
  write_step_output<T>(p, shape, scratch.sums, b, head, first_column, row.is_padding);
}

/// Queues it for tiles whose threads have kRows rows.
template <class T, class State, int kRows>
void launch_product_tiles(const DecodeConfig& config, const StepParams& params,
                          cudaStream_t stream) {
  using Tile = ProductTile<State, kRows>;
  const StepShape shape{.warps_k = config.warps_k,
                        .warps_v = config.warps_v,
                        .rows = Tile::kWarpRows * config.warps_k,
                        .columns = Tile::kWarpColumns * config.warps_v,
                        .tokens = params.tokens + params.committed_tokens,
                        .evict_first = config.evict_first,
                        .overlap = config.overlap};
  dim3 grid = decode_grid(params, shape.columns);
  if (grid.y > 0) grid.z = static_cast<unsigned>((params.rows - 1) / grid.y + 1);
  const LaunchShape launched{
      .grid = grid,
      .block = dim3(static_cast<unsigned>(config.threads())),
      .shared_bytes = std::max(ProductScratch<T>::bytes(params, shape),
                               static_cast<std::size_t>(config.shared_bytes())),
      .overlaps_previous = shape.overlap};
  with_value<false, true>(params.kept.data != nullptr, [&]<bool kKeeps>() {
    launch<decode_step_products<T, Tile, kKeeps>>(launched, stream, params, shape);
  });
}

template <class T, class State>
void launch_step_products(const DecodeConfig& config, const StepParams& params,
                          cudaStream_t stream) {
  with_value<8, 16>(config.rows, [&]<int kRows>() {
    if constexpr (ProductTile<State, kRows>::kIsCompiled) {
      launch_product_tiles<T, State, kRows>(config, params, stream);
    } else {
      throw_no_instance("this tile of f32 states");
    }
  });
}

}  // namespace attune::cuda::decode
