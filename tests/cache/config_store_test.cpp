#include <ctime>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include <attune/cache/config_store.hpp>

#include "raw_sqlite.hpp"
#include "store_fixture.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

using test::kBucket;
using test::raw_sql;
using test::sample_key;
using test::sample_pin;
using test::sample_quarantine;
using test::sample_row;
using test::sample_trial;
using test::text_of;
using Mode = ConfigDatabase::Mode;

class Store : public test::StoreFixture {};

TEST_F(Store, GivesTheRowsOfAllLayersFromTheUsersDown) {
  fill(folder.file("shipped.db"), {row_of(0, "shipped=1")});
  fill(folder.file("site.db"), {row_of(0, "site=1")});
  fill(user, {row_of(0, "user=1")});
  const ConfigStore store(settings());
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), 3U);
  EXPECT_EQ(hits[0].layer, Layer::kUser);
  EXPECT_EQ(hits[0].row.config, "user=1");
  EXPECT_EQ(hits[0].path, user);
  EXPECT_EQ(hits[1].layer, Layer::kSite);
  EXPECT_EQ(hits[1].row.config, "site=1");
  EXPECT_EQ(hits[2].layer, Layer::kShipped);
  EXPECT_EQ(hits[2].row.config, "shipped=1");
  for (const auto& hit : hits) EXPECT_FALSE(hit.bucket);
}

TEST_F(Store, GivesNeighboursAfterExactRowsNearestFirst) {
  // Asked for is rows=110; 114 is nearer than 100 and 130, in whichever layer.
  fill(user, {sample_row(30), sample_row(0)});
  fill(folder.file("site.db"), {sample_row(14), sample_row(10)});
  const auto hits = ConfigStore(settings()).find(sample_key(10), kBucket);
  ASSERT_EQ(hits.size(), 4U);
  EXPECT_EQ(hits[0].row.key, sample_key(10));
  EXPECT_FALSE(hits[0].bucket);
  EXPECT_EQ(hits[1].row.key, sample_key(14));
  EXPECT_EQ(hits[2].row.key, sample_key(0));
  EXPECT_EQ(hits[3].row.key, sample_key(30));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_TRUE(hits[i].bucket);
}

TEST_F(Store, GivesTheNearestNeighboursOfManyAndNoneWithoutABucket) {
  std::vector<ConfigRow> rows;
  constexpr auto kMost = static_cast<std::int64_t>(ConfigStore::kMostNeighbours);
  for (std::int64_t i = 0; i < 3 * kMost; ++i) rows.push_back(sample_row(i));
  for (const ConfigRow& row : rows) fill(user, {row});
  const ConfigStore store(user_only());
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), static_cast<std::size_t>(kMost + 1));
  for (std::int64_t i = 0; i <= kMost; ++i) {
    EXPECT_EQ(hits[static_cast<std::size_t>(i)].row.key, sample_key(i)) << "nearest first";
  }
  const auto nearest = store.find_nearest(sample_key(0), {"rows"}, 2);
  ASSERT_EQ(nearest.size(), static_cast<std::size_t>(kMost));
  EXPECT_EQ(nearest.back().row.key, sample_key(kMost));
  EXPECT_EQ(store.find(sample_key(0), "").size(), 1U);
}

TEST_F(Store, MeasuresDistanceOverAllNumbersOfAProblem) {
  const auto row_with = [](const std::string& problem) {
    ConfigRow row = sample_row(0);
    row.key.problem = problem;
    return row;
  };
  fill(user, {row_with("B=4 T=100 dtype=f32"), row_with("B=1 T=150 dtype=f32"),
              row_with("B=2 T=100 dtype=f32"), row_with("cannot be read")});
  RowKey key = sample_key(0);
  key.problem = "B=1 T=100 dtype=f32";
  const auto hits = ConfigStore(user_only()).find(key, kBucket);
  ASSERT_EQ(hits.size(), 4U);
  EXPECT_EQ(hits[0].row.key.problem, "B=1 T=150 dtype=f32");
  EXPECT_EQ(hits[1].row.key.problem, "B=2 T=100 dtype=f32");
  EXPECT_EQ(hits[2].row.key.problem, "B=4 T=100 dtype=f32");
  EXPECT_EQ(hits[3].row.key.problem, "cannot be read");
}

