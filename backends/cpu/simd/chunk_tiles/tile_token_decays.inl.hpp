// Decays that all channels share (g, gamma), over the tokens of a chunk, for products in tiles.
//
// Only decays of different tokens are multiplied, and logs added, so a log decay of -inf resets
// exactly. With a_t the decay of token t, and blocks of 16 tokens,
//
//   P[t, s] = (q_t . k_s) a_{s+1} .. a_t
//
// has a factor for each row and one for each column where t and s are in different blocks: from the
// beginning of t's block, and from s until there.
#pragma once

#include "cpu/simd/chunk/token_decays.inl.hpp"
#include "tile_token_factors.inl.hpp"

namespace attune::cpu::ATTUNE_SIMD_NAMESPACE {

struct TileTokenDecays {
  static constexpr std::int64_t kBlocks = kMaxChunk / kTileRows;

  alignas(64) float of_token[kMaxChunk];
  alignas(64) float through[kMaxChunk];   // from the beginning of the chunk, itself included
  alignas(64) float behind[kMaxChunk];    // after it until the end of the chunk
  alignas(64) float in_block[kMaxChunk];  // from the beginning of its block, itself included
  // until[b][s]: after s until the beginning of block b, of the blocks before b.
  alignas(64) float until[kBlocks][kMaxChunk];
};

// Ones come in.
template <int kShift>
[[gnu::always_inline]] inline F32 shift_lanes(F32 x) {
  return shift_lanes<kShift>(x, broadcast(1.0F), std::make_index_sequence<kLanes>());
}

// Lane i: the product of lanes 0 to i, or, where kStep is negative, i to 15.
template <int kStep>
[[gnu::always_inline]] inline F32 running_products(F32 x) {
  x *= shift_lanes<kStep>(x);
  x *= shift_lanes<2 * kStep>(x);
  x *= shift_lanes<4 * kStep>(x);
  return x * shift_lanes<8 * kStep>(x);
}

// Returns the decay over the whole chunk in all lanes; `carries` is one vector, as
// exp_with_carry() has it.
[[gnu::noinline]] inline F32 tile_token_decays(const TokenLogs& logs, std::int64_t padded,
                                               float* carries, TileTokenDecays& decays) {
  const std::int64_t blocks = padded / kTileRows;
  F32 log_sum{};
  F32 after[TileTokenDecays::kBlocks];
  float of_block[TileTokenDecays::kBlocks];
  float before = 1.0F;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t token = block * kTileRows;
    F32 decay[1] = {load(logs.log + token)};
    log_sum += decay[0];
    exp_each(decay);
    const F32 products = running_products<1>(decay[0]);
    after[block] = shift_lanes<-1>(running_products<-1>(decay[0]));
    of_block[block] = products[kLanes - 1];
    store(decays.of_token + token, decay[0]);
    store(decays.in_block + token, products);
    store(decays.through + token, products * before);
    before *= of_block[block];
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    F32 until = after[block];
    for (std::int64_t later = block + 1; later < blocks; ++later) {
      store(decays.until[later] + block * kTileRows, until);
      until *= of_block[later];
    }
    store(decays.behind + block * kTileRows, until);
  }
  return exp_of_lanes_with_carry(log_sum, carries);
}

}  // namespace attune::cpu::ATTUNE_SIMD_NAMESPACE
