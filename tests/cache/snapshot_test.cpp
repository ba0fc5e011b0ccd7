// What a file holds at one moment: which row, pin and quarantine are for a problem.
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "sample_rows.hpp"

namespace attune {
namespace {

using test::sample_key;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;

TEST(Snapshot, FindsARowByItsWholeKey) {
  ConfigSnapshot snapshot;
  snapshot.rows = {sample_row(2), sample_row(0), sample_row(1)};
  snapshot.index();
  for (std::int64_t i = 0; i < 3; ++i) {
    ASSERT_NE(snapshot.find(sample_key(i)), nullptr);
    EXPECT_EQ(snapshot.find(sample_key(i))->samples, 100 + i);
  }
  for (std::string RowKey::*part :
       {&RowKey::op, &RowKey::device_class, &RowKey::platform, &RowKey::problem}) {
    RowKey key = sample_key(0);
    key.*part += "x";
    EXPECT_EQ(snapshot.find(key), nullptr);
  }
  snapshot.rows = {sample_row(7)};
  snapshot.index();
  EXPECT_EQ(snapshot.find(sample_key(0)), nullptr);
  EXPECT_NE(snapshot.find(sample_key(7)), nullptr);
}

TEST(Snapshot, FindsTheRowsOfABucketInTheOrderOfTheirKeys) {
  ConfigSnapshot snapshot;
  snapshot.rows = {sample_row(2), sample_row(0), sample_row(1)};
  snapshot.rows[2].bucket = "another";
  snapshot.index();
  const auto found = snapshot.find_bucket(sample_key(9), sample_row(0).bucket);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]->key, sample_key(0));
  EXPECT_EQ(found[1]->key, sample_key(2));
  RowKey elsewhere = sample_key(9);
  elsewhere.platform = "simd";
  EXPECT_TRUE(snapshot.find_bucket(elsewhere, sample_row(0).bucket).empty());
}

TEST(Snapshot, FindsTheRowsOfAProblemForAnyDeviceAndPlatform) {
  ConfigSnapshot snapshot;
  snapshot.rows = {sample_row(2), sample_row(0), sample_row(1), sample_row(0), sample_row(0)};
  snapshot.rows[3].key.platform = "simd";
  snapshot.rows[4].key.op = "another";
  snapshot.index();
  const RowKey key = sample_key(0);
  const auto found = snapshot.find_problem(key.op, key.problem);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]->key, key);
  EXPECT_EQ(found[1]->key.platform, "simd");
  EXPECT_TRUE(snapshot.find_problem(key.op, sample_key(9).problem).empty());
}

TEST(Snapshot, APinHoldsForItsKeyUntilItExpires) {
  ConfigSnapshot snapshot;
  snapshot.pins = {sample_pin(0), sample_pin(1)};
  snapshot.pins[1].expires = 1000;
  snapshot.index();
  const std::int64_t ages = std::int64_t{1} << 40;
  EXPECT_EQ(snapshot.find_pin(sample_key(0), ages), &snapshot.pins[0]) << "without an end";
  EXPECT_EQ(snapshot.find_pin(sample_key(1), 999), &snapshot.pins[1]);
  EXPECT_EQ(snapshot.find_pin(sample_key(1), 1000), nullptr);
  EXPECT_EQ(snapshot.find_pin(sample_key(2), 0), nullptr);
}

TEST(Snapshot, AQuarantineIsOfACandidateOnADeviceClassForOneProblemOrAll) {
  ConfigSnapshot snapshot;
  snapshot.quarantine = {sample_quarantine(1)};
  QuarantineRow& row = snapshot.quarantine[0];
  snapshot.index();
  const auto find = [&](const RowKey& key) {
    return snapshot.find_quarantine(key, "simd.row_softmax.blocked", 3, "unroll=1") != nullptr;
  };
  EXPECT_TRUE(find(sample_key(0)));
  EXPECT_TRUE(find(sample_key(1))) << "no problem is every problem";
  row.problem = sample_key(0).problem;
  snapshot.index();
  EXPECT_TRUE(find(sample_key(0)));
  EXPECT_FALSE(find(sample_key(1)));
  RowKey elsewhere = sample_key(0);
  elsewhere.platform = "simd";
  EXPECT_TRUE(find(elsewhere)) << "a crash is one whatever platform was asked for";
  elsewhere.device_class += "x";
  EXPECT_FALSE(find(elsewhere));
  elsewhere = sample_key(0);
  elsewhere.op += "x";
  EXPECT_FALSE(find(elsewhere));
  const RowKey key = sample_key(0);
  EXPECT_EQ(snapshot.find_quarantine(key, "another", 3, "unroll=1"), nullptr);
  EXPECT_EQ(snapshot.find_quarantine(key, "simd.row_softmax.blocked", 4, "unroll=1"), nullptr);
  EXPECT_EQ(snapshot.find_quarantine(key, "simd.row_softmax.blocked", 3, "unroll=2"), nullptr);
}

TEST(Content, IsSortedWhereManyRowsHaveOneKeyAsATextMayClaim) {
  DatabaseContent content;
  for (std::int64_t i = 0; i < 300; ++i) {
    content.decisions.push_back({sample_row(i % 2), {}});
    content.pins.push_back(sample_pin(0));
    content.quarantine.push_back(sample_quarantine(0));
  }
  content.sort();
  EXPECT_EQ(content.decisions.front().row.key, sample_key(0));
  EXPECT_EQ(content.decisions[149].row.key, sample_key(0));
  EXPECT_EQ(content.decisions[150].row.key, sample_key(1));
  EXPECT_EQ(content.pins.size(), 300U);
}

}  // namespace
}  // namespace attune
