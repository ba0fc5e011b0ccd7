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

#include "cuda/chunks/views.hpp"

namespace attune::cuda {

// How a warp holds its tile of the state: 4 lanes along the rows, 8 along the columns.
inline constexpr int kRowLanes = 4;
inline constexpr int kColumnLanes = 8;
inline constexpr int kColumnsPerLane = 4;
inline constexpr int kColumnsPerWarp = kColumnLanes * kColumnsPerLane;

/// Warps of a block that hold no state: they stage tokens and write what was read.
inline constexpr int kStagingWarps = 2;

/// State warps that a block may have. With 32 rows a lane the state alone takes 128 registers.
constexpr int most_state_warps(int rows_per_lane) { return rows_per_lane > 16 ? 4 : 8; }

/// What may be tuned in a walk.
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

/// Rows [B, T, heads, D] in the element type. Without data they are zero.
struct WalkRows {
  ConstTokenView view;
  std::int64_t group = 1;  // query heads that share a row
  bool vectors = false;    // four elements may be loaded at once
};

/// A gate of every row or column.
struct WalkGate {
  GateView view;
  bool vectors = false;
};

/// States kept at some of the steps of one walk, and their products with those of another, in
/// which the walk in the other direction meets them. They lie `interval` tokens apart, counted from
/// where the first walk ends, which is slot 0: slot m is behind the token at position length - m *
/// interval. Slots of sequence n start at snapshot_base() of views.
struct WalkSnapshots {
  enum class Use : std::int32_t { kNone, kKeep, kMeet };
  Use use = Use::kNone;
  std::int64_t interval = 1;  // a multiple of the tokens staged at a time
  float* states = nullptr;    // [slots, H, tiles, a block's state]
  float* products = nullptr;  // [row blocks * row warps, slots, H, columns], summed over rows
  std::int64_t slots = 0;
};

/// Slots of all sequences together, an upper bound that needs no look at cu_seqlens.
constexpr std::int64_t snapshot_slots(std::int64_t sequences, std::int64_t tokens, bool packed,
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
  float* planes = nullptr;   // [row blocks, B, T, H, columns]: each block's share of out, in fp32
  WalkSnapshots snapshots;
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
/// Floats of one slot's states.
constexpr std::int64_t snapshot_floats(const WalkShape& shape, std::int64_t heads,
                                       std::int64_t rows, std::int64_t columns) {
  return heads * row_blocks(shape, rows) * column_blocks(shape, columns) * shape.rows() *
         shape.columns();
}

/// Queues the walk for an element type: float, __half or __nv_bfloat16.
template <class T>
void launch_walk(const WalkShape& shape, const WalkParams& params, cudaStream_t stream);

}  // namespace attune::cuda
