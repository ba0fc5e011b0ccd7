// Segments that are walked from zeros, so that no launch goes ahead of their walk: what a segment starts
// from is added behind it, to the outputs that it reaches.
//
//   o_i = o'_i + S^T q'_i     o' by the segment alone, S what those before it leave, decayed to i's chunk
//
// Of the chunks that a start reaches, a block keeps q' in shared memory, as long as there is room, or in the
// workspace, the step of the decays there, too, and o' in the outputs. It says what its segment adds to the
// state, waits for the segments before its own, and makes what these outputs lack (late_starts.cuh). Where
// channels decay by half a chunk to a few, few chunks are reached.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/sequence_parts.hpp"

namespace attune::cuda::channels {

/// A decay from a segment's start on, of which nothing is left in a smaller one; and its log2.
inline constexpr float kLeastLeft = 0x1p-30F;
inline constexpr float kLeastLeftLog2 = -30.0F;

/// Of [chunk, H, value tile, slice of keys], and of [saved state, value tile].
struct LateStarts {
  std::byte* queries = nullptr;  // q' as it lies in shared memory, of chunks that do not stay there
  int in_shared = 0;             // of a segment's chunks, the first ones, that do
  float* decays = nullptr;       // [keys]: 2^r
  unsigned* published = nullptr;  // not 0 where what a segment adds is there
  std::int64_t flags = 0;         // of these

  constexpr bool are_given() const { return published != nullptr; }
};

/// Of a problem's blocks: what of the workspace they keep chunks in.
struct KeptSizes {
  std::int64_t sequences;
  std::int64_t tokens;
  bool packed;
  std::int64_t blocks;  // that share a chunk: of all heads, value tiles and slices of keys
  std::int64_t keys;    // padded
  std::int64_t chunk;   // tokens
  std::int64_t states;  // saved, of all value tiles
};

inline LateStarts place_late_starts(WorkspaceParts& parts, const KeptSizes& sizes) {
  constexpr std::int64_t kFloat = sizeof(float), kElement = 2;
  const std::int64_t chunks =
      part_count(sizes.sequences, sizes.tokens, sizes.packed, sizes.chunk) * sizes.blocks;
  LateStarts late;
  late.queries = parts.take<std::byte>(chunks * sizes.chunk * sizes.keys * kElement);
  late.decays = parts.take<float>(chunks * sizes.keys * kFloat);
  late.flags = sizes.states;
  late.published = parts.take<unsigned>(sizes.states * kFloat);
  return late;
}

}  // namespace attune::cuda::channels
