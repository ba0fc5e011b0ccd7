// A thread's part of a state in products on tensor cores, and what is done with it.
#pragma once

#include "cuda/decode/product_tokens.cuh"
#include "cuda/decode/step_tile.cuh"

namespace attune::cuda::decode {

/// Rows of vectors, with lanes where the tensor cores want them: lane / 4 is the place along V,
/// lane % 4 the row.
template <class StateType, int kRowCount>
struct ProductTile : StepTile<StateType, StepLayout::kRowVectors> {
  using Base = StepTile<StateType, StepLayout::kRowVectors>;
  static constexpr int kRows = kRowCount;
  static constexpr int kWarpRows = kRows * Base::kRowStep;
  static constexpr int kLoads = kRows * Base::kVectors;
  static constexpr bool kIsCompiled = kLoads <= DecodeConfig::kProductLoads;
  static constexpr int kMaxThreads = DecodeConfig::product_threads(kLoads);
  static constexpr int kResidentBlocks = kLoads == DecodeConfig::kProductLoads ? 2 : 5;
  struct Loaded {
    float4 vectors[kRows][Base::kVectors];
  };
};

template <class Tile>
__device__ __forceinline__ StepLane product_lane(int warps_v) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warp_k = quotient(warp, warps_v);
  return {warp_k, warp_k * Tile::kWarpRows + lane % 4,
          (warp - warp_k * warps_v) * Tile::kWarpColumns + lane / 4 * Tile::kVector};
}

/// A warp's operands of tokens: what token lane % 4, and the fourth behind it, have of the thread's
/// columns, in pairs. Tokens from `count` on are zero.
template <class Tile>
struct TokenValues {
  std::uint32_t pairs[Tile::kColumns / 2][2];
};
template <class T, class Tile>
__device__ __forceinline__ TokenValues<Tile> load_values(const T* values, int first, int count) {
  const int token = first + static_cast<int>(threadIdx.x) % 4;
  TokenValues<Tile> loaded;
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const T* from = values + (token + 4 * n) * kProductColumns + Tile::column_offset(2 * m);
      const bool exists = token + 4 * n < count;
      loaded.pairs[m][n] = exists ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
    }
  }
  return loaded;
}
/// u += what the tokens have of columns 2 m and 2 m + 1, times `by`.
template <class T, class Tile>
__device__ __forceinline__ void multiply_values(float (&u)[4], const TokenValues<Tile>& values,
                                                int m, const RightOperand<2>& by) {
  const float2 first = unpack<T>(values.pairs[m][0]), second = unpack<T>(values.pairs[m][1]);
  const float left[4] = {first.x, first.y, second.x, second.y};
  mma_m16n8k8(u, left, by.low[0], by.low[1]);
  mma_m16n8k8(u, left, by.high[0], by.high[1]);
}

/// Columns 2 m and 2 m + 1 of a thread's part of a row, as they lie in memory.
template <class Tile>
__device__ __forceinline__ float2 pair_at(const float4 (&row)[Tile::kVectors], int m) {
  if constexpr (Tile::kVectors > 1) {
    const float4& vector = row[m / 2];
    return m % 2 == 0 ? float2{vector.x, vector.y} : float2{vector.z, vector.w};
  } else {
    const float words[4] = {row[0].x, row[0].y, row[0].z, row[0].w};
    return unpack<typename Tile::State>(__float_as_uint(words[m]));
  }
}
template <class Tile>
__device__ __forceinline__ void set_pair(float4 (&row)[Tile::kVectors], int m, float low,
                                         float high) {
  if constexpr (Tile::kVectors > 1) {
    float4& vector = row[m / 2];
    (m % 2 == 0 ? vector.x : vector.z) = low;
    (m % 2 == 0 ? vector.y : vector.w) = high;
  } else {
    const float word = __uint_as_float(pack<typename Tile::State>(low, high));
    (m == 0 ? row[0].x : m == 1 ? row[0].y : m == 2 ? row[0].z : row[0].w) = word;
  }
}

