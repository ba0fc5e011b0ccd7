// One walk over the tokens of every head, with the state in registers. The forward pass of
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
// L_{t+1} dS_{t+1}. Sums over tokens are exact in fp32, with no decay but that of one token at a
// time: there is nothing that could overflow, and a decay of -inf resets the state exactly.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include <attune/core/dtype.hpp>

#include "cuda/chunks/views.hpp"

namespace attune::cuda::fused_recurrent {

// How a warp holds its tile of the state: 4 lanes along the rows, 8 along the columns.
inline constexpr int kRowLanes = 4;
inline constexpr int kColumnLanes = 8;
inline constexpr int kColumnsPerLane = 4;
inline constexpr int kColumnsPerWarp = kColumnLanes * kColumnsPerLane;

/// Warps of a block that hold no state: they stage tokens and write what was read.
inline constexpr int kStagingWarps = 2;

/// State warps that a block may have. With 32 rows a lane the state alone takes 128 registers.
constexpr int max_state_warps(int rows_per_lane) { return rows_per_lane > 16 ? 4 : 8; }

/// The tunable sizes of a walk.
struct WalkShape {
  int rows_per_lane = 16;
  int row_warps = 2;
  int column_warps = 2;
  int tokens = 8;  // staged at a time

  constexpr int rows() const { return rows_per_lane * kRowLanes * row_warps; }  // of a block
  constexpr int columns() const { return kColumnsPerWarp * column_warps; }
  constexpr int state_warps() const { return row_warps * column_warps; }
  friend constexpr bool operator==(const WalkShape&, const WalkShape&) = default;
};

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
/// ends, which is checkpoint 0: number m is behind the token at position length - m * interval. A
/// sequence's checkpoints start at first_checkpoint().
struct WalkCheckpoints {
  enum class Use : std::int32_t { kNone, kKeep, kMeet };
  Use use = Use::kNone;
  std::int64_t interval = 1;  // a multiple of the tokens staged at a time
  float* states = nullptr;    // [checkpoints, H, tiles, a block's state]
  float* products = nullptr;  // [row blocks * row warps, checkpoints, H, columns], summed over rows
  std::int64_t count = 0;
};

/// Checkpoints of all sequences together, an upper bound that needs no look at cu_seqlens.
constexpr std::int64_t checkpoint_count(std::int64_t sequences, std::int64_t tokens, bool packed,
                                        std::int64_t interval) {
  return packed ? tokens / interval + sequences : sequences * (tokens / interval + 1);
}

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
  TokenView out;             // in the element type; only where one block holds all rows
  bool out_vectors = false;  // four elements may be stored at once
  float* planes =
      nullptr;  // [row blocks, B, T, H, columns]: each block's partial sums of out, in fp32
  WalkCheckpoints checkpoints;
};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Blocks that the rows of a state are spread over. Where there are several, `out` is the sum of
/// planes.
constexpr std::int64_t row_blocks(const WalkShape& shape, std::int64_t rows) {
  return ceil_div(rows, shape.rows());
}
constexpr std::int64_t column_blocks(const WalkShape& shape, std::int64_t columns) {
  return ceil_div(columns, shape.columns());
}
/// Floats of one checkpoint's states, of all heads.
constexpr std::int64_t checkpoint_floats(const WalkShape& shape, std::int64_t heads,
                                         std::int64_t rows, std::int64_t columns) {
  return heads * row_blocks(shape, rows) * column_blocks(shape, columns) * shape.rows() *
         shape.columns();
}

/// Gates that differ from channel to channel; a walk is compiled for each set of them.
enum ChannelGates : int { kRowGates = 1, kColumnGates = 2 };
inline constexpr int kGateSets[] = {0, kRowGates, kColumnGates, kRowGates | kColumnGates};

/// Offsets in floats, each a multiple of four, in one of two buffers. Rows and columns are a
/// block's, padded with zeros.
struct StageLayout {
  int pairs = 0;          // [tokens, rows] of {write, read}
  int values = 0;         // [tokens, columns]
  int shared_decays = 0;  // [tokens] of DecayFactor, where no gate differs between channels
  int row_decays = 0;     // [parts, tokens, rows]
  int column_decays = 0;  // [parts, tokens, columns]
  int sums = 0;           // [tokens, row warps, row lanes, columns]: partial sums of what was read
  int floats = 0;
};

/// Decays are staged as factors: their high parts and, when `exact`, their low parts. Where rows
/// and columns both have gates, logarithms are staged, as only their sum has an exponential.
constexpr int decay_parts(int gates, bool exact) {
  return exact && gates != (kRowGates | kColumnGates) ? 2 : 1;
}

constexpr StageLayout stage_layout(const WalkShape& shape, int gates, bool exact) {
  StageLayout at;
  const auto take = [&at](int floats) {
    const int offset = at.floats;
    at.floats += (floats + 3) / 4 * 4;
    return offset;
  };
  const int parts = decay_parts(gates, exact) * shape.tokens;
  at.pairs = take(shape.tokens * shape.rows() * 2);
  at.values = take(shape.tokens * shape.columns());
  at.shared_decays = take(gates == 0 ? shape.tokens * 2 : 0);
  at.row_decays = take((gates & kRowGates) != 0 ? parts * shape.rows() : 0);
  at.column_decays = take((gates & kColumnGates) != 0 ? parts * shape.columns() : 0);
  at.sums = take(shape.tokens * shape.row_warps * kRowLanes * shape.columns());
  return at;
}

/// Shared memory of a block: while one buffer is walked over, the other is staged.
constexpr std::size_t walk_shared_bytes(const WalkShape& shape, int gates, bool exact) {
  return 2 * sizeof(float) * static_cast<std::size_t>(stage_layout(shape, gates, exact).floats);
}

/// Whether four elements at any multiple of four channels can be moved at once.
template <class Tensor>
bool moves_in_quads(const Tensor& tensor) {
  constexpr std::int64_t kQuad = 4;
  const auto bytes = static_cast<std::uintptr_t>(kQuad) * size_of(tensor.dtype);
  for (int dim = 0; dim < tensor.rank() - 1; ++dim) {
    if (tensor.stride(dim) % kQuad != 0) return false;
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

/// Queues the walk for an element type: float, __half or __nv_bfloat16.
template <class T>
void launch_walk(const WalkShape& shape, const WalkParams& params, cudaStream_t stream);

}  // namespace attune::cuda::fused_recurrent
