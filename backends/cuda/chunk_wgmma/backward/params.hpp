// What the kernels of the chunked backward pass take, by value, and their launches. T is
// __nv_bfloat16 or __half.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunk_wgmma/backward/chunk_wgmma_backward_config.hpp"
#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/summary_views.hpp"
#include "cuda/chunks/views.hpp"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/tiles/panel.hpp"

namespace attune::cuda::chunk_wgmma::backward {

/// Channels of K, or of V, that a block takes: 64 where there are no more. Where either has more than
/// 128, blocks take tiles of them: all gradients are sums over key channels and over value channels
/// of what those alone contribute, so that a block leaves a partial sum of each gradient.
inline constexpr int kSmallTile = 64;
inline constexpr int kTileChannels = 128;
/// Every so many chunks there is a checkpoint at least, see gate_gradients.cuh.
inline constexpr int kCheckpointChunks = 4;
/// With more segments, what they start from is made ahead of the walks; else each walk passes the
/// segments before its own.
inline constexpr int kMostPassedSegments = 4;

struct BackwardParams {
  static constexpr int kPanels = kTileChannels / kPanelChannels;
  // Panels of 64 tokens of one head; coordinates are (channel, head, token, batch).
  CUtensorMap q, k, v, d_o;
  CUtensorMap dq, dk, dv;
  // The same outputs, for chunks at whose end another sequence begins. Where query heads share keys
  // and values, or a head has several tiles, these are partial sums of them, in the workspace; but
  // where `stored` has flags, two tiles add theirs up (gradients.cuh).
  TokenView dq_rows, dk_rows, dv_rows;
  GateView g;
  ConstantDecayView gamma;
  SequencesView sequences;
  ConstStateView initial_state, dfinal_state;
  StateView dinitial_state;
  TokenView dg;           // f32; or partial sums of it
  StateView dgamma;       // [N, H], strides `sequence` and `head`; of gamma.values
  float dgamma_sign = 1;  // -1 for slopes
  std::int64_t heads = 0;
  int heads_per_kv = 1;
  int key_dim = 0;
  int value_dim = 0;
  int key_tiles = 1;  // of kTileChannels
  int value_tiles = 1;
  int segments = 1;     // walks that share a sequence, if it is not cut by its own length
  SequenceParts parts;  // of packed sequences that are
  WalkedList walked;    // sequences, by walks with outputs
  float scale = 1;
  bool reverse = false;

  // Workspace, null where it is not needed.
  struct {
    unsigned *dq = nullptr, *dk = nullptr, *dv = nullptr;  // [H * tiles, chunk slots, kPanels]
    unsigned* all = nullptr;                               // of these
    std::size_t bytes = 0;
  } stored;
  void* dq_partials = nullptr;   // [B, T, heads * value tiles, K, padded to whole rows] and
  void* dk_partials = nullptr;   // the same, and
  void* dv_partials = nullptr;   // [B, T, heads * key tiles, V, padded] in q's type
  float* dg_partials = nullptr;  // [B, T, heads * tiles]
  float* inflow = nullptr;       // [H * tiles, B * T], see gate_gradients.cuh
  void* checkpoints = nullptr;   // [H * tiles, chunk slots, D * D] in q's type
  std::int64_t rows = 0;         // B * T
  std::int64_t slots = 0;        // chunk slots of a head and tile
  // Sums of dg over segments: [N, H, segments, tiles], or [part, H, tiles].
  float* dgamma_terms = nullptr;
  // Of segments, one direction after the other: what one adds to the state that goes through it
  // with time, or to the gradient that goes through it against time, and its total decay. Where
  // starts are made ahead, they take the places of the sums. Or of parts, [2, part, H, tiles].
  float* segment_sums = nullptr;    // [2, N, H, segments, tiles, D * D]
  float* segment_decays = nullptr;  // [2, N, H, segments, tiles]
  std::int64_t walks = 0;           // N * H * segments * tiles, or of numbers of parts
  std::int64_t states = 0;          // N * H * tiles
  std::byte* of_short = nullptr;    // the other launch's
  bool sums_all = false;  // also what first segments add to gradients: summaries are wanted

  constexpr bool adds_keys_or_values() const {
    return stored.dk != nullptr || stored.dv != nullptr;
  }
  /// Of a head.
  constexpr int tiles() const { return key_tiles * value_tiles; }
  constexpr bool by_parts() const { return parts.tokens > 0; }
  /// Whether sequences may have several segments.
  constexpr bool is_cut() const { return segments > 1 || by_parts(); }
  constexpr bool makes_starts() const { return segments > kMostPassedSegments || by_parts(); }
  /// Between the numbers of the walks of two segments of a sequence that follow each other.
  constexpr std::int64_t between_segments() const { return tiles() * (by_parts() ? heads : 1); }
};

/// What picks an instance.
struct BackwardShape {
  int keys = kTileChannels;  // channels of a block's tile
  int values = kTileChannels;
  bool gate_gradients = false;  // whether dg or dgamma is wanted
};

/// Whether walks of dk and dv have an instance that adds up two parts: those of large tiles that make
/// gradients of gates, too.
constexpr bool adds_parts(const BackwardShape& shape) {
  return shape.keys == kTileChannels && shape.values == kTileChannels && shape.gate_gradients;
}

/// Of walks with outputs. Where short sequences are left out: (walks of a sequence, long ones).
dim3 walk_grid(const BackwardParams& params);

/// The more of the channels of K and of V of a block.
int tile_channels(const ops::RecurrentAttentionProblem& problem);
/// The instance that takes a problem.
BackwardShape shape_of(const ops::RecurrentAttentionProblem& problem, bool gate_gradients);
/// Tiles of K, or of V.
int tiles_of(std::int64_t channels);

/// How packed sequences are cut by their own lengths, where they are.
SequenceParts parts_of(const ops::RecurrentAttentionProblem& problem, const BackwardConfig& config);
/// Divides a workspace, or only counts its bytes where there is none: returns these.
std::size_t place_workspace(BackwardParams& params, const ops::RecurrentAttentionProblem& problem,
                            const BackwardConfig& config, std::byte* workspace);

/// What each segment adds to a state and to a gradient. Needed where there are several.
template <class T>
void launch_segment_sums(const BackwardParams& params, const BackwardShape& shape,
                         cudaStream_t stream);
/// What each starts from, made of that, where that is made ahead.
void launch_segment_starts(const BackwardParams& params, const BackwardShape& shape,
                           cudaStream_t stream);
/// Summaries of gradients, made of what all segments add.
void launch_segment_join(const BackwardParams& params, const BackwardShape& shape,
                         const SummaryViews& to, cudaStream_t stream);
/// dq, and what the gate gradients need of the states.
template <class T>
void launch_dq_walk(const BackwardParams& params, const BackwardShape& shape, cudaStream_t stream);
/// dk, dv, dinitial_state, dg and the terms of dgamma; after launch_dq_walk().
template <class T>
void launch_dkdv_walk(const BackwardParams& params, const BackwardShape& shape,
                      cudaStream_t stream);

}  // namespace attune::cuda::chunk_wgmma::backward