/// o += what tokens read of two columns of two rows.
template <class Tile>
__device__ __forceinline__ void read_pairs(float (&o)[4], const float2& upper, const float2& lower,
                                           const RightOperand<2>& read) {
  const float state[4] = {upper.x, upper.y, lower.x, lower.y};
  mma_m16n8k8(o, state, read.low[0], read.low[1]);
  if constexpr (sizeof(typename Tile::State) == sizeof(float)) {
    float low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = state[i] - truncate_tf32(state[i]);
    mma_m16n8k8(o, low, read.high[0], read.high[1]);
  }
  mma_m16n8k8(o, state, read.high[0], read.high[1]);
}

/// Reads, decays and writes two rows of a thread's: `read` and `write` are the operands of the
/// tokens, `values` what they have of its columns.
template <class T, class Tile>
__device__ __forceinline__ void take_rows(float4 (&first)[Tile::kVectors],
                                          float4 (&second)[Tile::kVectors],
                                          float (&o)[Tile::kColumns / 2][4],
                                          const TokenValues<Tile>& values,
                                          const RightOperand<2>& read, const RightOperand<2>& write,
                                          const float2& decay) {
#pragma unroll
  for (int m = 0; m < Tile::kColumns / 2; ++m) {
    const float2 upper = pair_at<Tile>(first, m), lower = pair_at<Tile>(second, m);
    read_pairs<Tile>(o[m], upper, lower, read);
    float u[4] = {};
    multiply_values<T>(u, values, m, write);
    set_pair<Tile>(first, m, fmaf(upper.x, decay.x, u[0]), fmaf(upper.y, decay.x, u[2]));
    set_pair<Tile>(second, m, fmaf(lower.x, decay.y, u[1]), fmaf(lower.y, decay.y, u[3]));
  }
}

/// A pointer whose value the compiler knows nothing of: what is computed of it is not kept in
/// registers from where the same was computed before.
template <class Element>
__device__ __forceinline__ void forget_origin(Element*& pointer) {
  asm volatile("" : "+l"(pointer));
}

/// Takes a warp's part of a tile through take_rows() and stores it.
template <class T, class Tile>
__device__ __forceinline__ void run_products(const StepParams& p, ProductScratch<T>& scratch,
                                             const StepLane& lane, const StepPart& part,
                                             const ProductRow& row, typename Tile::Loaded& loaded,
                                             float (&o)[Tile::kColumns / 2][4]) {
  using State = typename Tile::State;
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int c = static_cast<int>(threadIdx.x) % 4;
  const int first = lane.row - c;  // of the warp
  const float* reads = &scratch.reads[g][first + c];
  const float* writes = &scratch.writes[c][first + g / 2 + g % 2 * 4];
  const float* kept = &scratch.kept[first + c];
  State* to = static_cast<State*>(p.state.data) + row.slot * p.state.sequence + part.offset;
  forget_origin(to);
  const std::uint64_t policy = part.policy();
  const int rows_left = row.stored > 0 ? part.rows_left : 0;
  const auto values = load_values<T, Tile>(&scratch.values[0][lane.column], 0, row.stored);
#pragma unroll
  for (int r = 0; r < Tile::kRows; r += 2) {
    RightOperand<2> read, write;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      read.set(e, reads[Tile::kRowStep * (r + e)]);
      write.set(e, writes[Tile::kRowStep * r + 4 * e * (kProductRows + 8)]);
    }
    const float2 decay = {kept[Tile::kRowStep * r], kept[Tile::kRowStep * (r + 1)]};
    take_rows<T, Tile>(loaded.vectors[r], loaded.vectors[r + 1], o, values, read, write, decay);
#pragma unroll
    for (int e = 0; e < 2; ++e, to += Tile::kRowStep * p.state.k) {
      if ((r + e) * Tile::kRowStep >= rows_left) continue;
#pragma unroll
      for (int n = 0; n < Tile::kVectors; ++n) {
        const int column = Tile::column_offset(n * Tile::kVector);
        if (column < part.columns_left) store_vector(to + column, loaded.vectors[r + e][n], policy);
      }
    }
  }
}

