// The backward pass of f32, chunk by chunk of 64 tokens, as host code sees it.
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
// The states of all chunks are found first (state_walk.cu), S with time and D against it, and kept
// in memory: a state of 64 x 64 is as large as a chunk of one tensor. All else is then a block for
// every chunk (chunk_gradients.cu). Products are those of split_tiles.cuh.
//
// The gradient of token t's log decay is a sum over what passes t, of which nothing cancels:
//
//   dg_t = exp(b_last) <S, D> + sum_(i >= t) x_i + sum_(j < t) y_j + sum_(i >= t > j) P_ij do_i v_j
//
// where x_i is q_i times the first term of dq_i, and y_j is k_j times that of dk_j.
//
// Key channels and value channels are alike: of S^T, do reads what v writes. Where channels of
// either have gates (channel_scan.cuh), the decays of both are factors of each other's, and go
// into the operands: those of keys into q and k, of values into do and v.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/chunks/views.hpp"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/tiles/panel.hpp"
#include "cuda/walks/sequence_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_mma::backward {

inline constexpr int kTokens = 64;  // of a chunk
/// Of 64 rows of 64 channels, each as two of bf16.
inline constexpr int kPanelBytes = 2 * kTokens * kPanelRowBytes;
/// Panels of keys, and of values, where a block makes all gradients of a chunk.
inline constexpr int kMostPanels = 2;
inline constexpr int kMostOfHead = 512;  // channels, of keys and of values

constexpr int panels_of(std::int64_t channels) {
  return static_cast<int>(ceil_div(channels, kPanelChannels));
}
/// Panels a side of the tiles that the walks of states have, of so many heads and segments: two where
/// tiles of one panel would be more blocks than a device holds at once.
constexpr int walk_panels(std::int64_t keys, std::int64_t values, std::int64_t walks) {
  constexpr std::int64_t kBlocksAtOnce = 264;  // two of each of 132 multiprocessors
  const bool are_wide = panels_of(keys) > 1 && panels_of(values) > 1;
  return are_wide && 2 * panels_of(keys) * panels_of(values) * walks > kBlocksAtOnce ? 2 : 1;
}
/// Columns of a kept state, zeros behind V: whole copies of 16 bytes, of bf16 too.
constexpr std::int64_t state_columns(std::int64_t values) {
  constexpr std::int64_t kOfCopy = 8;
  return ceil_div(values, kOfCopy) * kOfCopy;
}

/// Rows of q, k, v or do: [B, T, heads, channels].
struct TokenRows {
  ConstTokenView view;
  bool exist = true;  // else they are zeros, and `view` is any other rows, which are loaded instead
  int heads_per_row = 1;  // query heads: 1, or heads_per_kv
  int channels = 0;
};

/// What gradients of the gates that all channels share are made of, of a panel of a chunk's keys or
/// of its scores.
struct GateParts {
  float reads[kTokens];   // x, of token i
  float behind[kTokens];  // what token j adds to the gradients of those behind it
  float states;           // exp(b_last) <S, D>
};
/// Of a chunk: of each panel of keys, then of its scores.
constexpr int parts_of_gates(std::int64_t keys) { return panels_of(keys) + 1; }

/// The scores of a chunk, P and R, as panels are in shared memory. Where a side's channels have gates
/// the other side's scores are without what a token has of itself, which is apart.
struct alignas(16) ChunkScores {
  std::byte keys[kPanelBytes];
  std::byte values[kPanelBytes];
  float key_diagonal[kTokens];  // P_ii
  float value_diagonal[kTokens];
  int strong;  // not 0: there are none, and strong_chunks.cu makes all gradients
};

/// What a block of some of a chunk's panels leaves of its scores, where several share the chunk.
struct alignas(16) ScorePart {
  float keys[kTokens * kTokens];  // sums of products, as the threads hold them
  float values[kTokens * kTokens];
  int strong;
};

/// Key channels, or value channels.
struct ChannelSide {
  int channels = 0;
  TokenRows reads = {};         // of the state: q, do
  TokenRows writes = {};        // to it: k, v
  TokenRows walked_reads = {};  // the same, or what walk_operands.cu makes of them
  TokenRows walked_writes = {};
  TokenRows gates = {};            // gk, gv
  bool has_shared_gates = false;   // where there are gates: g and gamma are among them
  float2* chunk_totals = nullptr;  // [chunk, H, channels], exp() as a sum of two: with gates

  TokenView read_gradients = {};   // dq; no one asks for those of do
  TokenView write_gradients = {};  // dk, dv
  TokenView gate_gradients = {};   // dgk, dgv
  /// To what is there: all but the first slices of keys add to the gradients of values.
  bool adds = false;
};

/// How much of a segment's start is left, channel by channel or of all of them.
struct KeptDecays {
  float* of_chunks = nullptr;    // [chunk, H, width]: at a chunk's start
  float* of_segments = nullptr;  // [segment, H, width]: behind the segment
  std::int64_t width = 1;
};

/// One of the two states, S or D, of all chunks.
struct StateSide {
  ConstStateView initial;  // initial_state, dfinal_state
  StateView final;         // dinitial_state
  /// [chunk, H, K, state_columns], from zero at a segment's start: f32 or, where splits_states, a row's
  /// high parts and then its low parts, of bf16.
  float* states = nullptr;
  float* segment_states = nullptr;  // [segment, H, K, state_columns]: what it adds, then its start
  KeptDecays keys;                  // of all channels, where these have no gates
  KeptDecays values;                // only where these have gates
};

