// Which of several rows, pins and changes a store gives first.
#include <ctime>

#include <gtest/gtest.h>

#include "store_fixture.hpp"

namespace attune {
namespace {

using test::kBucket;
using test::sample_key;
using test::sample_row;
using Mode = ConfigDatabase::Mode;

const std::vector<std::string> kRows = {"rows"};

class StoreLayers : public test::StoreFixture {
 protected:
  /// Two files of the site, the first named first.
  StoreSettings two_sites() const {
    return {user, {folder.file("first.db"), folder.file("second.db")}, {}, false};
  }
  static std::vector<std::string> configs(const std::vector<ConfigStore::Hit>& hits) {
    std::vector<std::string> all;
    for (const auto& hit : hits) all.push_back(hit.row.config);
    return all;
  }
  using Configs = std::vector<std::string>;
};

TEST_F(StoreLayers, OfOneLayerTheFileNamedFirstComesFirst) {
  fill(folder.file("second.db"), {row_of(0, "second=1"), row_of(4, "second=1")});
  fill(folder.file("first.db"), {row_of(0, "first=1"), row_of(4, "first=1")});
  const ConfigStore store(two_sites());
  EXPECT_EQ(configs(store.find(sample_key(0), "")), (Configs{"first=1", "second=1"}));
  EXPECT_EQ(configs(store.find_nearest(sample_key(100), kRows, 1)),
            (Configs{"first=1", "second=1", "first=1", "second=1"}));
  EXPECT_EQ(configs(store.find(sample_key(100), kBucket)),
            (Configs{"first=1", "second=1", "first=1", "second=1"}));
}

TEST_F(StoreLayers, TheNearestComesFirstThenTheUsersThenTheLesserKey) {
  // Of rows=256: 128 and 512 are an octave away, 200 is nearer, 100 is farther.
  fill(user, {row_of(412, "user=512"), row_of(28, "user=128")});
  fill(folder.file("first.db"), {row_of(28, "site=128"), row_of(0, "far=100")});
  fill(folder.file("second.db"), {row_of(100, "near=200")});
  const ConfigStore store(two_sites());
  const auto hits = store.find_nearest(sample_key(156), kRows, 2);
  EXPECT_EQ(configs(hits), (Configs{"near=200", "user=128", "user=512", "site=128", "far=100"}));
  EXPECT_EQ(hits[1].octaves, 1);
  EXPECT_EQ(hits[1].layer, Layer::kUser);
  EXPECT_EQ(hits[1].path, user);
  EXPECT_FALSE(hits[1].bucket);
}

TEST_F(StoreLayers, ChangesAreNeighboursAtOnce) {
  fill(user, {row_of(0, "old=1"), row_of(10, "kept=1")});
  ConfigStore store(user_only());
  EXPECT_EQ(configs(store.find_nearest(sample_key(100), kRows, 1)), (Configs{"kept=1", "old=1"}));
  store.put(row_of(0, "new=1"), {});
  EXPECT_EQ(configs(store.find_nearest(sample_key(100), kRows, 1)), (Configs{"kept=1", "new=1"}));
  EXPECT_EQ(configs(store.find(sample_key(100), kBucket)), (Configs{"kept=1", "new=1"}));
  store.erase(sample_key(0));
  EXPECT_EQ(configs(store.find_nearest(sample_key(100), kRows, 1)), Configs{"kept=1"});
  EXPECT_EQ(configs(store.find(sample_key(100), kBucket)), Configs{"kept=1"});
  EXPECT_TRUE(store.find(sample_key(0), "").empty());
  EXPECT_EQ(store.status().at(0).rows, 1);
}

TEST_F(StoreLayers, FindsRowsOfTheProblemElsewhereButNotItsOwn) {
  fill(user, {row_of(0, "own=1"), row_of(1, "other=1")});
  ConfigRow elsewhere = row_of(0, "elsewhere=1");
  elsewhere.key.device_class = "gpu";
  ConfigRow of_another_op = elsewhere;
  of_another_op.key.op = "another";
  fill(folder.file("first.db"), {elsewhere, of_another_op});
  const ConfigStore store(two_sites());
  EXPECT_EQ(configs(store.find_elsewhere(sample_key(0))), Configs{"elsewhere=1"});
}

TEST_F(StoreLayers, WhatCannotBeStoredIsServedFromMemoryAndCountedNowhere) {
  StoreSettings settings = user_only();
  settings.read_only = true;
  fill(user, {row_of(0, "stored=1")});
  ConfigStore store(settings);
  EXPECT_NE(store.put(row_of(1, "memory=1"), {}), "");
  const auto hits = store.find(sample_key(1), "");
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].path, "") << "it is in no file";
  EXPECT_EQ(store.status().at(0).rows, 1);
  store.reload_user();
  EXPECT_EQ(store.find(sample_key(1), "").size(), 1U) << "memory is all there is of it";
  EXPECT_EQ(configs(store.find(sample_key(9), kBucket)), (Configs{"memory=1", "stored=1"}));
}

TEST_F(StoreLayers, ASuspicionIsForgottenAfterAWeekAndACrashIsNot) {
  QuarantineRow row = test::sample_quarantine(1);
  const auto is_known = [&](std::int64_t age, const std::string& reason) {
    row.created = std::time(nullptr) - age;
    row.reason = reason;
    ConfigDatabase(user, Mode::kReadWrite).quarantine(row);
    return ConfigStore(user_only()).quarantined(sample_key(0), row.kernel, 3, row.config) == reason;
  };
  const std::string suspicion = str(kSuspect, "it ended");
  EXPECT_TRUE(is_known(kSuspicionSeconds - 60, suspicion));
  EXPECT_FALSE(is_known(kSuspicionSeconds + 60, suspicion));
  EXPECT_TRUE(is_known(kSuspicionSeconds + 60, "crashed"));
}

TEST_F(StoreLayers, ASitesFileThatIsMissingIsReportedAndAShippedOneIsNot) {
  StoreSettings settings = two_sites();
  settings.shipped_paths = {folder.file("shipped.db")};
  fill(folder.file("first.db"), {row_of(0, "first=1")});
  const auto status = ConfigStore(settings).status();
  ASSERT_EQ(status.size(), 3U);
  EXPECT_TRUE(status[1].used);
  EXPECT_EQ(status[2].path, folder.file("second.db"));
  EXPECT_FALSE(status[2].used);
  EXPECT_NE(status[2].reason, "");
  fill(folder.file("shipped.db"), {row_of(0, "shipped=1")});
  EXPECT_EQ(ConfigStore(settings).status().size(), 4U);
}

}  // namespace
}  // namespace attune
