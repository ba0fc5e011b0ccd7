// Recurrent attention of sequences of a few tokens, a window of tokens at once: scores of all pairs
// within the window, and the state as products with all of the window's tokens.
//
// A team of warps has 32 channels of one side of a head, keys or values, and all of the other. Let
// read_i and write_j be the rows of its own channels and read'_i and write'_j those of the others,
//
//   side     read  write  read'  write'   x   y    decays f        decays f'
//   keys     q     k      do     v        dq  dk   g g_gamma gk    gv
//   values   do    v      q      k        o   dv   gv              g g_gamma gk
//
// f_ij the decay of a channel over tokens j+1 .. i, F_i that over all tokens of the window up to i,
// and L_j that over those after j. Then, with S the state before the window and dS the gradient of
// the state after it, D_ij = scale sum' read'_i f'_ij write'_j, and sum' over the other channels,
//
//   x_i = sum_{j <= i} D_ij f_ij write_j + scale F_i sum' S  F'_i read'_i
//   y_j = sum_{i >= j} D_ij f_ij read_i  +       L_j sum' dS L'_j write'_j
//
//   the state after the window                  F F' S  + sum_j (L_j write_j) (L'_j write'_j)
//   the gradient of the state before it         F F' dS + scale sum_i (F_i read_i) (F'_i read'_i)
//
// The gradient of a decay is that of the next token's, with what is read after the token and what
// is written before it:
//
//   df_t = df_{t+1} + read_t (x_t - D_tt write_t) - write_t (y_t - D_tt read_t)
//
// from sum' S dS after the last token on; those of g and g_gamma are sums over key channels. The
// forward pass is the value side's x. All sums are fp32 (of gates: fp64), and decays are products:
// a reset is exact. A sequence of several windows takes them one after the other, the state (and
// then its gradient) in shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

#include "cuda/chunks/views.hpp"
#include "cuda/window/token_shares.hpp"

namespace attune::cuda::window {

inline constexpr int kMostWarps = 16;  // of a block
inline constexpr int kOwn = 32;        // channels of a block at a time: one a lane
inline constexpr std::int64_t kMostChannels = 512;
static_assert(kMostWarpsOfToken * kStrip >= kMostChannels);

/// Tensors of tokens, of which a block finds its rows once.
enum TokenTensor {
  kRead,
  kWrite,
  kGate,
  kOtherRead,
  kOtherWrite,
  kOtherGate,
  kSharedGate,
  kX,
  kY,
  kGateGradient,
  kSharedGradient,
  kPlane,  // [B, T, H], in the workspace
  kTokenTensors
};

/// What one side's blocks do. The states' views have the block's own channels along `k`.
struct Side {
  ConstTokenView read, write, other_read, other_write;
  GateView gate, other_gate;       // of channels
  bool has_shared_decays = false;  // g and g_gamma count to its own channels: keys
  int channels = 0;
  int other_channels = 0;
  ConstStateView initial, final_gradient;
  StateView final, initial_gradient;
  bool keeps_state = false;     // in shared memory
  bool keeps_gradient = false;  // of the state, likewise

  bool wants_x = true;
  TokenView x, y;
  float* y_of_heads = nullptr;    // [B, T, H, channels] in place of y, where heads share rows of it
  bool wants_gates = false;       // any of the following
  TokenView gate_gradient;        // fp32
  TokenView shared_gradient;      // fp32; where one block has all channels
  float* shared_terms = nullptr;  // [tiles, B, T, H]; where several have
  float* gamma_terms = nullptr;   // [N, H, tiles]
  float* read_terms = nullptr;    // [B, T, H, channels]: read_t (x_t - D_tt write_t), between walks

  ConstTokenView views[kTokenTensors];  // by number: set where a walk is launched

  constexpr int tiles() const { return (channels + kOwn - 1) / kOwn; }
};

struct Params {
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t batches = 0;  // B
  std::int64_t heads = 0;    // query heads
  std::int64_t heads_per_kv = 1;
  bool descending = false;
  float scale = 1.0F;
  GateView shared_gate;  // g
  ConstantDecayView gamma;

  int side_count = 1;
  Side sides[2];
  int tiles_per_block = 1;
  int teams = 1;  // of a block, a tile each at a time
  int warps = 8;  // of a team: a power of two

  // Of single tokens. A head's gradient of gamma goes to a view of [N, H], times the sign.
  TokenShares shares;
  StateView gamma_gradient;
  float gamma_sign = 1.0F;
};

inline constexpr int kStateStride = kOwn + 1;
inline constexpr int kMostShares = 3;  // of a score, a warp each

/// Offsets in shared memory, in floats: in what a block's teams share, the other side's rows, of
/// which a channel's tokens lie side by side, and in what each team has for itself. What `tokens`
/// alone decide comes first: device code has it as constants.
struct Layout {
  int stride = 0;  // of a channel of the other side: conflicts of neither order of access
  int rows = 0, scores = 0, shared_decays = 0;
  int other_read = 0, other_write = 0, other_total = 0;
  int other_decays = 0;  // 0: none but those that channels share
  int floats = 0;
  int read = 0, write = 0, decays = 0, x = 0, y = 0, before = 0, after = 0;
  int partial = 0, state = 0, gradient = 0;
  int team_floats = 0;
};

constexpr Layout layout_of(int tokens, int warps, const Side& side) {
  Layout at;
  const auto take = [](int& end, int floats) {
    const int begin = end;
    end += (floats + 3) / 4 * 4;
    return begin;
  };
  const int others = side.other_channels;
  at.stride = tokens == 4 ? 4 : tokens + 4;
  at.rows = take(at.floats, 4 * kTokenTensors);
  at.scores = take(at.floats, kMostShares * tokens * tokens);
  at.shared_decays = take(at.floats, tokens);
  at.other_read = take(at.floats, others * at.stride);
  at.other_write = take(at.floats, others * at.stride);
  at.other_total = take(at.floats, others);
  if (side.other_gate.given()) at.other_decays = take(at.floats, others * at.stride);
  for (int* const rows : {&at.read, &at.write, &at.decays, &at.x, &at.y, &at.before, &at.after}) {
    *rows = take(at.team_floats, tokens * kOwn);
  }
  at.partial = take(at.team_floats, warps * tokens * kOwn);
  at.state = take(at.team_floats, side.keeps_state ? others * kStateStride : 0);
  at.gradient = take(at.team_floats, side.keeps_gradient ? others * kStateStride : 0);
  return at;
}

/// Of a block.
constexpr std::size_t shared_bytes(int tokens, int teams, int warps, const Side& side) {
  const Layout at = layout_of(tokens, warps, side);
  return static_cast<std::size_t>(at.floats + teams * at.team_floats) * sizeof(float);
}

// Queue a pass; `tokens` of a window: 4, 8 or 16.
template <class T>
void launch_forward(const Params& params, int tokens, cudaStream_t stream);
template <class T>
void launch_backward(const Params& params, int tokens, cudaStream_t stream);
/// The gradients where no sequence has more than one token.
template <class T>
void launch_single_tokens(const Params& params, cudaStream_t stream);

}  // namespace attune::cuda::window
