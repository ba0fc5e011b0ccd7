// One walk over the tokens of every head: what a kernel that does it is given. The forward pass of
// recurrent attention is one such walk, the backward pass is three or four.
//
//   S_s[r, c] = L_s[r, c] S_{s-1}[r, c] + write_scale * write_s[r] value_s[c]
//   out_s[c]  = read_scale * sum_r read_s[r] S_s[r, c]
//
// Steps s follow the tokens of a sequence in one direction or the other. With dS the gradient of
// the state, the walks are
//
//   out   state   read  write  value   row gates  column gates  direction
//   o     S       q     k      v       gk         gv            the forward pass's
//   dq    S^T     do    v      k       gv         gk            the forward pass's
//   dv    dS      k     q      do      gk         gv            the other one, lagging
//   dk    dS^T    v     do     q       gv         gk            the other one, lagging
//
// where a lagging walk applies a token's decay at the step after the token's own: dS_t is made of
// L_{t+1} dS_{t+1}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <attune/core/dtype.hpp>

#include "cuda/chunks/views.hpp"
#include "cuda/walks/segments.hpp"

namespace attune::cuda {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows [B, T, heads, D] in the element type. Rows without data count as zeros.
struct WalkRows {
  ConstTokenView view;
  std::int64_t heads_per_row = 1;  // query heads: 1, or heads_per_kv of k and v
  bool vectors = false;            // four elements may be loaded at once
};

/// A gate of every row or column.
struct WalkGate {
  GateView view;
  bool vectors = false;
};

/// States that one walk keeps at some of its steps, and their products with those of the walk in
/// the other direction. Checkpoints are `interval` tokens apart, counted from where the first walk
/// ends, which is checkpoint 0: number m is behind the token at position length - m * interval.
struct WalkCheckpoints {
  enum class Use : std::int32_t { kNone, kKeep, kMeet };
  Use use = Use::kNone;
  std::int64_t interval = 1;  // a multiple of the tokens staged at a time
  float* states = nullptr;    // [checkpoints, H, tiles, a block's state]
  float* products = nullptr;  // [row blocks * row warps, checkpoints, H, columns], summed over rows
  std::int64_t count = 0;
};

struct WalkParams {
  SequencesView sequences;
  std::int64_t batches = 0;  // B
  std::int64_t sequence_count = 0;
  std::int64_t heads = 0;  // query heads
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool descending = false;
  bool lags = false;
  bool decays_last = false;  // a lagging walk ends with the decay of its last token

  WalkRows read;
  WalkRows write;
  WalkRows value;
  float read_scale = 1.0F;
  float write_scale = 1.0F;
  GateView shared_gate;  // g
  WalkGate row_gate;
  WalkGate column_gate;
  ConstantDecayView gamma;

  ConstStateView initial;  // `k` is the stride of rows, `v` that of columns
  StateView final;
  SnapshotsView snapshots;   // of the forward pass
  TokenView out;             // in the element type; only where one block holds all rows
  bool out_vectors = false;  // four elements may be stored at once
  float* planes =
      nullptr;  // [row blocks, B, T, H, columns]: each block's partial sums of out, in fp32
  WalkCheckpoints checkpoints;
  WalkSegments segments;

  /// Whether final states may be written where initial ones are read.
  constexpr bool ends_where_it_starts() const {
    return initial.data != nullptr && initial.data == final.data;
  }

  /// Segments of all sequences, an upper bound; the sequences where they are not cut.
  constexpr std::int64_t parts() const {
    if (segments.tokens == 0) return sequence_count;
    return part_count(sequence_count, sequences.tokens, sequences.bounds != nullptr,
                      segments.tokens);
  }
};

/// Whether four elements at any multiple of four channels can be moved at once.
template <class Tensor>
bool moves_in_quads(const Tensor& tensor) {
  constexpr std::int64_t kQuad = 4;
  const auto bytes = static_cast<std::uintptr_t>(kQuad) * size_of(tensor.dtype);
  for (int dim = 0; dim < tensor.rank() - 1; ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) % kQuad != 0) return false;
  }
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

/// Rows of q or do, which have a head each, or of k or v, of which heads_per_kv query heads share
/// one.
inline WalkRows walk_rows(const ConstTensorView& tensor, std::int64_t heads_per_row) {
  return {.view = token_view(tensor),
          .heads_per_row = heads_per_row,
          .vectors = moves_in_quads(tensor)};
}

inline WalkGate walk_gate(const std::optional<ConstTensorView>& gate) {
  return {.view = gate_view(gate), .vectors = gate && moves_in_quads(*gate)};
}

/// The forward pass; into `planes` where there are any.
inline WalkParams forward_walk(const ops::RecurrentAttentionProblem& problem,
                               const ops::RecurrentAttentionArgs& args, float* planes,
                               const WalkSegments& segments) {
  const std::int64_t heads_per_kv = problem.H / problem.Hkv;
  return {.sequences = walked_sequences(args, problem.T),
          .batches = problem.B,
          .sequence_count = problem.sequences(),
          .heads = problem.H,
          .rows = problem.K,
          .columns = problem.V,
          .descending = problem.reverse,
          .read = walk_rows(args.q, 1),
          .write = walk_rows(args.k, heads_per_kv),
          .value = walk_rows(args.v, heads_per_kv),
          .read_scale = static_cast<float>(args.scale),
          .shared_gate = gate_view(args.g),
          .row_gate = walk_gate(args.gk),
          .column_gate = walk_gate(args.gv),
          .gamma = decay_view(args.gamma, problem.H),
          .initial = initial_states(args),
          .final = final_states(args),
          .snapshots = snapshots_view(args),
          .out = planes == nullptr ? token_view(args.o) : TokenView{},
          .out_vectors = moves_in_quads(args.o),
          .planes = planes,
          .checkpoints = {},
          .segments = segments};
}

}  // namespace attune::cuda
