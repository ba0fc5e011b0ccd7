// What a warp does with its part of a state in products on tensor cores: reads it for the new tokens,
// decays and writes it, or keeps what it is after each of them.
#pragma once

#include "cuda/decode/product_operands.cuh"

namespace attune::cuda::decode {

/// Reads, decays and writes two rows of a thread's.
template <class Tile, class Operands>
__device__ __forceinline__ void take_rows(const Operands& operands, int stored, int eight,
                                          RowPair<Tile>& rows, float (&o)[Tile::kColumns / 2][4]) {
  const auto read = operands.read(eight);
  const auto write = operands.write(eight, stored);
  const float2 decay = operands.decay(eight);
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const float2 upper = pair_at<Tile>(rows.upper, m), lower = pair_at<Tile>(rows.lower, m);
    const float state[4] = {upper.x, upper.y, lower.x, lower.y};
    operands.add_reads(o[m], state, read);
    float u[4] = {};
    operands.add_writes(u, m, write);
    set_pair<Tile>(rows.upper, m, fmaf(upper.x, decay.x, u[0]), fmaf(upper.y, decay.x, u[2]));
    set_pair<Tile>(rows.lower, m, fmaf(lower.x, decay.y, u[1]), fmaf(lower.y, decay.y, u[3]));
  }
}

/// Takes a warp's part of a tile through take_rows() and stores it.
template <bool kOfChannels, class T, class Tile>
__device__ __forceinline__ void run_products(const StepParams& p, const ProductShape& shape,
                                             const ProductScratch<T>& scratch, const StepLane& lane,
                                             const ProductBlock& at, const ProductRow& row,
                                             float (&o)[Tile::kColumns / 2][4]) {
  using State = typename Tile::State;
  const StepLane stores = store_lane<Tile>(shape);
  ProductPart part = product_part<Tile>(p, at, stores.row, stores.column);
  if (row.stored == 0) part.rows_left = 0;
  State* to = static_cast<State*>(p.state.data) + row.slot * p.state.sequence + part.offset;
  const std::uint64_t policy = policy_of(shape);
  const std::byte* const tile = warp_tile<Tile>(scratch);
  const ProductOperands<T, Tile, kOfChannels> operands(p, scratch, lane, row);
#pragma unroll 1
  for (int eight = 0; eight < Tile::kWarpRows / kFactorRows; ++eight) {
    RowPair<Tile> rows = load_row_pair<Tile>(tile, eight);
    take_rows<Tile>(operands, row.stored, eight, rows, o);
    store_row_pair<Tile>(to, p.state.k, part, eight * kFactorRows, rows, policy);
    to += kFactorRows * p.state.k;
  }
  operands.finish(o);
}

/// Takes two rows of a thread's from token to token, in fp32, and keeps what they become. `offset`: of
/// the first of them in a state, `row`: counted in the tile.
template <bool kOfChannels, class T, class Tile>
__device__ __forceinline__ void keep_row_pair(const StepParams& p, const ProductScratch<T>& scratch,
                                              const ProductPart& part, std::int64_t offset,
                                              int eight, int row, const TokenValues<Tile>& values,
                                              RowPair<Tile>& rows, std::uint64_t policy) {
  using State = typename Tile::State;
  const int c = lane_index() % 4;
  float s[Tile::kColumns / 2][4];
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const float2 upper = pair_at<Tile>(rows.upper, m), lower = pair_at<Tile>(rows.lower, m);
    s[m][0] = upper.x, s[m][1] = lower.x, s[m][2] = upper.y, s[m][3] = lower.y;
  }
  const T* key = scratch.keys + row - 2 * c + lane_index() / 4;  // of the eight rows, a lane's
  const float* decays = scratch.decays + (kOfChannels ? row : 0);
#pragma unroll 1
  for (int t = 0; t < p.tokens; ++t) {
    const float by = to_float(*key);
    const float own[2] = {t == c ? by : 0, t == c + 4 ? by : 0};
    float2 decay;
    if constexpr (kOfChannels) {
      decay = *reinterpret_cast<const float2*>(decays);
    } else {
      decay = {*decays, *decays};
    }
    key += kTokenStride;
    decays += kOfChannels ? kProductRows : 1;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      float u[4] = {};
      mma_m16n8k8(u, values.left[m], own[0], own[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][e] = fmaf(s[m][e], e % 2 == 0 ? decay.x : decay.y, u[e]);
      set_pair<Tile>(rows.upper, m, s[m][0], s[m][2]);
      set_pair<Tile>(rows.lower, m, s[m][1], s[m][3]);
    }
    auto* const slot = static_cast<State*>(scratch.slots[t]);
    if (slot == nullptr) continue;
    store_row_pair<Tile>(slot + offset, p.state.k, part, eight * kFactorRows, rows, policy);
  }
}

/// Reads a warp's part of a tile, and keeps its states.
template <bool kOfChannels, class T, class Tile>
__device__ __forceinline__ void keep_states(const StepParams& p, const ProductShape& shape,
                                            const ProductScratch<T>& scratch, const StepLane& lane,
                                            const ProductBlock& at, const ProductRow& row,
                                            float (&o)[Tile::kColumns / 2][4]) {
  const StepLane stores = store_lane<Tile>(shape);
  const ProductPart part = product_part<Tile>(p, at, stores.row, stores.column);
  const std::uint64_t policy = policy_of(shape);
  const std::byte* const tile = warp_tile<Tile>(scratch);
  const ProductOperands<T, Tile, kOfChannels> operands(p, scratch, lane, row);
  std::int64_t offset = part.offset;
  const auto values =
      load_values<T, Tile>(scratch, lane, 0, [&](int place) { return place < p.tokens; });
#pragma unroll 1
  for (int eight = 0; eight < Tile::kWarpRows / kFactorRows; ++eight) {
    RowPair<Tile> rows = load_row_pair<Tile>(tile, eight);
    const auto read = operands.read(eight);
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      const float2 upper = pair_at<Tile>(rows.upper, m), lower = pair_at<Tile>(rows.lower, m);
      const float state[4] = {upper.x, upper.y, lower.x, lower.y};
      operands.add_reads(o[m], state, read);
    }
    keep_row_pair<kOfChannels, T, Tile>(p, scratch, part, offset, eight,
                                        lane.row + eight * kFactorRows, values, rows, policy);
    offset += kFactorRows * p.state.k;
  }
  operands.finish(o);
}

}  // namespace attune::cuda::decode
