// Into how many segments forward walks cut their sequences, on a device of 132 multiprocessors. Needs
// no GPU.
#include "cuda/chunks/segment_counts.hpp"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "cuda/chunk_mma/blocks.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttentionProblem;

DeviceInfo device() {
  DeviceInfo info;
  info.cores = 132;
  info.l1_bytes = 227 * 1024;
  return info;
}

int segments_of(const cuda::WholeWalk& walk) {
  return cuda::cheapest_segments(walk, device()).segments;
}

TEST(SegmentCounts, LongSegmentsLeaveNoMultiprocessorWithoutABlock) {
  for (const std::int64_t blocks : {6, 7, 9, 14, 18}) {
    EXPECT_EQ(segments_of({.blocks = blocks, .room = 132, .chunks = 2000}), 132 / blocks);
  }
}

TEST(SegmentCounts, ShortSegmentsHaveNumbersOfTheirOwn) {
  EXPECT_EQ(segments_of({.blocks = 14, .room = 132, .chunks = 40}), 8);
}

TEST(SegmentCounts, StartsAreMadeAheadWhereToPassThemTakesLonger) {
  constexpr std::int64_t kSmall = 64 * 64 * 4, kLarge = 128 * 128 * 4;
  EXPECT_FALSE(cuda::makes_starts(40, kSmall));
  EXPECT_TRUE(cuda::makes_starts(64, kSmall));
  EXPECT_FALSE(cuda::makes_starts(16, kLarge));
  EXPECT_TRUE(cuda::makes_starts(24, kLarge));
  // To pass so many would take longer than the walk: one head has a block on every multiprocessor.
  EXPECT_EQ(segments_of({.blocks = 1, .room = 132, .chunks = 2048, .state_bytes = kLarge}), 128);
}

TEST(SegmentCounts, RoundsOfBlocksAreForF32) {
  constexpr cuda::chunk_mma::Config kConfig{.warps = 8, .chunk = 32};
  RecurrentAttentionProblem problem{.T = 16184, .H = 3, .K = 473, .V = 473};
  EXPECT_EQ(cuda::chunk_mma::segments_for(problem, device(), kConfig), 11);
  EXPECT_EQ(segments_of({.blocks = 48, .room = 132, .chunks = 506}), 2);
}

/// Packed sequences have none made ahead, and a batch has their cuts.
TEST(SegmentCounts, StartsMadeAheadAreForOneSequence) {
  EXPECT_EQ(cuda::bytes_for_starts(RecurrentAttentionProblem{.B = 1, .T = 8192}, 1024), 1024);
  EXPECT_EQ(cuda::bytes_for_starts(RecurrentAttentionProblem{.B = 1, .T = 8192, .N = 1}, 1024),
            1024);
  EXPECT_EQ(cuda::bytes_for_starts(RecurrentAttentionProblem{.B = 2, .T = 8192}, 1024), 0);
  EXPECT_EQ(cuda::bytes_for_starts(RecurrentAttentionProblem{.B = 1, .T = 8192, .N = 2}, 1024), 0);
}

/// Packed sequences are cut by their own lengths, those of average length as their batch is: but for
/// more segments than a sequence has, and slices that go by themselves in a batch alone.
TEST(SegmentCounts, PackedSequencesOfOneLengthHaveTheSegmentsOfTheirBatch) {
  constexpr cuda::chunk_mma::Config kWide{.warps = 8, .chunk = 32};
  constexpr int kMostOfASequence = 32;
  int cut = 0;
  for (std::int64_t count = 2; count <= 24; ++count) {
    for (std::int64_t length = 100; length < 20'000; length = length * 3 / 2) {
      for (const std::int64_t channels : {64, 128, 256, 512}) {
        RecurrentAttentionProblem batch{.B = count, .T = length, .K = channels, .V = channels};
        RecurrentAttentionProblem packed = batch;
        packed.B = 1;
        packed.T = count * length;
        packed.N = count;
        cuda::chunk_mma::Config config = kWide;
        config.segments = cuda::chunk_mma::segments_for(batch, device(), kWide);
        EXPECT_EQ(cuda::chunk_mma::segments_for(packed, device(), kWide), config.segments);
        const std::int64_t tokens = cuda::chunk_mma::parts_of(packed, config).tokens;
        if (tokens == 0 || config.segments > kMostOfASequence) continue;
        EXPECT_EQ(std::max<std::int64_t>(length / tokens, 1), config.segments)
            << count << " of " << length << ", " << channels << " channels";
        ++cut;
      }
    }
  }
  EXPECT_GT(cut, 500);
}

}  // namespace
}  // namespace attune::test
