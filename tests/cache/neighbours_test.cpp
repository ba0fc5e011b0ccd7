// How near problems are to each other, and which rows are near to one.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "sample_rows.hpp"
#include "store/neighbour_index.hpp"

namespace attune {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ProblemDistance, IsTheSumOfOctavesOverTheNumbersOfBoth) {
  EXPECT_EQ(problem_distance("B=1 T=512", "B=1 T=512"), 0);
  EXPECT_EQ(problem_distance("B=1 T=512", "B=4 T=256"), 3);
  EXPECT_EQ(problem_distance("B=4 T=256", "B=1 T=512"), 3);
  EXPECT_EQ(problem_distance("B=1 T=512 dtype=f32", "B=1 T=256 dtype=bf16"), 1) << "no numbers";
  EXPECT_EQ(problem_distance("B=1 T=512", "T=256 S=7"), 1) << "not of both";
  EXPECT_EQ(problem_distance("B=one", "B=8"), 0);
  EXPECT_EQ(problem_distance("B=8", "B=one"), 0);
  EXPECT_EQ(problem_distance("B=0", "B=8"), 3) << "0 is as far as 1";
  EXPECT_EQ(problem_distance("B=1 T", "B=1"), kInfinity);
  EXPECT_EQ(problem_distance("B=1", "B=1 T"), kInfinity);
}

class Neighbours : public testing::Test {
 protected:
  static ConfigRow row_of(const std::string& problem) {
    ConfigRow row = test::sample_row(0);
    row.key.problem = problem;
    return row;
  }
  static RowKey key_of(const std::string& problem) { return row_of(problem).key; }

  /// The problems of those found, with their distances.
  std::vector<std::pair<std::string, double>> find(const RowKey& key, double octaves) const {
    NeighbourIndex index({"B", "T"});
    for (const ConfigRow& row : rows) index.add(row, Layer::kSite, path);
    std::vector<std::pair<std::string, double>> found;
    for (const auto& [entry, distance] : index.find(key, octaves)) {
      EXPECT_EQ(entry->layer, Layer::kSite);
      EXPECT_EQ(*entry->path, path);
      found.emplace_back(entry->row->key.problem, distance);
    }
    return found;
  }

  std::vector<ConfigRow> rows;
  const std::string path = "site.db";
};

TEST_F(Neighbours, AreThoseWithinSoManyOctavesButForTheRowItself) {
  for (const char* problem : {"B=1 T=100", "B=1 T=200", "B=2 T=200", "B=2 T=400", "B=4 T=25"}) {
    rows.push_back(row_of(problem));
  }
  EXPECT_THAT(find(key_of("B=1 T=100"), 2),
              UnorderedElementsAre(std::pair("B=1 T=200", 1.0), std::pair("B=2 T=200", 2.0)));
  EXPECT_THAT(find(key_of("B=1 T=100"), 1.999), ElementsAre(std::pair("B=1 T=200", 1.0)));
  EXPECT_EQ(find(key_of("B=1 T=100"), 4).size(), 4U);
}

TEST_F(Neighbours, AgreeInAllOtherFields) {
  for (const char* problem : {"B=1 T=100 D=8", "B=1 T=100 D=16", "B=1 T=100 D=8 h0=yes",
                              "B=1 T=100", "B=1 D=8", "T=100 B=1 D=8"}) {
    rows.push_back(row_of(problem));
  }
  EXPECT_THAT(find(key_of("B=1 T=101 D=8"), 9),
              ElementsAre(std::pair("B=1 T=100 D=8", std::log2(101.0) - std::log2(100.0))));
}

TEST_F(Neighbours, AFieldThatIsLeftOutAt0IsNearToNothingElse) {
  for (const char* problem : {"T=100", "B=1 T=100", "B=2 T=100"}) rows.push_back(row_of(problem));
  EXPECT_THAT(find(key_of("T=200"), 9), ElementsAre(std::pair("T=100", 1.0)));
  EXPECT_THAT(find(key_of("B=2 T=200"), 9),
              UnorderedElementsAre(std::pair("B=1 T=100", 2.0), std::pair("B=2 T=100", 1.0)));
}

TEST_F(Neighbours, NothingIsNearToZeroButItself) {
  rows = {row_of("B=0 T=100"), row_of("B=1 T=100")};
  EXPECT_THAT(find(key_of("B=0 T=200"), 9), ElementsAre(std::pair("B=0 T=100", 1.0)));
  EXPECT_THAT(find(key_of("B=2 T=100"), 9), ElementsAre(std::pair("B=1 T=100", 1.0)));
}

TEST_F(Neighbours, AFieldThatIsNoNumberMustBeTheSame) {
  rows = {row_of("B=many T=100"), row_of("B=1 T=100")};
  EXPECT_THAT(find(key_of("B=many T=200"), 9), ElementsAre(std::pair("B=many T=100", 1.0)));
}

TEST_F(Neighbours, AreOfTheSamePlatformAndDeviceClass) {
  rows = {row_of("B=1 T=100")};
  RowKey key = key_of("B=1 T=200");
  EXPECT_EQ(find(key, 9).size(), 1U);
  key.platform = "simd";
  EXPECT_TRUE(find(key, 9).empty());
  key = key_of("B=1 T=200");
  key.device_class = "another";
  EXPECT_TRUE(find(key, 9).empty());
}

TEST_F(Neighbours, WhatCannotBeReadHasNone) {
  rows = {row_of("B"), row_of("B=1 T=100")};
  EXPECT_EQ(find(key_of("B=1 T=200"), 9).size(), 1U);
  EXPECT_TRUE(find(key_of("B"), 9).empty());
}

}  // namespace
}  // namespace attune
