// What the kernels of the chunked backward pass with a decay for every channel take, by value, and
// their launches. Of the same, the forward pass with gates of keys (forward/) has x, y and their
// gates, total_decay, as scores P and, in x_from_start, operands of a form of their own.
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
// the scaled operands, state_walk.cuh the terms of S and D, intra_chunk.cuh what stays within a
// chunk, all outputs and the gradients of the gates; exact_intra_chunk.cuh does so where decays are
// strong.
//
// Where both sides have gates, u and z above take the other side's decays E', L' and w':
//
//   S u_i -> S (E'_i u_i)   D z_j -> D (L'_j z_j)   u_i . z_j -> u_i . (w'_ij z_j)
//   S <- E S E'       ...
//
// and dz, du come from the same formulas for dy, dx seen from the other side, with P and A
// exchanged: each side has its own parameters, the values' makes the first scores. Only
// the sum of a key's and a value's gate counts, so the largest gate of a token's values is
// taken from them and given to its keys: then no factor exceeds 1 whenever none of the sums is
// above 0.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/chunks/chunk.hpp"
#include "cuda/chunks/segment_walk.hpp"
#include "cuda/chunks/views.hpp"
#include "cuda/chunks/walked_list.hpp"
#include "cuda/gla/gla_backward_config.hpp"

namespace attune::cuda::gla {

/// Channels of a block of the state, along its rows and along its columns: a tile of a side's
/// channels. 64 where neither side has more.
inline constexpr int kSmallTile = 64;
inline constexpr int kLargeTile = 128;
inline constexpr int kMostTiles = 4;  // of a side
inline constexpr int kMostChannels = kLargeTile * kMostTiles;
/// Blocks that share a chunk have 64 channels each, or more.
inline constexpr int kMostParts = kMostChannels / kSmallTile;
/// With more segments, what they start from is made ahead of the walks; else each walk passes the
/// segments before its own.
inline constexpr int kMostPassedSegments = 4;

/// Tensors of the workspace that are alike: for each chunk of [heads, slots] a row for each of its 64
/// tokens, in the order of memory, of a side's channels. Rows without a token are zeros.
struct ChunkRows {
  std::byte* data = nullptr;
  std::int64_t chunks = 0;  // of a tensor
  int channels = 0;         // of a row, whole sectors of 32 bytes
  CUtensorMap map;          // coordinates (channel, 0, row of a tensor, tensor); panels of 64 rows
};

struct GlaParams {
  // Rows [B, T, heads, own or other channels]; those without data are not wanted. Up to a multiple
  // of 8 channels there is room behind each row, with zeros in inputs.
  ConstTokenView x, y, u, z;
  TokenView dx, dy, du, dz;
  CUtensorMap u_map, z_map;    // panels of 64 tokens of one head
  GateView channel_gate;       // [B, T, heads, own]
  bool gate_in_pairs = false;  // it, and its gradient, can be accessed by two channels at a time
  GateView g;
  ConstantDecayView gamma;
  const float* gate_shift = nullptr;  // [B, T, heads]: what the keys' gates take from the values'
  float gate_shift_sign = 1;          // -1 for the values'
  TokenView dchannel_gate;            // f32 [B, T, heads, own]
  TokenView dg;                       // f32 [B, T, heads]
  StateView dgamma;                   // [N, heads], strides `sequence` and `head`; of gamma.values
  float dgamma_sign = 1;              // -1 for slopes
  SequencesView sequences;
  std::int64_t sequence_count = 0;
  // [N, heads, own, other], with `k` the stride of own channels and `v` that of others.
  ConstStateView initial_state, dfinal_state;
  StateView dinitial_state;
  std::int64_t heads = 0;  // of x, u and the gates
  int heads_per_kv = 1;    // of them, that read one head of y and z
  int own = 0;             // channels
  int other = 0;
  int tile_channels = 0;  // kSmallTile or kLargeTile
  int own_tiles = 1;
  int other_tiles = 1;
  int segments = 1;     // walks that share a sequence and head, if it is not cut by its own length
  SequenceParts parts;  // of packed sequences that are
  float scale = 1;      // of x where it enters the state, and of what it reads there
  float score_scale = 1;  // of P and A
  bool reverse = false;

