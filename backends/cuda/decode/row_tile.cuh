// A block's tile of a state whose rows are contiguous: where its threads stand, what they hold of it,
// and a step of one token on it.
//
// A thread holds `rows` vectors of 16 bytes, elements of 16 bits as they are in memory.
#pragma once

#include "cuda/decode/state_vector.cuh"
#include "cuda/decode/token.cuh"

namespace attune::cuda::decode {

/// What a warp's place in a tile is made of.
template <class StateType, class Instance>
struct DecodeTile {
  using State = StateType;
  static constexpr int kColumns = kVectorColumns<State>;  // of a thread
  static constexpr int kRows = Instance::kValue.rows;     // of a thread
  static constexpr int kLanesAcross = Instance::kValue.lanes_across(kColumns);
  static constexpr int kRowStep = Instance::kValue.warp_rows(kColumns);  // from one to the next
  static constexpr int kLastRow = (kRows - 1) * kRowStep;                // counted from the first
  static constexpr int kWarpRows = kRows * kRowStep;
  static constexpr int kWarpColumns = kLanesAcross * kColumns;
  static constexpr int column_offset(int column) { return column; }
};

/// Where a thread stands in its block's tile; `row` is the first of its rows.
struct DecodeLane {
  int warp_k, row, column;
};

template <class Tile>
__device__ __forceinline__ DecodeLane decode_lane(const DecodeConfig& config) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warp_k = quotient(warp, config.warps_v);
  const int first_column = (warp - warp_k * config.warps_v) * Tile::kWarpColumns;
  return {warp_k, warp_k * Tile::kWarpRows + lane / Tile::kLanesAcross,
          first_column + lane % Tile::kLanesAcross * Tile::kColumns};
}

/// The thread's elements of a tile; nothing is read beyond `rows_left` rows.
template <class Tile>
__device__ __forceinline__ void load_tile(float4 (&s)[Tile::kRows],
                                          const typename Tile::State* from, std::int64_t step,
                                          int rows_left, std::uint64_t policy) {
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, from += step) {
    s[r] = make_float4(0, 0, 0, 0);
    if (r * Tile::kRowStep < rows_left) s[r] = load_vector(from, policy);
  }
}

/// Decay, write, read: the tile goes back to memory if the row ends anywhere, and `o` gets what the
/// token reads of it.
/// kFull: every thread of the warp has all of its rows. kValueGate: there is a gv.
template <class Tile, bool kFull, bool kValueGate>
__device__ __forceinline__ void advance_tile(float4 (&s)[Tile::kRows], float (&o)[4],
                                             const DecodeKey* keys, const DecodeValue* values,
                                             float* to, std::int64_t step, int rows_left, bool ends,
                                             std::uint64_t policy) {
  const DecodeValue value[4] = {values[0], values[1], values[2], values[3]};
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, to += step) {
    if (!kFull && r * Tile::kRowStep >= rows_left) break;
    const DecodeKey key = keys[r * Tile::kRowStep];
    s[r].x = advanced(s[r].x, key, value[0], kValueGate);
    s[r].y = advanced(s[r].y, key, value[1], kValueGate);
    s[r].z = advanced(s[r].z, key, value[2], kValueGate);
    s[r].w = advanced(s[r].w, key, value[3], kValueGate);
    if (ends) store_vector(to, s[r], policy);
    o[0] = fmaf(key.q, s[r].x, o[0]);
    o[1] = fmaf(key.q, s[r].y, o[1]);
    o[2] = fmaf(key.q, s[r].z, o[2]);
    o[3] = fmaf(key.q, s[r].w, o[3]);
  }
}

/// The same of 16-bit elements, which are widened a vector at a time. Values stay in registers
/// where each is but one.
template <class Tile, bool kFull, bool kValueGate>
__device__ __forceinline__ void advance_tile(float4 (&s)[Tile::kRows], float (&o)[8],
                                             const DecodeKey* keys, const DecodeValue* values,
                                             typename Tile::State* to, std::int64_t step,
                                             int rows_left, bool ends, std::uint64_t policy) {
  using State = typename Tile::State;
  DecodeValue value[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) value[c] = values[c];
#pragma unroll
  for (int r = 0; r < Tile::kRows; ++r, to += step) {
    if (!kFull && r * Tile::kRowStep >= rows_left) break;
    const DecodeKey key = keys[r * Tile::kRowStep];
    float x[8];
    widen<State>(x, s[r]);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      x[c] = advanced(x[c], key, kValueGate ? values[c] : value[c], kValueGate);
      o[c] = fmaf(key.q, x[c], o[c]);
    }
    if (ends) store_vector(to, narrowed<State>(x), policy);
  }
}

}  // namespace attune::cuda::decode
