// Chunks of the kernels on wgmma: 64 tokens, the rows of one product.
//
// Chunk m of a sequence is its tokens 64 m to 64 m + 63 in memory, whatever the direction of time:
// only the last one has fewer. What a kernel leaves in the workspace for every chunk of a head lies
// in slots, in the order of memory: a sequence of a batch has as many as it has chunks, a packed
// one that begins at token b the slots from b / 64 + n on, n its number.
#pragma once

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/tiles/panel.hpp"

namespace attune::cuda {

inline constexpr int kChunkTokens = 64;
/// A panel of its tiles: a multiple of 1024, as the swizzle needs.
inline constexpr int kPanelBytes = kChunkTokens * kPanelRowBytes;

/// Below this total decay, what survives of a state over a chunk is less than the rounding of what
/// else there is in 16-bit products.
inline constexpr float kVanishingDecay = 0x1p-12F;

constexpr std::int64_t chunks_of(std::int64_t tokens) {
  return (tokens + kChunkTokens - 1) / kChunkTokens;
}

/// Slots of one head.
inline std::int64_t chunk_slots(const ops::RecurrentAttentionProblem& problem) {
  if (problem.N > 0) return problem.T / kChunkTokens + problem.N;
  return problem.B * chunks_of(problem.T);
}

}  // namespace attune::cuda
