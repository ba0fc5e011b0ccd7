// What the kernels of the chunked backward pass take, by value.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda::chunk_backward {

/// Tokens in a chunk: the rows of a tile.
inline constexpr int kChunkTokens = 64;
/// Channels of K and of V that a block takes. Where there are more, blocks take parts of them: all
/// gradients are sums over key channels and over value channels of what those alone contribute, so
/// that a block with a part of either leaves a share of each gradient.
inline constexpr int kPartChannels = 128;
/// At most this many chunks in a row have no anchor, see gate_gradients.cuh.
inline constexpr int kAnchorChunks = 4;

struct ChunkBackwardParams {
  // Boxes of 64 tokens of one head by 64 channels; coordinates are (channel, head, token, batch).
  CUtensorMap q, k, v, d_o;
  CUtensorMap dq, dk, dv;
  // The same outputs, for chunks at whose end another sequence begins. Where query heads share keys
  // and values, or a head has several parts, these are shares of them, in the workspace.
  TokenView dq_rows, dk_rows, dv_rows;
  GateView g;
  ConstantDecayView gamma;
  SequencesView sequences;
  ConstStateView initial_state, dfinal_state;
  StateView dinitial_state;
  TokenView dg;           // f32; or the shares of it
  StateView dgamma;       // [N, H], strides `sequence` and `head`; of gamma.values
  float dgamma_sign = 1;  // -1 for slopes
  std::int64_t heads = 0;
  int heads_per_kv = 1;
  int key_dim = 0;
  int value_dim = 0;
  int key_parts = 1;  // of kPartChannels
  int value_parts = 1;
  int segments = 1;  // walks that share a sequence
  float scale = 1;
  bool reverse = false;

  // Workspace, null where it is not needed.
  void* dq_shares = nullptr;      // [B, T, heads * value parts, K] and
  void* dk_shares = nullptr;      // the same, and
  void* dv_shares = nullptr;      // [B, T, heads * key parts, V] in q's type
  float* dg_shares = nullptr;     // [B, T, heads * parts]
  float* inflow = nullptr;        // [H * parts, B * T], see gate_gradients.cuh
  void* anchors = nullptr;        // [H * parts, anchor slots, D * D] in q's type
  std::int64_t rows = 0;          // B * T
  std::int64_t slots = 0;         // anchor slots a head and part
  float* dgamma_parts = nullptr;  // [N, H, parts, segments]
  // Of segments, one direction after the other: what one adds to the state that goes through it
  // with time, or to the gradient that goes through it against time, and how both decay in it.
  float* segment_sums = nullptr;    // [2, N, H, parts, segments, D * D]
  float* segment_decays = nullptr;  // [2, N, H, parts, segments]
  std::int64_t walks = 0;           // N * H * parts * segments

  /// Of a head.
  constexpr int parts() const { return key_parts * value_parts; }
};

}  // namespace attune::cuda::chunk_backward
