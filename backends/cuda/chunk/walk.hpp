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
// To keep more blocks busy, a sequence may be walked in `segments` parts at once: a first launch
// leaves what each part adds to the state in scratch memory, the second starts every part from the
// sum of those before it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/attention/views.hpp"
#include "cuda/chunk/chunk_config.hpp"

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
  /// [N, H, value tiles, segments] states of tile_k x tile_v, in the order of the registers of
  /// those who write and read them. The last segment's is the initial state where `keeps_initial`.
  float* states = nullptr;
  float* decays = nullptr;  // [N, H, segments]: the product of a segment's decays
  /// The final state overwrites the initial one: segment 0 must not read it while others finish.
  bool keeps_initial = false;
};

struct WalkExtents {
  std::int64_t sequences = 0;  // N
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
  bool reverse = false;
  /// Token t takes the decay of token t + 1, and none past the end: what the backward pass, walking
  /// in reverse, passes between two tokens.
  bool shifted_gates = false;
  float scale = 1;
};

WalkExtents walk_extents(const ops::RecurrentAttentionProblem& problem);

/// Scratch memory of a walk in segments; 0 for one.
std::size_t segment_scratch_bytes(const WalkExtents& extents, const ChunkWgmmaConfig& config);
/// The parts of it.
SegmentScratch segment_scratch(std::span<std::byte> workspace, const WalkExtents& extents,
                               const ChunkWgmmaConfig& config);

/// The walk of the forward pass. `config` must fit the problem.
WalkParams forward_walk(const ops::RecurrentAttentionProblem& problem,
                        const ops::RecurrentAttentionArgs& args, const ChunkWgmmaConfig& config,
                        std::span<std::byte> workspace);

/// Blocks for all items of `segments` segments: enough to fill the device, where items are alike;
/// one each where packed sequences are of unknown lengths, so that the device evens them out.
dim3 walk_grid(const WalkParams& params, int tile_v, int segments);

/// Queues the walk that writes o and the final state. With several segments it starts from the
/// scratch that launch_segment_states() fills, and may be queued right behind it.
template <class T>
void launch_walk(const ChunkWgmmaConfig& config, const WalkParams& params, cudaStream_t stream);

/// Queues the walk that fills the scratch: k and v are read, but for the last segment.
template <class T>
void launch_segment_states(const ChunkWgmmaConfig& config, const WalkParams& params,
                           cudaStream_t stream);

}  // namespace attune::cuda
