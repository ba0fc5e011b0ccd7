// Where a walk's block keeps staged tokens in shared memory.
#pragma once

#include <cstddef>

#include "cuda/fused_recurrent/walk.hpp"

namespace attune::cuda {

/// Gates that differ from channel to channel: what a walk is compiled for.
enum ChannelGates : int { kRowGates = 1, kColumnGates = 2 };

/// Offsets in floats, each a multiple of four, in one of two buffers. Rows and columns are a
/// block's, padded with zeros.
struct StageLayout {
  int pairs = 0;          // [tokens, rows] of {write, read}
  int values = 0;         // [tokens, columns]
  int shared_decays = 0;  // [tokens] of DecayFactor, where no gate differs between channels
  int row_decays = 0;     // [parts, tokens, rows]
  int column_decays = 0;  // [parts, tokens, columns]
  int sums = 0;           // [tokens, row warps, row lanes, columns]: parts of what was read
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

}  // namespace attune::cuda
