// Scores against the sequence, 32 by 32 at a time: rows are the tokens that read, columns those
// that write, which come later or are the same,
//
//   P[t, s] = (r_t . w_s) a_{t+1} .. a_s        t <= s
//
// with decays as cpu/simd/vector/decays.inl.hpp has them: those of the same two tokens with the
// sequence, where s reads t. What is below the diagonal is left out.
#pragma once

#include "recurrence.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward {

// One tile of sums as they decay, times a scale. Where it is of one block, rows are to be asked for
// from the last one on.
template <bool kDecay, ScoreTile kTile>
class DecayedSumsAgainst {
 public:
  [[gnu::always_inline]] DecayedSumsAgainst(const float* tile, const TileTokenDecays* decays,
                                            float scale, std::int64_t token, std::int64_t writer)
      : tile_(tile), decays_(decays), token_(token), decay_(broadcast(scale)) {
    if constexpr (kDecay && kTile == ScoreTile::kOfBlocks) {
      until_ = decays->until[writer / kTileRows] + token;
      decay_ *= load(decays->in_block + writer);
    }
  }

  [[gnu::always_inline]] F32 row(int t) {
    F32 sum = load(tile_ + t * kLanes);
    if constexpr (kTile == ScoreTile::kOfBlocks) {
      if constexpr (kDecay) sum *= decay_ * until_[t];
      return sum;
    } else {
      const U32 lane = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
        return U32{std::uint32_t(kIndex)...};
      }
      (std::make_index_sequence<kLanes>());
      const auto row = static_cast<std::uint32_t>(t);
      if constexpr (kDecay) {
        if (t + 1 < kTileRows) {
          decay_ = lane > row ? decay_ * decays_->of_token[token_ + t + 1] : decay_;
        }
        sum *= decay_;
      }
      return lane >= row ? sum : F32{};
    }
  }

 private:
  const float* tile_;
  const TileTokenDecays* decays_;
  std::int64_t token_;
  const float* until_ = nullptr;
  F32 decay_;
};

// The factors of scores and of writes. Without decays there are none.
struct FactorsAgainst {
  const TileTokenDecays* decays = nullptr;
  const float* writes = nullptr;  // of each token
  float scores = 1.0F;
};

// Where scores are left. With `others`, scores of the same tokens, products of the two are,
// these as they decay.
struct SumsAgainst {
  TileMatrix tiles;  // [chunk / 16][chunk / 16]; four tiles where nobody asks for them again
  bool are_kept = false;
  const TileMatrix* others = nullptr;

  float* at(std::int64_t row, std::int64_t column) const {
    return are_kept ? tiles.at(row, column) : tiles.data + (row % 2 * 2 + column % 2) * kTileFloats;
  }
};

// 32 by 32 sums, of tokens from `token` and writers from `writer` on: rounded to pairs of
// bf16, 16 rows at a time.
template <bool kDecay>
struct ScoreJoiningAgainst {
  const TileKeys* keys = nullptr;
  FactorsAgainst factors;
  SumsAgainst sums;
  std::int64_t token = 0;
  std::int64_t writer = 0;

  static constexpr bool kAgainst = true;
  static constexpr std::int64_t kParts = 2;

  BlockTiles place(std::int64_t token_of_rows, std::int64_t token_of_columns) {
    token = token_of_rows;
    writer = token_of_columns;
    const std::int64_t row = token / kTileRows;
    const std::int64_t column = writer / kTileRows;
    return {{sums.at(row, column), sums.at(row, column + 1), sums.at(row + 1, column),
             sums.at(row + 1, column + 1)}};
  }

  [[gnu::noinline]] void run_part(std::int64_t half) const {
    const std::int64_t block = token / kTileRows + half;
    if (token != writer) return join(of_blocks(block, 0), of_blocks(block, 1), block);
    if (half == 0) return join(of_block(block, 0), of_blocks(block, 1), block);
    join(NoSums(), of_block(block, 1), block);
  }

 private:
  // A tile of sums, and where its products go.
  template <class Sums>
  struct Tile {
    Sums sums;
    const float* other;
    float* product;

    [[gnu::always_inline]] F32 row(int t) {
      const F32 sum = sums.row(t);
      if (other) store(product + t * kLanes, sum * load(other + t * kLanes));
      return sum;
    }
  };
  struct NoSums {
    [[gnu::always_inline]] F32 row(int) const { return F32{}; }
  };

  template <ScoreTile kTile>
  [[gnu::always_inline]] auto tile(std::int64_t block, std::int64_t side) const {
    using Sums = DecayedSumsAgainst<kDecay, kTile>;
    const std::int64_t column = writer / kTileRows + side;
    float* const at = sums.at(block, column);
    return Tile<Sums>{
        .sums = Sums(at, factors.decays, factors.scores, block * kTileRows, column * kTileRows),
        .other = sums.others ? sums.others->at(block, column) : nullptr,
        .product = at};
  }
  [[gnu::always_inline]] auto of_blocks(std::int64_t block, std::int64_t side) const {
    return tile<ScoreTile::kOfBlocks>(block, side);
  }
  [[gnu::always_inline]] auto of_block(std::int64_t block, std::int64_t side) const {
    return tile<ScoreTile::kOfOneBlock>(block, side);
  }

  template <class Left, class Right>
  [[gnu::always_inline]] void join(Left left, Right right, std::int64_t block) const {
    float* const target = keys->scores.at(block, writer / kTileDepth);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int t = 15 - i;
      store(target + t * kLanes, join_bf16(left.row(t), right.row(t)));
    }
  }
};

// Reads, scores and writes of a chunk. With kDecay, scores and writes have factors.
template <bool kDecay>
struct PreparationAgainst : ScoreProducts<kDecay, ScoreJoiningAgainst<kDecay>> {
  PreparationAgainst(const TileKeys& keys, const ChunkSpan& span, const RecurrenceRows& rows,
                     const FactorsAgainst& factors, const SumsAgainst& sums)
      : ScoreProducts<kDecay, ScoreJoiningAgainst<kDecay>>(
            keys, span, {.q = &rows.reads, .k = rows.writes}, factors.writes,
            {.keys = &keys, .factors = factors, .sums = sums}) {}
};

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles::backward
