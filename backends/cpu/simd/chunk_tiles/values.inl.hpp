// The value side of a chunk. Without a gv, values are one operand. With one, b_t[j] is the decay of
// column j at token t, R_t = q~_t S_0 the read of the state before the chunk, P the scores of the
// key side, and
//
//   o_t[j]        = b_0 .. b_t[j] R_t[j] + sum_{s <= t} P[t, s] b_{s+1} .. b_t[j] v_s[j]
//   S_{n-1}[i, j] = b_0 .. b_{n-1}[j] S_0[i, j] + sum_s k~_s[i] b_{s+1} .. b_{n-1}[j] v_s[j]
//
// Each block of 16 tokens reads values relative to its own beginning: those of earlier blocks have
// decayed until there, its own are divided by their decays since (or, beyond kMaxLog, are added
// one by one); what a token reads decays from there on.
#pragma once

#include "keys.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

struct TileValues {
  HalfSource v;
  RowSource gv;
  Balance balance;
  OutputRows o;
  std::int64_t columns = 0;  // of the task
  std::int64_t width = 0;    // in whole 32s
  TileMatrix values;         // [width / 16][chunk / 32]
  float* outputs = nullptr;  // four tiles
  TileMatrix
      blocks[kMaxChunk / kTileRows];  // with a gv, as all below: values as a block reads them
  float* token_decays = nullptr;      // [chunk, width], as the next two
  float* reads = nullptr;             // decays from the beginning of a token's block
  float* ends = nullptr;              // v until the end of its block, and then of later ones
  float* inverses = nullptr;          // [width]: one over a block's decay
  float* starts = nullptr;  // [chunk / 16 + 1, width]: decays until the beginning of a block
  float* decays = nullptr;  // [width], as the next
  float* carries = nullptr;
  const float* zeros = nullptr;

  bool decay() const { return gv.rows.data != nullptr; }
};

// Before the first chunk: what is behind the columns stays zero.
inline void reset_values(const TileValues& values) {
  if (!values.decay()) return;
  const std::int64_t chunk = values.values.across * kTileDepth;
  const std::int64_t blocks = chunk / kTileRows;
  zero_floats(values.carries, values.width);
  zero_floats(values.inverses, values.width);
  zero_floats(values.starts, (blocks + 1) * values.width);
  zero_floats(values.reads, chunk * values.width);
  zero_floats(values.ends, chunk * values.width);
}

// Returns whether values may be divided by decays of the block. `start` is the block's of `starts`.
[[gnu::noinline]] inline bool decay_value_block(const TileValues& values, const HalfRows& v,
                                                const ChunkRows& gv, const float* logs,
                                                std::int64_t token, float* start) {
  F32 largest{};
  for (std::int64_t j = 0; j < values.columns; j += kLanes) {
    BlockDecays decays;
    decays_of_block(gv.row, logs, j, decays, largest);
    F32 product = broadcast(1.0F);
    for (int t = 0; t < kTileRows; ++t) {
      product *= decays.of_token[t];
      const std::int64_t at = (token + t) * values.width + j;
      store(values.token_decays + at, decays.of_token[t]);
      store(values.reads + at, product);
    }
    F32 after = broadcast(1.0F);
    for (int t = kTileRows; t-- > 0;) {
      store(values.ends + (token + t) * values.width + j, v.vector(token + t, j) * after);
      after *= decays.of_token[t];
    }
    for (std::int64_t t = 0; t < token; ++t) {
      float* const end = values.ends + t * values.width + j;
      store(end, load(end) * product);
    }
    store(start + values.width + j, load(start + j) * product);
    store(values.decays + j, load(values.decays + j) + decays.log_sum);
    F32 inverse[1] = {-decays.log_sum};
    exp_each(inverse);
    store(values.inverses + j, inverse[0]);
  }
  return is_small(largest);
}

// Which blocks' own values are left to add_block_values_exactly().
using ExactBlocks = bool[kMaxChunk / kTileRows];

// With a gv. Without one, values are packed a strip at a time (state.inl.hpp).
[[gnu::noinline]] inline void prepare_values(const TileValues& values, const ChunkSpan& span,
                                             ExactBlocks& exact) {
  HalfRows v;
  half_rows(values.v, span.token, span.present, span.padded, v);
  for (std::int64_t j = 0; j < values.width; j += kLanes) {
    store(values.starts + j, broadcast(1.0F));
    store(values.decays + j, F32{});
  }
  TokenLogs logs;
  token_logs({}, 0.0F, span.token, span.present, span.padded, logs);
  balance_logs(values.balance, span.token, span.present, logs);
  const FloatRows ends{values.ends, values.width};
  const FloatRows zeros{values.zeros, 0};
  for (std::int64_t block = 0; block < span.blocks(); ++block) {
    const std::int64_t token = block * kTileRows;
    const std::int64_t present = span.present_in_block(block);
    // Earlier values as they are before the block's own decays.
    for (std::int64_t before = 0; before < token; before += kTileRows) {
      pack_columns(ends, before, kTileRows, values.width, values.blocks[block]);
    }
    ChunkRows gv;
    chunk_rows(values.gv, span.token + token, present, kTileRows, gv);
    if (values.balance.gv.data) keep_padding(values.gv, logs.log + token, present);
    exact[block] = !decay_value_block(values, v, gv, logs.log + token, token,
                                      values.starts + block * values.width);
    if (exact[block]) {
      pack_columns(zeros, token, kTileRows, values.width, values.blocks[block]);
    } else {
      pack_columns(FloatRows{values.ends, values.width, values.inverses}, token, kTileRows,
                   values.width, values.blocks[block]);
    }
    if (block % 2 == 0) {
      pack_columns(zeros, token + kTileRows, kTileRows, values.width, values.blocks[block]);
    }
  }
  for (std::int64_t t = 0; t < span.padded; t += kTileDepth) {
    pack_columns(ends, t, kTileDepth, values.width, values.values);
  }
  exp_with_carry(values.decays, values.carries, values.width);
}

// o += sum_s P[t, s] b_{s+1} .. b_t v_s over the tokens of one block: `sums` is P's tile, `o` a
// tile of 16 columns from `column` on.
[[gnu::noinline]] inline void add_block_values_exactly(const TileValues& values, const HalfRows& v,
                                                       std::int64_t token, std::int64_t column,
                                                       const float* sums, float* o) {
  for (std::int64_t s = 0; s < kTileRows; ++s) {
    F32 value = v.vector(token + s, column);
    for (std::int64_t t = s; t < kTileRows; ++t) {
      if (t > s) value *= load(values.token_decays + (token + t) * values.width + column);
      float* const out = o + t * kLanes;
      store(out, fma(broadcast(sums[t * kLanes + s]), value, load(out)));
    }
  }
}

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
