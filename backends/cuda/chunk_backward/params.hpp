// What the kernels of the chunked backward pass take, by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/views.hpp"

namespace attune::cuda::chunk_backward {

/// Tokens in a chunk: the rows of a tile.
inline constexpr int kChunkTokens = 64;
/// At most this many chunks in a row have no anchor, see gate_gradients.cuh.
inline constexpr int kAnchorChunks = 4;

struct ChunkBackwardParams {
  // Boxes of 64 tokens of one head by 64 channels; coordinates are (channel, head, token, batch).
  CUtensorMap q, k, v, d_o;
  CUtensorMap dq, dk, dv;
  // The same outputs, for chunks at whose end another sequence begins. Where query heads share keys
  // and values, dk and dv are a query head's share of them, in the workspace.
  TokenView dq_rows, dk_rows, dv_rows;
  GateView g;
  ConstantDecayView gamma;
  SequencesView sequences;
  ConstStateView initial_state, dfinal_state;
  StateView dinitial_state;
  TokenView dg;           // f32
  StateView dgamma;       // [N, H], strides `sequence` and `head`; of gamma.values
  float dgamma_sign = 1;  // -1 for slopes
  std::int64_t heads = 0;
  int heads_per_kv = 1;
  int key_dim = 0;
  int value_dim = 0;
  int segments = 1;  // walks that share a sequence
  float scale = 1;
  bool reverse = false;

  // Workspace, null where it is not needed.
  void* dk_shares = nullptr;      // [B, T, heads, K] and
  void* dv_shares = nullptr;      // [B, T, heads, V] in q's type
  float* inflow = nullptr;        // [H, B * T], see gate_gradients.cuh
  void* anchors = nullptr;        // [H, anchor slots, D * D] in q's type
  std::int64_t rows = 0;          // B * T
  std::int64_t slots = 0;         // anchor slots a head
  float* dgamma_parts = nullptr;  // [N, H, segments]
  // Of segments, one direction after the other: what one adds to the state that goes through it
  // with time, or to the gradient that goes through it against time, and how both decay in it.
  float* segment_sums = nullptr;    // [2, N, H, segments, D * D]
  float* segment_decays = nullptr;  // [2, N, H, segments]
  std::int64_t walks = 0;           // N * H * segments
};

}  // namespace attune::cuda::chunk_backward