TEST_F(Store, ServesWhatItStoredAndSoDoTheOthers) {
  ConfigStore store(user_only());
  EXPECT_TRUE(store.find(sample_key(0), kBucket).empty());
  const TrialRow trials[] = {sample_trial(0)};
  EXPECT_EQ(store.put(sample_row(0), trials), "");
  EXPECT_EQ(store.put(sample_row(1), {}), "");
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), 2U);
  EXPECT_EQ(text_of(hits[0].row), text_of(sample_row(0)));
  EXPECT_EQ(hits[1].row.key, sample_key(1));
  EXPECT_EQ(store.status().at(0).rows, 2);
  EXPECT_EQ(ConfigStore(user_only()).find(sample_key(0), kBucket).size(), 2U);
  EXPECT_EQ(ConfigDatabase(user, Mode::kReadOnly).trials(sample_key(0)).size(), 1U);
  EXPECT_TRUE(warnings.empty()) << warnings[0];
}

TEST_F(Store, MakesNoFileBeforeThereIsSomethingToStore) {
  ConfigStore store(user_only());
  store.find(sample_key(0), kBucket);
  store.erase(sample_key(0));
  store.release_lease(sample_key(0));
  store.reload_user();
  EXPECT_FALSE(fs::exists(user));
  EXPECT_EQ(store.status().at(0).reason, "not there");
  store.put(sample_row(0), {});
  EXPECT_TRUE(fs::exists(user));
  EXPECT_TRUE(store.status().at(0).used);
  EXPECT_TRUE(store.status().at(0).writable);
}

TEST_F(Store, ForgetsErasedRowsOfTheUserOnly) {
  fill(user, {sample_row(0)});
  fill(folder.file("site.db"), {sample_row(0)});
  ConfigStore store(settings());
  store.erase(sample_key(0));
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].layer, Layer::kSite);
  EXPECT_TRUE(ConfigDatabase(user, Mode::kReadOnly).read().rows.empty());
  EXPECT_EQ(store.status().at(0).rows, 0);
}

TEST_F(Store, SeesWhatOthersStoredAfterAReload) {
  ConfigStore store(user_only());
  store.put(sample_row(0), {});
  fill(user, {sample_row(1)});
  EXPECT_EQ(store.find(sample_key(1), "").size(), 0U);
  store.reload_user();
  EXPECT_EQ(store.find(sample_key(1), "").size(), 1U);
  EXPECT_EQ(store.find(sample_key(0), "").size(), 1U);
}

TEST_F(Store, AsksPinsOfTheUserFirst) {
  const std::int64_t now = std::time(nullptr);
  PinRow site = sample_pin(0);
  site.kernel = "site.kernel";
  ConfigDatabase(folder.file("site.db"), Mode::kReadWrite).pin(site);
  PinRow mine = sample_pin(0);
  mine.expires = now + 1000;
  ConfigDatabase(user, Mode::kReadWrite).pin(mine);
  EXPECT_EQ(ConfigStore(settings()).find_pin(sample_key(0))->kernel, mine.kernel);
  mine.expires = now - 1;
  ConfigDatabase(user, Mode::kReadWrite).pin(mine);
  EXPECT_EQ(ConfigStore(settings()).find_pin(sample_key(0))->kernel, "site.kernel");
  EXPECT_FALSE(ConfigStore(settings()).find_pin(sample_key(1)));
}

TEST_F(Store, KnowsQuarantineOfEveryLayerAndItsOwn) {
  ConfigDatabase(folder.file("site.db"), Mode::kReadWrite).quarantine(sample_quarantine(1));
  ConfigStore store(settings());
  const auto ask = [&](const std::string& config) {
    return store.quarantined(sample_key(0), "simd.row_softmax.blocked", 3, config);
  };
  EXPECT_EQ(ask("unroll=1"), "crashed, 1");
  EXPECT_FALSE(ask("unroll=2"));
  store.quarantine(sample_quarantine(2));
  EXPECT_EQ(ask("unroll=2"), "crashed, 2");
  EXPECT_EQ(ConfigDatabase(user, Mode::kReadOnly).read().quarantine.size(), 1U);
}

TEST_F(Store, SharesLeasesThroughTheFile) {
  ConfigStore store(user_only());
  EXPECT_TRUE(store.acquire_lease(sample_key(0), 60));
  EXPECT_TRUE(fs::exists(user));
  // As another machine would have it.
  raw_sql(user, "UPDATE lease SET boot = 'elsewhere'");
  EXPECT_FALSE(store.acquire_lease(sample_key(0), 60));
}

TEST_F(Store, MayBeUsedByManyThreads) {
  fill(folder.file("site.db"), {sample_row(0)});
  ConfigStore store(settings());
  std::vector<std::thread> threads;
  for (std::int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(store.put(sample_row(1 + 5 * thread + i), {}), "");
        EXPECT_GE(store.find(sample_key(0), kBucket).size(), static_cast<std::size_t>(i + 2));
        if (i == 2) store.reload_user();
        store.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 21U);
}

}  // namespace
}  // namespace attune
