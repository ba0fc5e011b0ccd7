// The backward pass of f32 with scalar decays, chunk by chunk of 64 tokens, as host code sees it.
//
// With S the state before a chunk, D the gradient of the state behind it, b_i the sum of the log
// decays from the chunk's start to token i, and a_ij = scale exp(b_i - b_j) for j <= i:
//
//   P_ij = a_ij q_i k_j                      R_ij = a_ij do_i v_j
//   dq_i = scale exp(b_i) S do_i             + sum_j R_ij k_j
//   dk_j = exp(b_last - b_j) D v_j           + sum_i R_ij q_i
//   dv_j = exp(b_last - b_j) D^T k_j         + sum_i P_ij do_i
//   S behind it  = exp(b_last) S + sum_j exp(b_last - b_j) k_j v_j^T
//   D of the one before = exp(b_last) D + sum_i scale exp(b_i) q_i do_i^T
//
// The states of all chunks are found first (state_walk.cuh), S with time and D against it, and kept
// in memory: a state of 64 x 64 is as large as a chunk of one tensor. All else is then a block for
// every chunk (chunk_gradients.cuh). Products are those of split_tiles.cuh.
//
// The gradient of token t's log decay is a sum over what passes t, of which nothing cancels:
//
//   dg_t = exp(b_last) <S, D> + sum_(i >= t) x_i + sum_(j < t) y_j + sum_(i >= t > j) P_ij do_i v_j
//
// where x_i is q_i times the first term of dq_i, and y_j is k_j times that of dk_j.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/chunks/views.hpp"
#include "cuda/tiles/panel.hpp"
#include "cuda/walks/sequence_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_mma::backward {

inline constexpr int kTokens = 64;  // of a chunk
inline constexpr int kMostPanels = 2;
/// Of keys, and of values, in one run: more go slice by slice.
inline constexpr int kMostChannels = kMostPanels * kPanelChannels;

constexpr int panels_of(std::int64_t channels) {
  return static_cast<int>(ceil_div(channels, kPanelChannels));
}
/// Columns of a kept state: whole float4s, zeros behind V.
constexpr std::int64_t state_columns(std::int64_t values) {
  constexpr std::int64_t kQuad = 4;
  return ceil_div(values, kQuad) * kQuad;
}

/// Rows of q, k, v or do: [B, T, heads, channels].
struct TokenRows {
  ConstTokenView view;
  bool exist = true;  // else they are zeros, and `view` is any other rows, which are loaded instead
  int heads_per_row = 1;  // query heads: 1, or heads_per_kv
  int channels = 0;
};

/// One of the two states, S or D, of all chunks.
struct StateSide {
  ConstStateView initial;           // initial_state, dfinal_state
  StateView final;                  // dinitial_state
  float* states = nullptr;          // [chunk, H, K, state_columns], from zero at a segment's start
  float* chunk_decays = nullptr;    // [chunk, H]: from the segment's start to the chunk
  float* segment_states = nullptr;  // [segment, H, K, state_columns]: what it adds, then its start
  float* segment_decays = nullptr;  // [segment, H]
};

struct BackwardParams {
  TokenRows q, k, v, d_o;
  TokenRows walked_q, walked_k;  // q and k, or what walk_operands.cu makes of them
  TokenRows shared_gates;        // g
  bool quads = false;            // four channels of all rows may be loaded at once
  GateView g, gk;
  ConstantDecayView gamma;
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;  // query heads
  int key_channels = 0;
  int value_channels = 0;
  float scale = 1;
  bool reverse = false;
  bool has_initial = false;

  std::int64_t chunks = 0;          // numbers of chunks, as sequence_parts.hpp counts parts
  std::int64_t segments = 0;        // numbers of segments
  std::int64_t segment_tokens = 0;  // a multiple of kTokens
  std::int64_t decay_width = 1;     // K where key channels have gates
  float2* chunk_totals = nullptr;   // [chunk, H, K], exp() as a sum of two: with such gates
  bool is_cut = false;              // any sequence may have more than one segment
  StateSide forward;                // S
  StateSide back;                   // D

  TokenView dq, dk, dv;  // of query heads
  // Added to what is there: by all but the first slices of value channels to dq, dk and dgk, of key
  // channels to dv, and of both to dg and gamma_terms.
  bool adds_keys = false;
  bool adds_values = false;
  bool adds_gates = false;
  bool stores_pairs = false;  // two elements may be stored at once
  TokenView dg, dgk;
  float* gamma_terms = nullptr;  // [chunk, H]: dg summed over the chunk
};

/// Shared memory of a block that makes a chunk's gradients.
constexpr std::size_t gradients_shared_bytes(std::int64_t keys, std::int64_t values,
                                             bool key_gates) {
  constexpr std::size_t kFloat = sizeof(float);
  constexpr std::size_t kTile = 2 * kTokens * kPanelRowBytes;
  const auto key_panels = static_cast<std::size_t>(panels_of(keys));
  const std::size_t tiles = 2 * key_panels + 2 * static_cast<std::size_t>(panels_of(values)) + 2;
  const std::size_t channels = key_panels * kPanelChannels;
  const std::size_t decays = key_gates ? (kTokens * channels + 2 * channels + kTokens) * kFloat
                                       : 2 * kTokens * kFloat + 16;
  return tiles * kTile + decays;
}

/// Queues what makes walked_q, walked_k and chunk_totals, where key channels have gates.
void launch_walk_operands(const BackwardParams& params, cudaStream_t stream);
/// Queues the walks of S and D.
void launch_state_walks(const BackwardParams& params, cudaStream_t stream);
/// Queues what makes of the segments' states those that they start from; only where is_cut.
void launch_segment_starts(const BackwardParams& params, cudaStream_t stream);
/// Queues what makes all gradients but those of states.
void launch_chunk_gradients(const BackwardParams& params, cudaStream_t stream);
/// The same where key channels have gates.
void launch_channel_gradients(const BackwardParams& params, cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma::backward
