// Chunks whose scores are the work of several blocks, each with some of the panels of both sides: what
// one block takes, and how the last of them to be done has the sums of all. Sums are added in the order
// of the panels, whichever block is the last.
#pragma once

#include "cuda/chunk_mma/backward/scores.cuh"

namespace attune::cuda::chunk_mma::backward {

/// Panels of a side.
struct PanelRange {
  int first;
  int end;
};

/// Of a chunk's panels, those of keys and then those of values, what a block takes.
struct PanelShare {
  int block;
  PanelRange keys;
  PanelRange values;

  __device__ __forceinline__ PanelShare(const BackwardParams& p, int number) : block(number) {
    const int of_keys = panels_of(p.keys.channels);
    const int all = of_keys + panels_of(p.values.channels);
    const int first = all * block / p.score_blocks;
    const int end = all * (block + 1) / p.score_blocks;
    keys = {min(first, of_keys), min(end, of_keys)};
    values = {max(first, of_keys) - of_keys, max(end, of_keys) - of_keys};
  }
  __device__ __forceinline__ bool has_keys() const { return keys.first < keys.end; }
  __device__ __forceinline__ bool has_values() const { return values.first < values.end; }
};

/// Of a chunk's blocks the first ones have panels of keys, the last ones panels of values, and one may
/// have both.
struct BlocksOfSides {
  int with_keys;
  int without_values;

  __device__ __forceinline__ explicit BlocksOfSides(const BackwardParams& p) {
    const int of_keys = panels_of(p.keys.channels);
    const int all = of_keys + panels_of(p.values.channels);
    with_keys = (of_keys * p.score_blocks + all - 1) / all;
    without_values = ((of_keys + 1) * p.score_blocks + all - 1) / all - 1;
  }
};

/// A thread's elements of a part, four at a time, and those of other threads beside them.
template <class Own>
__device__ __forceinline__ int place_in_part(int n) {
  return 4 * (n * Own::kThreads + static_cast<int>(threadIdx.x));
}

template <class Own>
__device__ __forceinline__ void store_part(float (&to)[kTokens * kTokens],
                                           const Product<Own>& sums) {
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
    *reinterpret_cast<float4*>(&to[place_in_part<Own>(n)]) = {sums[n][0], sums[n][1], sums[n][2],
                                                              sums[n][3]};
  }
}
template <class Own>
__device__ __forceinline__ void add_part(Product<Own>& sums,
                                         const float (&from)[kTokens * kTokens]) {
#pragma unroll
  for (int n = 0; n < 2 * Own::kColumnBlocks; ++n) {
    const float4 part = __ldcg(reinterpret_cast<const float4*>(&from[place_in_part<Own>(n)]));
    sums[n][0] += part.x;
    sums[n][1] += part.y;
    sums[n][2] += part.z;
    sums[n][3] += part.w;
  }
}

/// Adds up what so many parts have of a side, whose sums are `kSide` of a part.
template <class Own, float (ScorePart::*kSide)[kTokens * kTokens]>
__device__ __forceinline__ void add_parts(Product<Own>& sums, const ScorePart* parts, int count) {
  clear(sums);
#pragma unroll 4
  for (int part = 0; part < count; ++part) add_part<Own>(sums, parts[part].*kSide);
}

/// Leaves this block's sums for the last of the chunk's blocks. Returns whether it is that, which then has
/// the sums of all, and knows whether the chunk is strong in a channel of any.
template <class Own>
__device__ __forceinline__ bool gather_parts(Scores<Own>& scores, bool& strong,
                                             const BackwardParams& p, const Chunk& chunk,
                                             const PanelShare& share) {
  const std::int64_t number = chunk.number * p.heads + chunk.head;
  ScorePart* const parts = p.score_parts + number * p.score_blocks;
  ScorePart& own = parts[share.block];
  if (share.has_keys()) store_part<Own>(own.keys, scores.keys);
  if (share.has_values()) store_part<Own>(own.values, scores.values);
  if (threadIdx.x == 0) own.strong = strong ? 1 : 0;
  __threadfence();
  __syncthreads();  // all of the part is there, for other blocks, too
  bool is_last = false;
  if (threadIdx.x == 0) {
    is_last =
        atomicAdd(&p.score_blocks_done[number], 1U) + 1 == static_cast<unsigned>(p.score_blocks);
  }
  if (__syncthreads_or(is_last ? 1 : 0) == 0) return false;
  __threadfence();
  const BlocksOfSides sides(p);
  add_parts<Own, &ScorePart::keys>(scores.keys, parts, sides.with_keys);
  add_parts<Own, &ScorePart::values>(scores.values, parts + sides.without_values,
                                     p.score_blocks - sides.without_values);
  bool is_strong = false;
  if (threadIdx.x < p.score_blocks) is_strong = __ldcg(&parts[threadIdx.x].strong) != 0;
  strong = __syncthreads_or(is_strong ? 1 : 0) != 0;
  return true;
}

}  // namespace attune::cuda::chunk_mma::backward
