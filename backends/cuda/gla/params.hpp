// What the kernels of the chunked backward pass with a decay for every channel take, by value.
//
// It is described from one side of the recurrence that has such gates: the keys' (gk), or the
// values' (gv). Of that side, x is what reads the state (q, or do) and y what is written to it (k,
// or v); of the other, u reads (do, or q) and z is written (v, or k). With S the state [own
// channels, other channels] before a chunk of 64 tokens, D the gradient of the state after it, E_i
// the decay from before the chunk to token i and L_j that from j to after the chunk, both by own
// channel, and w_ij = E_i / E_j:
//
//   dx_i = scale E_i (S u_i) + sum_{j <= i} P_ij w_ij y_j      P_ij = scale u_i . z_j
//   dy_j = L_j (D z_j)       + sum_{i >= j} P_ij w_ij x_i      A_ij = scale x_i . (w_ij y_j)
//   dz_j = D^T (L_j y_j)     + sum_{i >= j} A_ij u_i
//   du_i = scale S^T (E_i x_i) + sum_{j <= i} A_ij z_j         only where the values have the gates
//   S <- E S + sum_j (L_j y_j) z_j^T      D <- E D + sum_i (scale E_i x_i) u_i^T
//
// No factor exceeds 1, so nothing overflows, and a gate of -inf is an exact 0. prepare.cuh makes
// the scaled operands, state_walk.cuh the terms of S and D, pairs.cuh what stays within a chunk,
// all outputs and the gradients of the gates; exact_pairs.cuh does so where decays are strong.
//
// Where both sides have gates, u and z above take the other side's decays E', L' and w':
//
//   S u_i -> S (E'_i u_i)   D z_j -> D (L'_j z_j)   u_i . z_j -> u_i . (w'_ij z_j)   S <- E S E'
//   ...
//
// and dz, du come from the same formulas for dy, dx seen from the other side, with P and A
// exchanged: each side has its own parameters, and pairs_of_both.cuh makes the first scores. Only
// the sum of a key's and a value's gate counts, so the largest gate of a token's values moves to
// its keys: then no factor exceeds 1 whenever none of the sums is above 0.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/chunks/views.hpp"

namespace attune::cuda::gla_backward {

/// Parts of a side's channels, each as wide as a block of the state.
inline constexpr int kMostParts = 2;

struct GlaBackwardParams {
  // Rows [B, T, heads, own or other channels]; those without data are not wanted.
  ConstTokenView x, y, u, z;
  TokenView dx, dy, du, dz;
  CUtensorMap u_maps[kMostParts];  // of each part; boxes of 64 tokens of one head by 64 channels
  CUtensorMap z_maps[kMostParts];
  GateView channel_gate;       // [B, T, heads, own]
  bool gate_in_pairs = false;  // it, and its gradient, can be accessed by two channels at a time
  GateView g;
  ConstantDecayView gamma;
  const float* moved = nullptr;  // [B, T, heads]: what moves from the values' gates to the keys'
  float moved_sign = 1;          // -1 where it is taken from
  TokenView dchannel_gate;       // f32 [B, T, heads, own]
  TokenView dg;                  // f32 [B, T, heads]
  StateView dgamma;              // [N, heads], strides `sequence` and `head`; of gamma.values
  float dgamma_sign = 1;         // -1 for slopes
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  // [N, heads, own, other], with `k` the stride of own channels and `v` that of others.
  ConstStateView initial_state, dfinal_state;
  StateView dinitial_state;
  std::int64_t heads = 0;  // of x, u and the gates
  int group = 1;           // heads that read one of y's and z's
  int own = 0;             // channels
  int other = 0;
  int part_channels = 0;  // 64 or 128
  int own_parts = 1;
  int other_parts = 1;
  int segments = 1;       // walks that share a sequence and head
  float scale = 1;        // of x where it enters the state, and of what it reads there
  float score_scale = 1;  // of P and A
  bool reverse = false;

  // Workspace by [heads, slots], a slot a chunk. Tiles are 64 tokens by all parts' channels as
  // shared memory has them, see tiles.cuh.
  std::int64_t slots = 0;
  void* entering_x = nullptr;  // scale E x
  void* leaving_y = nullptr;   // L y
  float* through = nullptr;    // [own parts' channels]: the decay over the chunk
  unsigned* strong = nullptr;  // [own parts' channels / 64]: not 0 where half a chunk's decay is
  // The flows are sums over parts of the side that is summed over: a tensor for each of those.
  void* x_flow = nullptr;  // S u
  void* y_flow = nullptr;  // D z
  void* z_flow = nullptr;  // D^T (L y)
  void* u_flow = nullptr;  // scale S^T (E x)
  void* states = nullptr;  // [own parts, other parts]: S, rounded, where it gets through the chunk
  float* anchors = nullptr;  // by other part [own parts' channels]: through, a row of S, one of D
  float* dgamma_parts = nullptr;  // []: dg summed over the chunk

  // Of both sides with gates: what the other one has, and the scores between the two sides' turns.
  void* entering_u = nullptr;        // E' u
  void* leaving_z = nullptr;         // L' z
  float* other_through = nullptr;    // [other parts' channels]
  unsigned* other_strong = nullptr;  // [other parts' channels / 64]
  void* scores = nullptr;            // [64][64]: P, then A; a tile
  float* near_scores = nullptr;      // fp32 [8][8][8]: those within 8 tokens, if strong
  bool makes_scores = true;          // A: left where P was, or for dz and du

  // Of each direction, by [sequences, heads, segments]: what a segment adds to S or D, and its
  // decay.
  StateView segment_sums;  // strides: `sequence` of a walk, `k` of own channels, `v` of others
  float* segment_decays = nullptr;        // [own parts' channels]
  float* other_segment_decays = nullptr;  // [other parts' channels]

  // Of dy and dz, each head's share [B, T, heads, own or other], where heads share y and z; then dy
  // and dz are these.
  void* dy_shares = nullptr;
  void* dz_shares = nullptr;

  constexpr std::int64_t walks() const { return sequence_count * heads * segments; }
};

}  // namespace attune::cuda::gla_backward