  // Workspace by [heads, slots], a slot a chunk (chunk.hpp).
  std::int64_t slots = 0;
  ChunkRows own_rows;    // tensors: kXFromStart, kYToEnd, x_flow() and y_flow()
  ChunkRows other_rows;  // z_flow() and u_flow(); where both sides have gates, the other one's own
  void* operand_panels = nullptr;  // of the forward pass (forward/walk.hpp)
  float* total_decay = nullptr;    // [own tiles' channels]: of the chunk
  unsigned* strong = nullptr;   // [own tiles' channels / 64]: not 0 where half a chunk's decay is
  void* checkpoints = nullptr;  // [own tiles, other tiles]: S, rounded, where it survives
  float* state_products = nullptr;  // by other tile [own tiles' channels]: E S . D by row
  float* dgamma_terms = nullptr;    // [gamma_parts]: dg summed over the chunk
  int gamma_parts = 1;  // own panels where few constant decays are wanted (gamma_terms.cuh)
  // Where blocks share a chunk: dg by part and permuted row, and how many parts have theirs there.
  float* part_terms = nullptr;  // [kMostParts, 64]
  unsigned* parts_done = nullptr;
  // Where what stays within a chunk waits for its own flows (flow_arrivals.cuh): how many walks have left
  // theirs of a chunk, and the slots [slots] in the order in which they will.
  unsigned* flow_arrivals = nullptr;
  int* slots_by_arrival = nullptr;
  WalkedList walked_chunks;

  // Of both sides with gates: what the other one has, and the scores between the two sides' turns.
  float* other_total_decay = nullptr;  // [other tiles' channels]
  unsigned* other_strong = nullptr;    // [other tiles' channels / 64]
  void* scores = nullptr;              // [64][64]: what it takes, P or A; a panel
  void* made_scores = nullptr;         // likewise, what it makes for the other one
  float* diagonal_scores = nullptr;    // fp32 [8][8][8]: those within 8 tokens, if strong
  bool prepared_beside_other = false;  // its operands, beside the other one's
  bool makes_scores = true;            // A: for the other one, or for dz and du

  // Of each direction, by [sequences, heads, segments], or [sums of parts, heads]: what a segment adds
  // to S or D, and its total decay. Where starts are made ahead, they take the places of the sums.
  StateView segment_sums;  // strides: `sequence` of a walk, `k` of own channels, `v` of others
  float* segment_decays = nullptr;        // [own tiles' channels]
  float* other_segment_decays = nullptr;  // [other tiles' channels]

  // What each head adds to dy and dz [B, T, heads, own or other, padded to whole rows], where heads
  // share y and z; then dy and dz are these.
  void* dy_partials = nullptr;
  void* dz_partials = nullptr;

  // Numbers of tensors. What enters the state and its gradient: scale E x, and L y.
  static constexpr int kXFromStart = 0, kYToEnd = 1;
  // What flows between chunks by way of them, sums over tiles of the side that is summed over, a tensor
  // for each of those: S u and D z, and D^T (L y) and scale S^T (E x).
  constexpr int x_flow(int other_tile) const { return 2 + other_tile; }
  constexpr int y_flow(int other_tile) const { return 2 + other_tiles + other_tile; }
  constexpr int z_flow(int own_tile) const { return own_tile; }
  constexpr int u_flow(int own_tile) const { return own_tiles + own_tile; }

