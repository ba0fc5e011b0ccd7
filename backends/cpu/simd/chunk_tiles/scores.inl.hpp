// The key side of a chunk where no block of it is divided by decays of its own: scores, 32 by 32
// at a time, and keys as the state takes them.
//
// A product's sums stay in tile registers while the block before is rounded, and keys are
// transposed once for both uses. What is needed again soon is little: the first-level cache holds
// it.
#pragma once

#include "keys.inl.hpp"
#include "token_decays.inl.hpp"
#include "work.inl.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles {

// ---- keys ----

// The same halves of each lane of `first`, then of `second`: kHalf = 0 the lower ones.
template <int kHalf, std::size_t... kIndex>
[[gnu::always_inline]] inline F32 pick_halves(F32 first, F32 second,
                                              std::index_sequence<kIndex...>) {
  return (F32)__builtin_shufflevector((Halves)first, (Halves)second, (2 * int(kIndex) + kHalf)...);
}

template <int kHalf>
[[gnu::always_inline]] inline F32 widen_halves(F32 pairs) {
  const U32 bits = as_bits(pairs);
  return as_f32(kHalf == 0 ? bits << 16 : bits & 0xffff0000U);
}

// Channel 2 i + kHalf of 32 tokens, from its pairs of 16 tokens each.
template <int kHalf>
[[gnu::always_inline]] inline F32 channel_of_tokens(F32 first, F32 second, const float* factors) {
  if (!factors) return pick_halves<kHalf>(first, second, std::make_index_sequence<32>());
  return join_bf16(widen_halves<kHalf>(first) * load(factors),
                   widen_halves<kHalf>(second) * load(factors + kLanes));
}

// 32 tokens from `token` on: as columns of B, tiles (token / 16 and the next, channel / 32) of
// `keys`, and as depth of A in `writes`, if there are, times a factor for each token where kScaled.
template <bool kScaled>
struct KeyPacking {
  const TileKeys& keys;
  const HalfRows& rows;
  const float* factors;
  std::int64_t token;

  std::int64_t parts() const { return keys.depth() * 3; }

  void run_part(std::int64_t index) const {
    const std::int64_t channel = index / 3 * kTileDepth;
    if (index % 3 < 2) return pack_across(token + index % 3 * kTileRows, channel);
    if (keys.writes.data) pack_writes(channel);
  }

 private:
  [[gnu::noinline]] void pack_across(std::int64_t from, std::int64_t channel) const {
    F32 x[16];
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) x[t] = rows.row(from + t, channel);
    transpose(x);
    store_rows(keys.keys.at(from / kTileRows, channel / kTileDepth), x);
  }

  [[gnu::noinline]] void pack_writes(std::int64_t channel) const {
    const float* const first = keys.keys.at(token / kTileRows, channel / kTileDepth);
    const float* const second = keys.keys.at(token / kTileRows + 1, channel / kTileDepth);
    const float* const of_tokens = kScaled ? factors + token : nullptr;
    for (std::int64_t half = 0; half < 2; ++half) {
      float* const write = keys.writes.at(channel / kTileRows + half, token / kTileDepth);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const F32 before = load(first + (half * 8 + i) * kLanes);
        const F32 after = load(second + (half * 8 + i) * kLanes);
        store(write + 2 * i * kLanes, channel_of_tokens<0>(before, after, of_tokens));
        store(write + (2 * i + 1) * kLanes, channel_of_tokens<1>(before, after, of_tokens));
      }
    }
  }
};

// 32 tokens of q from `token` on.
struct QueryPacking {
  const TileKeys& keys;
  const HalfRows* rows;
  std::int64_t token;

  std::int64_t parts() const { return 2 * keys.depth(); }

  [[gnu::noinline]] void run_part(std::int64_t index) const {
    const std::int64_t first = token + index % 2 * kTileRows;
    const std::int64_t channel = index / 2 * kTileDepth;
    float* const tile = keys.queries.at(first / kTileRows, channel / kTileDepth);
#pragma GCC unroll 4
    for (std::int64_t t = 0; t < kTileRows; ++t) {
      store(tile + t * kLanes, rows->row(first + t, channel));
    }
  }
};

// ---- scores ----

// What a tile of sums is of: tokens of different blocks, or of one, where later sources are left
// out.
enum class ScoreTile { kOfBlocks, kOfOneBlock };

// One tile of sums, row by row, as they decay. `block` is that of its rows.
template <bool kDecay, ScoreTile kTile>
class DecayedSums {
 public:
  [[gnu::always_inline]] DecayedSums(const float* tile, const TileTokenDecays* decays,
                                     std::int64_t block, std::int64_t source)
      : tile_(tile), decays_(decays), token_(block * kTileRows), decay_(broadcast(1.0F)) {
    if constexpr (kDecay && kTile == ScoreTile::kOfBlocks) {
      decay_ = load(decays->until[block] + source);
    }
  }

  [[gnu::always_inline]] F32 row(int t) {
    F32 sum = load(tile_ + t * kLanes);
    if constexpr (kTile == ScoreTile::kOfBlocks) {
      if constexpr (kDecay) sum *= decay_ * decays_->in_block[token_ + t];
      return sum;
    } else {
      const U32 lane = []<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
        return U32{std::uint32_t(kIndex)...};
      }
      (std::make_index_sequence<kLanes>());
      const auto row = static_cast<std::uint32_t>(t);
      if constexpr (kDecay) {
        decay_ = lane < row ? decay_ * decays_->of_token[token_ + t] : decay_;
        sum *= decay_;
      }
      return lane <= row ? sum : F32{};
    }
  }

 private:
  const float* tile_;
  const TileTokenDecays* decays_;
  std::int64_t token_;
  F32 decay_;
};