struct BackwardParams {
  ChannelSide keys;
  ChannelSide values;
  TokenRows shared_gates;    // g
  bool short_steps = false;  // 64 tokens of all rows are a distance in 32 bits
  bool quads = false;        // and four channels of all rows may be loaded at once
  GateView g;
  ConstantDecayView gamma;
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;  // query heads
  float scale = 1;
  bool reverse = false;
  bool has_initial = false;

  std::int64_t chunks = 0;  // numbers of chunks, as sequence_parts.hpp counts parts
  WalkedList walked;        // chunks
  WalkedList walked_segments;
  std::int64_t segments = 0;        // numbers of segments
  std::int64_t segment_tokens = 0;  // a multiple of kTokens
  bool is_cut = false;              // any sequence may have more than one segment
  StateSide forward;                // S
  StateSide back;                   // D

  bool has_states = true;                 // else S and D are zeros
  bool splits_states = false;             // kept as panels take them
  ChunkScores* scores = nullptr;          // [chunk, H], where gradients go by panels
  GateParts* gate_parts = nullptr;        // [chunk, H, parts_of_gates()], likewise
  int score_blocks = 1;                   // that share the panels of a chunk's scores
  ScorePart* score_parts = nullptr;       // [chunk, H, score_blocks], where they are several
  unsigned* score_blocks_done = nullptr;  // [chunk, H]

  /// Chunks of a head that launches look for.
  constexpr std::int64_t walked_chunks() const {
    return walked.numbers == nullptr ? chunks : walked.most;
  }

  /// Segments of a head that walks look for.
  constexpr std::int64_t segment_places() const {
    return walked_segments.numbers == nullptr ? segments : walked_segments.most;
  }

  bool stores_pairs = false;  // two elements may be stored at once
  TokenView dg;
  bool adds_gates = false;       // all but the first slices, to dg and gamma_terms
  float* gamma_terms = nullptr;  // [chunk, H]: dg summed over the chunk
};

/// Warps of a block that makes a chunk's gradients where channels have gates.
inline constexpr int kChannelWarps = 16;

/// Bytes of what such a block has of the decays of so many panels of channels.
constexpr std::size_t channel_decay_bytes(std::size_t panels) {
  const std::size_t channels = panels * kPanelChannels;
  return (kTokens * channels + 2 * channels + kTokens) * sizeof(float);
}

/// Shared memory of a block that makes a chunk's gradients. With gates of value channels these go
/// panel by panel (value_channel_gradients.cu).
constexpr std::size_t chunk_shared_bytes(std::int64_t keys, std::int64_t values, bool key_gates,
                                         bool value_gates) {
  constexpr std::size_t kTile = 2 * kTokens * kPanelRowBytes;
  const auto key_panels = static_cast<std::size_t>(panels_of(keys));
  if (value_gates) {
    constexpr std::size_t kProducts = kChannelWarps * kPanelChannels * sizeof(float);
    return (2 * key_panels + 5) * kTile + channel_decay_bytes(key_panels) + channel_decay_bytes(1) +
           kProducts;
  }
  const auto value_panels = static_cast<std::size_t>(panels_of(values));
  const std::size_t tiles = (2 * key_panels + 2 * value_panels + 2) * kTile;
  return tiles + (key_gates ? channel_decay_bytes(key_panels) : 2 * kTokens * sizeof(float) + 16);
}

/// The most of a block that makes scores, a panel's gradients or, with gates, a strong chunk's.
constexpr std::size_t panels_shared_bytes(bool gated) {
  constexpr std::size_t kPanels = 5;
  constexpr std::size_t kDecays = 4096;
  constexpr std::size_t kOfStrongChunk = 4 * kPanelBytes;
  return kPanels * kPanelBytes + (gated ? kOfStrongChunk : kDecays);
}

/// Queues what makes a side's walked_reads, walked_writes and chunk_totals, where it has gates.
void launch_walk_operands(const BackwardParams& params, const ChannelSide& side,
                          cudaStream_t stream);
/// Queues the walks of S and D.
void launch_state_walks(const BackwardParams& params, cudaStream_t stream);
/// Queues what makes of the segments' states those that they start from; only where is_cut.
void launch_segment_starts(const BackwardParams& params, cudaStream_t stream);
/// Queues what makes all gradients but those of states, of up to kMostPanels whose channels have no
/// gates.
void launch_chunk_gradients(const BackwardParams& params, cudaStream_t stream);
/// The same where key channels have gates.
void launch_channel_gradients(const BackwardParams& params, cudaStream_t stream);
/// The same where value channels have gates.
void launch_value_channel_gradients(const BackwardParams& params, cudaStream_t stream);
/// The same of any number of panels, with any gates: the scores of chunks, and then what is behind
/// them, panel by panel.
void launch_chunk_scores(const BackwardParams& params, cudaStream_t stream);
void launch_panel_gradients(const BackwardParams& params, cudaStream_t stream);
void launch_gated_panel_gradients(const BackwardParams& params, cudaStream_t stream);
void launch_strong_chunks(const BackwardParams& params, cudaStream_t stream);
void launch_gate_sums(const BackwardParams& params, cudaStream_t stream);

}  // namespace attune::cuda::chunk_mma::backward
