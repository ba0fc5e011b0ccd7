// The chunked walk over sequences: its parameters, and how the host plans its launches.
//
// A walk computes, for scalar log decays a_t (natural) per sequence and head,
//
//   S_t = exp(a_t) S_{t-1} + k_t v_t^T,   o_t = scale S_t^T q_t           S in R^{K x V}
//
// 64 tokens at a time with the state on chip from a sequence's first token to its last. Operands
// have roles, not names: with (q, k, v) = (do, v, k) and states transposed through their strides,
// the same walk gives dq of the backward pass.
//
// To keep more blocks busy, a sequence may be walked in `segments` at once: a first launch leaves
// what each segment but the last adds to the state in scratch memory, the second starts every
// segment from the sum of those before it. Few segments leave few blocks to the first launch: there
// each is taken in several `parts`.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/chunk_wgmma/chunk_config.hpp"
#include "cuda/chunks/views.hpp"

namespace attune::cuda {

/// Tokens that are handled at once.
inline constexpr int kChunk = 64;

/// One of q, k and v: boxes of kChunk tokens of a head. Query head h reads its head h / group.
struct WalkOperand {
  CUtensorMap map;
  std::int64_t group = 1;
};

/// What segments leave for one another. Strides follow from WalkExtents and the tiles.
struct SegmentScratch {
  /// [N, H, value tiles, segments, parts] states of tile_k x tile_v, in the order of the registers
  /// of those who write and read them. The very last is the initial state where `keeps_initial`.
  float* states = nullptr;
  float* decays = nullptr;  // [N, H, segments, parts]: the product of a part's decays
  /// The final state overwrites the initial one: segment 0 must not read it while others finish.
  bool keeps_initial = false;
};

struct WalkExtents {
  std::int64_t sequences = 0;  // N
  std::int64_t chunks = 0;     // of a sequence, were all of a length
  std::int64_t heads = 0;      // H, of q
  int K = 0;                   // <= tile_k
  std::int64_t V = 0;
};

struct WalkParams {
  WalkOperand q, k, v;
  CUtensorMap o;
  TokenView o_rows;  // for the tail of a packed sequence, which a box would reach beyond
  WalkExtents extents;
  SequencesView sequences;
  GateView gates;  // [B, T, H]; may be absent
  ConstantDecayView gamma;
  ConstStateView initial;  // may be absent
  StateView final;         // may be absent
  SegmentScratch scratch;
  int segments = 1;
  int parts = 1;  // of a segment, in the first launch
  bool reverse = false;
  /// Token t takes the decay of token t + 1, and none past the end: what the backward pass, walking
  /// in reverse, passes between two tokens.
  bool shifted_gates = false;
  float scale = 1;
};

/// What a launch goes through: the first segments of a sequence, each in parts.
struct WalkRange {
  int segments;
  int parts;
};

/// That of the launch that writes o, and that of the one before it.
constexpr WalkRange whole_walk(const WalkParams& p) { return {p.segments, 1}; }
constexpr WalkRange first_walk(const WalkParams& p) { return {p.segments - 1, p.parts}; }

WalkExtents walk_extents(const ops::RecurrentAttentionProblem& problem);

/// Blocks of the first launch that a multiprocessor has room for.
constexpr int first_walk_blocks(const ChunkWgmmaConfig& config) {
  return config.tile_k == 64 && config.tile_v == 64 ? 2 : 1;
}

/// Parts of a segment in the first launch: as many as fill the device, of four chunks and more.
int segment_parts(const WalkExtents& extents, const ChunkWgmmaConfig& config);

/// Scratch memory of a walk in segments; 0 for one.
std::size_t segment_scratch_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config);
/// The parts of it.
SegmentScratch segment_scratch(std::span<std::byte> workspace, const WalkExtents& extents,
                               const ChunkWgmmaConfig& config);

/// The walk of the forward pass. `config` must fit the problem.
WalkParams forward_walk(const ops::RecurrentAttentionProblem& problem,
                        const ops::RecurrentAttentionArgs& args, const ChunkWgmmaConfig& config,
                        std::span<std::byte> workspace);

/// Blocks for all items of `range`: enough to fill the device, where items are alike; one each
/// where packed sequences are of unknown lengths, so that the device evens them out.
dim3 walk_grid(const WalkParams& params, int tile_v, WalkRange range, int blocks_per_sm);

/// Queues the walk that writes o and the final state. With several segments it starts from the
/// scratch that launch_segment_states() fills, and may be queued right behind it.
template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream);

/// Queues the walk that fills the scratch: k and v are read, but for the last segment.
template <class T>
void launch_segment_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream);

}  // namespace attune::cuda