  /// Chunks of a head that blocks have.
  constexpr std::int64_t walked_slots() const {
    return walked_chunks.numbers == nullptr ? slots : walked_chunks.most;
  }
  constexpr bool by_parts() const { return parts.tokens > 0; }
  constexpr bool is_cut() const { return segments > 1 || by_parts(); }
  constexpr std::int64_t walks() const {
    return heads * (by_parts() ? parts.count : sequence_count * segments);
  }
  /// What segments add, in one direction: of parts, fewer than there are numbers of them.
  constexpr std::int64_t sums() const {
    return by_parts() ? heads * parts.sums(sequences.tokens) : walks();
  }
  /// Whether sequences start from no state, and nobody has a use for what they end with: then
  /// nothing flows between chunks where there is one.
  constexpr bool has_no_states() const {
    return initial_state.data == nullptr && dfinal_state.data == nullptr &&
           dinitial_state.data == nullptr;
  }
  /// Then, of more packed sequences than can have several chunks, walks are over those that do.
  constexpr std::int64_t most_of_chunks() const { return sequences.tokens / (kChunkTokens + 1); }
  constexpr bool walks_over_some() const {
    return has_no_states() && sequences.bounds != nullptr && !by_parts() &&
           most_of_chunks() < sequence_count;
  }
  constexpr std::int64_t walked_sequences() const {
    if (walks_over_some()) return most_of_chunks();
    return has_no_states() && most_of_chunks() == 0 ? 0 : sequence_count;
  }
  constexpr std::int64_t walked() const {
    return by_parts() ? walks() : walked_sequences() * heads * segments;
  }
  /// Panels of 64 channels that there are of a side. Its last tile may have room for one more.
  constexpr int own_panels() const { return (own + kSmallTile - 1) / kSmallTile; }
  constexpr int other_panels() const { return (other + kSmallTile - 1) / kSmallTile; }
  /// Terms of S and D that the first launch of walks of one side makes; the last one makes dy's.
  constexpr int first_terms() const { return du.data != nullptr ? 3 : 2; }
  constexpr bool makes_starts() const { return segments > kMostPassedSegments || by_parts(); }
};

/// Whether rows are of pairs of elements, which start at multiples of their size.
bool has_pairs(const ConstTensorView& tensor);
bool keys_have_gates(const ops::RecurrentAttentionProblem& problem);
bool values_have_gates(const ops::RecurrentAttentionProblem& problem);
/// The gradient of constant decays is a number of each sequence and head, which sums what scores in
/// 16 bits make of every token. One or two may miss the tolerance where their terms cancel: of 128
/// draws of one such number one did, of 108 of two the worst was within it by a tenth. Packed
/// sequences are one here, as one may have nearly all of the tokens.
bool has_few_constant_decays(const ops::RecurrentAttentionProblem& problem);
/// Tokens up to which packed sequences are left to pairs of tokens, 0 where none are.
std::int64_t most_left_out(const ops::RecurrentAttentionProblem& problem);

/// A problem as one of its sides sees it, without tensors and workspace.
GlaParams side_of(const ops::RecurrentAttentionProblem& problem, const GlaBackwardConfig& config,
                  bool of_values);

/// The sides with gates: one, or the keys' and the values'. Their tensors are not set.
struct GatedSides {
  GlaParams first;   // of the keys if both have gates
  GlaParams second;  // of the values if both have
  bool first_of_values = false;
  bool both = false;
  std::byte* of_short = nullptr;  // what makes the sequences' that are left out
  std::size_t workspace_bytes = 0;

  /// Divides `workspace` among them; without one, only counts its bytes.
  GatedSides(const ops::RecurrentAttentionProblem& problem, const GlaBackwardConfig& config,
             std::byte* workspace);

 private:
  /// What one side has and the other one needs.
  void exchange();
};

/// Of a call, with its tensors. Where both sides have gates, g and gamma are the keys'.
GatedSides gated_sides(const ops::RecurrentAttentionProblem& problem,
                       const ops::RecurrentAttentionBackwardArgs& args,
                       const GlaBackwardConfig& config, std::byte* workspace);

// Launches. T is __nv_bfloat16 or __half. Where both sides have gates, `keys` and `values` are the
// same problem seen from either side.

/// What the keys' gates take from the values': gate_shift [tokens of all batches, heads].
template <class T>
void launch_gate_shifts(const GlaParams& values, std::int64_t tokens, float* gate_shift,
                        cudaStream_t stream);
/// The operands that enter the state and its gradient.
template <class T>
void launch_prepare(const GlaParams& params, cudaStream_t stream);

/// What goes through the states; after launch_prepare(), of both sides if both have gates.
template <class T>
void launch_state_walks(const GlaParams& params, cudaStream_t stream);
template <class T>
void launch_state_walks_of_both(const GlaParams& keys, const GlaParams& values,
                                cudaStream_t stream);

/// What stays within chunks, and every output but dinitial_state and dgamma; after the walks.
template <class T>
void launch_intra_chunk(const GlaParams& params, cudaStream_t stream);
template <class T>
void launch_intra_chunk_of_both(const GlaParams& keys, const GlaParams& values,
                                cudaStream_t stream);

/// dgamma_terms anew, in fp32, where one side alone has gates and few constant decays are wanted; after
/// the walks and what stays within chunks, which leaves other terms there.
template <class T>
void launch_gamma_terms(const GlaParams& params, cudaStream_t stream);

}  // namespace attune::cuda::gla