// 32 by 32 sums in four tiles, of tokens from `token` and sources from `source` on: rounded to
// pairs of bf16, 16 rows at a time.
template <bool kDecay>
struct ScoreJoining {
  const TileKeys* keys = nullptr;
  const TileTokenDecays* decays = nullptr;
  float* tiles = nullptr;
  std::int64_t token = 0;
  std::int64_t source = 0;

  static constexpr bool kAgainst = false;
  static constexpr std::int64_t kParts = 2;

  BlockTiles place(std::int64_t token_of_rows, std::int64_t token_of_columns) {
    token = token_of_rows;
    source = token_of_columns;
    return {{tiles, tiles + kTileFloats, tiles + 2 * kTileFloats, tiles + 3 * kTileFloats}};
  }

  [[gnu::noinline]] void run_part(std::int64_t half) const {
    using Whole = DecayedSums<kDecay, ScoreTile::kOfBlocks>;
    using Lower = DecayedSums<kDecay, ScoreTile::kOfOneBlock>;
    const std::int64_t block = token / kTileRows + half;
    const float* const first = tiles + half * 2 * kTileFloats;
    const float* const second = first + kTileFloats;
    float* const target = keys->scores.at(block, source / kTileDepth);
    const auto join = [target](auto left, auto right) {
#pragma GCC unroll 16
      for (int t = 0; t < 16; ++t) store(target + t * kLanes, join_bf16(left.row(t), right.row(t)));
    };
    if (token != source) {
      join(Whole(first, decays, block, source), Whole(second, decays, block, source + kLanes));
    } else if (half == 1) {
      join(Whole(first, decays, block, source), Lower(second, decays, block, source + kLanes));
    } else {
      join(Lower(first, decays, block, source), NoSums());
    }
  }

  struct NoSums {
    [[gnu::always_inline]] F32 row(int) const { return F32{}; }
  };
};

// Rows of q and k as a chunk multiplies them. Without a q, queries are packed already.
struct ScoreRows {
  const HalfRows* q = nullptr;
  const HalfRows& k;
};

// Scores, queries and writes of a chunk. `Joining` is tile work on 32 by 32 sums: place() says
// which are next, and where they are put. With kScaled, writes have factors.
template <bool kScaled, class Joining>
class ScoreProducts {
 public:
  ScoreProducts(const TileKeys& keys, const ChunkSpan& span, const ScoreRows& rows,
                const float* factors, const Joining& joining)
      : keys_(keys),
        rows_(rows),
        factors_(factors),
        joining_(joining),
        halves_(span.padded / kTileDepth) {}

  // `add_next()` adds operands that may be made as soon as there is time.
  template <class AddNext>
  void run(BesideProducts& beside, const AddNext& add_next) {
    static_assert(kMaxChunk == 2 * kTileDepth);
    pack(0, beside.operands);
    beside.operands.run_all();
    if (halves_ == 1) {
      add_next();
      multiply(0, 0, beside);
    } else {
      pack(1, beside.operands);
      multiply(0, 0, beside);
      beside.operands.run_all();
      add_next();
      if constexpr (Joining::kAgainst) {
        multiply(0, 1, beside);
      } else {
        multiply(1, 0, beside);
      }
      multiply(1, 1, beside);
    }
    beside.results.run_all();
  }

 private:
  void pack(std::int64_t half, TileWorkQueue& operands) {
    if (rows_.q) operands.add(tile_work(queries_[half], queries_[half].parts()));
    operands.add(tile_work(packings_[half], packings_[half].parts()));
  }

  [[gnu::noinline]] void multiply(std::int64_t half, std::int64_t source, BesideProducts& beside) {
    zero_block<2>();
    add_block_beside(keys_.queries, 2 * half, keys_.keys, 2 * source, keys_.depth(), beside);
    beside.results.run_all();
    store_block<2>(joining_.place(half * kTileDepth, source * kTileDepth));
    beside.results.add(tile_work(joining_, Joining::kParts));
  }

  const TileKeys& keys_;
  ScoreRows rows_;
  const float* factors_;
  Joining joining_;
  std::int64_t halves_;
  KeyPacking<kScaled> packings_[2] = {{keys_, rows_.k, factors_, 0},
                                      {keys_, rows_.k, factors_, kTileDepth}};
  QueryPacking queries_[2] = {{keys_, rows_.q, 0}, {keys_, rows_.q, kTileDepth}};
};

// With the sequence. With kDecay, scores and writes decay; `sums` are four tiles of scratch memory.
template <bool kDecay>
struct ScorePreparation : ScoreProducts<kDecay, ScoreJoining<kDecay>> {
  ScorePreparation(const TileKeys& keys, const ChunkSpan& span, const ScoreRows& rows,
                   const TileTokenDecays* decays, float* sums)
      : ScoreProducts<kDecay, ScoreJoining<kDecay>>(
            keys, span, rows, kDecay ? decays->behind : nullptr,
            {.keys = &keys, .decays = decays, .tiles = sums}) {}
};

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk_tiles
