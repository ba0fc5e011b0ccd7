// What made-up cases hold so that a kernel that takes more for granted is found wrong.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/case_support.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentDecode;

std::vector<double> slots_of(const std::string& problem) {
  const auto made = make_case("recurrent_decode", problem);
  return to_doubles(*args_of<RecurrentDecode>(*made).slot_indices);
}

TEST(MadeDecode, HasSlotsThatDoNotFollowEachOther) {
  for (const char* problem : {"B=8 S=8 D=4", "B=8 S=16 D=4", "B=64 S=100 D=4"}) {
    const std::vector<double> slots = slots_of(problem);
    const auto follows = [](double a, double b) { return b == a + 1; };
    EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end(), follows), slots.end()) << problem;
    std::vector<double> sorted = slots;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << problem;
  }
}

TEST(MadeDecode, HasPaddingWhereThereAreTooFewSlots) {
  const std::vector<double> slots = slots_of("B=5 S=4 D=4");
  EXPECT_EQ(std::count(slots.begin(), slots.end(), -1), 1);
  EXPECT_EQ(*std::max_element(slots.begin(), slots.end()), 3);
  EXPECT_EQ(slots_of("B=1 S=1 D=4"), std::vector<double>{0});
}

std::vector<double> lengths_of(const std::string& problem, std::uint64_t seed = 1) {
  const auto made = make_case("recurrent_attention", problem, seed);
  const std::vector<double> bounds = to_doubles(*args_of<RecurrentAttention>(*made).cu_seqlens);
  std::vector<double> lengths;
  for (std::size_t i = 1; i < bounds.size(); ++i) lengths.push_back(bounds[i] - bounds[i - 1]);
  return lengths;
}

TEST(MadeAttention, HasPackedSequencesOfAllLengths) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const std::vector<double> lengths = lengths_of("T=95 D=4 N=3", seed);
    EXPECT_GE(lengths[0], 65) << "past the first edge of a chunk";
    EXPECT_EQ(lengths[1], 0) << "an empty one";
  }
  const std::vector<double> two = lengths_of("T=95 D=4 N=2");
  EXPECT_GT(two[1], 0);
  EXPECT_GT(two[0], two[1]);
  EXPECT_EQ(two[0] + two[1], 95);
  EXPECT_EQ(lengths_of("T=7 D=4 N=1"), std::vector<double>{7});
}

TEST(MadeAttention, HasManyPackedSequencesThatAreAlikeOrRaggedOrShortBesideALongOne) {
  int even = 0, ragged = 0, one_long = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::vector<double> lengths = lengths_of("T=6400 D=4 N=64", seed);
    const double longest = *std::ranges::max_element(lengths);
    if (std::ranges::count(lengths, 100) == 64) {
      ++even;
    } else if (longest > 3000) {
      ++one_long;
      EXPECT_EQ(longest, lengths.front());
    } else {
      ++ragged;
      EXPECT_LT(longest, 600);
    }
    EXPECT_EQ(std::ranges::count(lengths, 0), std::ranges::count(lengths, 100) == 64 ? 0 : 1);
  }
  EXPECT_GT(even, 10);
  EXPECT_GT(ragged, 10);
  EXPECT_GT(one_long, 10);
}

}  // namespace
}  // namespace attune::test