/// Takes a thread's part of a row from one token to the next, in fp32, and keeps what it becomes:
/// `row` is the thread's, counted in the tile.
template <class T, class Tile>
__device__ __forceinline__ void keep_row(const StepParams& p, const ProductScratch<T>& scratch,
                                         const StepLane& lane, const StepPart& part,
                                         const ProductRow& kept,
                                         const float4 (&from)[Tile::kVectors], int r) {
  using State = typename Tile::State;
  float s[Tile::kColumns];
#pragma unroll
  for (int n = 0; n < Tile::kVectors; ++n) widen<State>(s + n * Tile::kVector, from[n]);
  const int row = lane.row + r * Tile::kRowStep;
  const std::int64_t offset = part.offset + r * Tile::kRowStep * p.state.k;
  const std::uint64_t policy = part.policy();
  const bool exists = r * Tile::kRowStep < part.rows_left;
#pragma unroll 1
  for (int t = 0; t < p.tokens; ++t) {
    const float decay = scratch.decays[t][row];
    const float key = to_float(scratch.keys[t][row]);
#pragma unroll
    for (int c = 0; c < Tile::kColumns; c += 2) {
      const float2 value = unpack<T>(*reinterpret_cast<const std::uint32_t*>(
          &scratch.values[t][lane.column + Tile::column_offset(c)]));
      s[c] = fmaf(s[c], decay, key * value.x);
      s[c + 1] = fmaf(s[c + 1], decay, key * value.y);
    }
    const std::int64_t slot = __shfl_sync(kFullWarp, kept.kept, t);
    if (slot == kPaddingSlot || !exists) continue;
    State* const to = static_cast<State*>(p.state.data) + slot * p.state.sequence + offset;
#pragma unroll
    for (int n = 0; n < Tile::kVectors; ++n) {
      const int column = Tile::column_offset(n * Tile::kVector);
      if (column >= part.columns_left) continue;
      store_vector(to + column, narrowed<State>(s + n * Tile::kVector), policy);
    }
  }
}

/// Reads a warp's part of a tile, and keeps its states.
template <class T, class Tile>
__device__ __forceinline__ void keep_states(const StepParams& p, const ProductScratch<T>& scratch,
                                            const StepLane& lane, const StepPart& part,
                                            const ProductRow& row, typename Tile::Loaded& loaded,
                                            float (&o)[Tile::kColumns / 2][4]) {
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const float* reads = &scratch.reads[g][lane.row];
#pragma unroll
  for (int r = 0; r < Tile::kRows; r += 2) {
    RightOperand<2> read;
#pragma unroll
    for (int e = 0; e < 2; ++e) read.set(e, reads[Tile::kRowStep * (r + e)]);
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      read_pairs<Tile>(o[m], pair_at<Tile>(loaded.vectors[r], m),
                       pair_at<Tile>(loaded.vectors[r + 1], m), read);
    }
    keep_row<T, Tile>(p, scratch, lane, part, row, loaded.vectors[r], r);
    keep_row<T, Tile>(p, scratch, lane, part, row, loaded.vectors[r + 1], r + 1);
  }
}

/// Adds what new tokens read of the tokens themselves.
template <class T, class Tile>
__device__ __forceinline__ void add_products_of_scores(ProductScratch<T>& scratch,
                                                       const StepLane& lane, int count,
                                                       float (&o)[Tile::kColumns / 2][4]) {
  const int g = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  const int c = static_cast<int>(threadIdx.x) % 4;
  for (int first = 0; first < count; first += kProductTokens) {
    const auto values = load_values<T, Tile>(&scratch.values[0][lane.column], first, count);
    RightOperand<2> score;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      score.set(e, scratch.scores[first + c + 4 * e][g]);
    }
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) multiply_values<T>(o[m], values, m, score);
  }
}

/// Puts a warp's sums where all warps' are added up.
template <class Tile>
__device__ __forceinline__ void put_product_sums(const StepParams& p, const StepShape& shape,
                                                 float* sums, const StepLane& lane,
                                                 const float (&o)[Tile::kColumns / 2][4],
                                                 bool first_tile) {
  const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int t = 2 * c + e;
    if (t >= p.tokens) continue;
    float* to = sums + (t * shape.warps_k + lane.warp_k) * shape.columns + lane.column;
#pragma unroll
    for (int m = 0; m < Tile::kColumns / 2; ++m) {
      auto& pair = *reinterpret_cast<float2*>(to + Tile::column_offset(2 * m));
      const float2 before = first_tile ? float2{0, 0} : pair;
      pair = {before.x + o[m][e], before.y + o[m][2 + e]};
    }
  }
}

}  // namespace attune::cuda::decode
