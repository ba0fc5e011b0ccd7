// How the kernels with a decay for every channel cut key channels. Needs no GPU.
#include <gtest/gtest.h>

#include "cuda/chunks/channels/slices.hpp"

namespace attune::test {
namespace {

using cuda::channels::KeySlices;
using cuda::channels::Problem;
using cuda::channels::Products;

KeySlices slices_of(const Problem& problem, int tile_v = 64) {
  return cuda::channels::key_slices_of(problem, Products::kWgmma, tile_v, tile_v > 64);
}

Problem gated(std::int64_t tokens, std::int64_t heads, std::int64_t keys, std::int64_t values) {
  return {.T = tokens, .H = heads, .Hkv = heads, .K = keys, .V = values, .gates = ops::kGateGk};
}

void expect_slices(const KeySlices& slices, int keys, int side_by_side, std::int64_t launches) {
  EXPECT_EQ(slices.keys, keys);
  EXPECT_EQ(slices.side_by_side, side_by_side);
  EXPECT_EQ(slices.launches, launches);
}

TEST(KeySlices, OfShortSequencesAreNarrowAndShareALaunch) {
  expect_slices(slices_of(gated(150, 4, 512, 64)), 128, 4, 1);
  expect_slices(slices_of(gated(150, 4, 320, 64)), 64, 5, 1);
  expect_slices(slices_of(gated(150, 4, 256, 64)), 128, 2, 1);
}

TEST(KeySlices, OfLongSequencesAreAsFewAsCanBe) {
  expect_slices(slices_of(gated(8192, 1, 512, 512)), 256, 2, 1);
  expect_slices(slices_of(gated(8192, 1, 384, 512)), 192, 2, 1);
  expect_slices(slices_of(gated(8192, 1, 256, 512)), 256, 1, 1);
}

TEST(KeySlices, AreLaunchesWhereBlocksAreManyOrSlicesNotWhole) {
  expect_slices(slices_of(gated(150, 64, 512, 512)), 256, 1, 2);
  expect_slices(slices_of(gated(150, 4, 264, 64)), 256, 1, 2);
  expect_slices(slices_of(gated(8192, 1, 448, 64)), 256, 1, 2);
}

TEST(KeySlices, OfStatesInSlotsAreLaunches) {
  Problem problem = gated(150, 4, 512, 64);
  problem.pool = true;
  expect_slices(slices_of(problem), 256, 1, 2);
  problem = gated(150, 4, 512, 64);
  problem.snapshot_every = 64;
  expect_slices(slices_of(problem), 256, 1, 2);
}

/// Its copies have rows of whole 16 bytes, and zeros in what is missing.
TEST(KeySlices, OfACallWithCopiesGoByTheRowsOfThese) {
  expect_slices(slices_of(gated(150, 4, 509, 61)), 128, 4, 1);
}

TEST(KeySlices, OfAFewTokensArePaidByNoSum) {
  expect_slices(slices_of(gated(64, 4, 256, 64)), 256, 1, 1);
  expect_slices(slices_of(gated(64, 4, 512, 64)), 128, 4, 1);
}

}  // namespace
}  // namespace attune::test
