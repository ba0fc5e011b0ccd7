// Rows of databases: which of them count, in which order, and which are refused.
#include <gmock/gmock.h>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

class ChainPersistentTest : public ChainTest {
 protected:
  ChainPersistentTest() {
    settings.policy = policy_of(Policy::kDb);
    settings.store.shipped_paths = {folder.file("shipped.db")};
    settings.store.site_paths = {folder.file("site.db")};
  }
  std::string selected() { return text(select()); }
};

TEST_F(ChainPersistentTest, WhatOneProcessTunesAnotherFinds) {
  add_tiled();
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  restart();
  const Choice found = select();
  EXPECT_EQ(found.tier, Tier::kPersistent);
  EXPECT_FALSE(found.bucket_hit);
  EXPECT_EQ(text(found), kBest);
  EXPECT_EQ(chain().counters().persistent_hits, 1U);
  EXPECT_EQ(select().tier, Tier::kMemory);
}

TEST_F(ChainPersistentTest, ARowCarriesItsEvidence) {
  add_tiled();
  settings.policy = policy_of(Policy::kTune);
  select();
  ASSERT_EQ(rows_on_disk().size(), 1U);
  const ConfigRow written = rows_on_disk()[0];
  EXPECT_EQ(written.key, row_key());
  EXPECT_EQ(written.bucket, "rows=128 flavour=0");
  EXPECT_EQ(written.config, "tile=32,threads=1");
  EXPECT_NEAR(written.median_us, 32.25, 0.01);
  EXPECT_NEAR(written.default_us, 1001, 0.01);
  EXPECT_EQ(written.default_config, kDefault);
  EXPECT_EQ(written.candidates_tried, 12);
  EXPECT_EQ(written.candidates_refused, 0);
  EXPECT_EQ(written.noise, NoiseGrade::kA);
  EXPECT_EQ(written.library_version, ATTUNE_VERSION);
  EXPECT_EQ(written.device_name, "a fake device");
  EXPECT_GT(written.samples, 0);
  EXPECT_GT(written.created, 0);
  const ConfigDatabase database(settings.store.user_path, ConfigDatabase::Mode::kReadOnly);
  EXPECT_EQ(database.trials(row_key()).size(), 12U);
}

TEST_F(ChainPersistentTest, UserOutranksSiteOutranksShipped) {
  add_tiled();
  write(row("tile=2"), "shipped.db");
  EXPECT_EQ(selected(), "test.scaling.tiled tile=2,threads=1");
  write(row("tile=4"), "site.db");
  restart();
  EXPECT_EQ(selected(), "test.scaling.tiled tile=4,threads=1");
  write(row("tile=8"), "user.db");
  restart();
  EXPECT_EQ(selected(), "test.scaling.tiled tile=8,threads=1");
}

TEST_F(ChainPersistentTest, AShippedRowOutranksANoisyUserRow) {
  add_tiled();
  write(row("tile=2"), "shipped.db");
  ConfigRow noisy = row("tile=8");
  noisy.noise = NoiseGrade::kC;
  write(noisy);
  EXPECT_EQ(selected(), "test.scaling.tiled tile=2,threads=1");
}

TEST_F(ChainPersistentTest, ANoisyUserRowCountsWhereThereIsNoOther) {
  add_tiled();
  ConfigRow noisy = row("tile=8");
  noisy.noise = NoiseGrade::kC;
  write(noisy);
  EXPECT_EQ(selected(), "test.scaling.tiled tile=8,threads=1");
}

TEST_F(ChainPersistentTest, AShippedRowOutranksAUserRowOfAnOlderKernel) {
  add({.version = 3});
  ConfigRow current = row("tile=2");
  current.kernel_version = 3;
  write(current, "shipped.db");
  ConfigRow old = row("tile=8");
  old.kernel_version = 2;
  write(old);
  EXPECT_EQ(selected(), "test.scaling.tiled tile=2,threads=1");
}

TEST_F(ChainPersistentTest, AStaleRowIsUsedCountedAndSaidToBe) {
  add({.version = 2});
  write(row("tile=8"));
  listen();
  EXPECT_EQ(selected(), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(chain().counters().stale_hits, 1U);
  EXPECT_THAT(seen_of(EventKind::kSelected)[0].reason,
              HasSubstr("stale: tuned for version 1 of the kernel, which is at 2"));
}

TEST_F(ChainPersistentTest, ARowOfAnotherLibraryOrDriverIsStale) {
  add_tiled();
  ConfigRow other = row("tile=8");
  other.library_version = "0.0.1";
  write(other);
  selected();
  EXPECT_EQ(chain().counters().stale_hits, 1U);
  other.library_version = ATTUNE_VERSION;
  other.toolkit = "driver 1";
  write(other);
  restart();
  selected();
  EXPECT_EQ(chain().counters().stale_hits, 1U);
}

TEST_F(ChainPersistentTest, AStaleRowIsTunedAgainWhereThePolicyTunes) {
  add({.version = 2});
  write(row("tile=8"));
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  ASSERT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(rows_on_disk()[0].kernel_version, 2);
  EXPECT_EQ(rows_on_disk()[0].config, "tile=32,threads=1");
  restart();
  EXPECT_EQ(select().tier, Tier::kPersistent);
  EXPECT_EQ(chain().counters().tunings, 0U);
}

TEST_F(ChainPersistentTest, AStaleRowHoldsUntilSomethingClearlyFasterIsFound) {
  add({.version = 2, .cost_us = [](const TiledConfig& c) { return c.tile == 1 ? 200 : 100; }});
  write(row("tile=8,threads=1"));
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(rows_on_disk().at(0).kernel_version, 2);
}

TEST_F(ChainPersistentTest, AStaleRowThatCannotBeTunedNowIsUsed) {
  add({.version = 2});
  write(row("tile=8"));
  settings.policy = policy_of(Policy::kTune);
  world.capturing = true;
  const Choice choice = select();
  EXPECT_EQ(choice.tier, Tier::kPersistent);
  EXPECT_EQ(text(choice), "test.scaling.tiled tile=8,threads=1");
}

TEST_F(ChainPersistentTest, AStaleShippedRowIsUsedAsItIs) {
  add_tiled();
  ConfigRow other = row("tile=8");
  other.library_version = "0.0.1";
  write(other, "shipped.db");
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(chain().counters().tunings, 0U);
}

TEST_F(ChainPersistentTest, ARowOfTheBucketServesItsNeighboursAndIsMarked) {
  add_tiled();
  write(row("tile=8"));
  problem.rows = 120;
  const Choice choice = select();
  EXPECT_EQ(choice.tier, Tier::kPersistent);
  EXPECT_TRUE(choice.bucket_hit);
  EXPECT_EQ(chain().counters().bucket_hits, 1U);
  const Choice again = select();
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_TRUE(again.bucket_hit);
  problem.rows = 129;
  EXPECT_EQ(select().tier, Tier::kHeuristic) << "the next bucket";
  problem = {.rows = 120, .flavour = 1};
  EXPECT_EQ(select().tier, Tier::kHeuristic) << "another flavour";
}

TEST_F(ChainPersistentTest, ARowOfTheBucketIsAskedWhetherItFits) {
  add({.misfits = [](const ScalingProblem& p, const TiledConfig& c) {
    return p.rows % c.tile != 0 ? "ragged" : "";
  }});
  problem.rows = 120;
  write(row("tile=8"));
  problem.rows = 121;
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(chain().counters().refused_rows, 1U);
}

TEST_F(ChainPersistentTest, AnExactRowOutranksANeighbours) {
  add_tiled();
  ConfigRow noisy = row("tile=8");
  noisy.noise = NoiseGrade::kC;
  write(noisy);
  problem.rows = 101;
  write(row("tile=2"), "shipped.db");
  problem.rows = 100;
  EXPECT_EQ(selected(), "test.scaling.tiled tile=8,threads=1");
}

TEST_F(ChainPersistentTest, ARowOfAKernelThatIsNotLoadedIsRefusedButKept) {
  add_tiled();
  write(row("tile=8", "plugin.scaling"));
  write(row("tile=2"), "shipped.db");
  listen();
  EXPECT_EQ(selected(), "test.scaling.tiled tile=2,threads=1");
  EXPECT_EQ(chain().counters().refused_rows, 1U);
  EXPECT_EQ(rows_on_disk().size(), 1U);
  bool told = false;
  for (const SeenEvent& event : seen_of(EventKind::kDatabase)) {
    told = told || event.reason.find("no kernel 'plugin.scaling' is loaded") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST_F(ChainPersistentTest, ARowWhoseConfigIsNoneIsRefused) {
  add_tiled();
  write(row("tile=7"));
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  write(row("no pairs at all"));
  restart();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(chain().counters().refused_rows, 1U);
}

TEST_F(ChainPersistentTest, ARowThatIsQuarantinedIsRefused) {
  add_tiled();
  write(row("tile=8"));
  QuarantineRow bad;
  bad.op = "scaling";
  bad.device_class = device.info().device_class;
  bad.kernel = "test.scaling.tiled";
  bad.kernel_version = 1;
  bad.config = "tile=8,threads=1";
  bad.reason = "it hung";
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).quarantine(bad);
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite)
      .put(row("tile=8,threads=1"));
  EXPECT_EQ(select().tier, Tier::kHeuristic);
}

/// Rows that no call can use: of names that the kernel has not or no longer has, of a kernel that
/// is not there, and of what this device cannot run.
class ARowOfNoUseHere : public ChainPersistentTest,
                        public testing::WithParamInterface<std::pair<const char*, const char*>> {
 protected:
  ARowOfNoUseHere() {
    add({.misfits = [](const ScalingProblem&, const TiledConfig& config) {
      return config.tile == 16 ? "needs avx1024, which this CPU has not" : "";
    }});
    write(row(GetParam().second, GetParam().first));
  }
};

TEST_P(ARowOfNoUseHere, IsAMissThatIsTunedAndReplaced) {
  settings.policy = policy_of(Policy::kTune);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(chain().counters().tunings, 1U);
  ASSERT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(rows_on_disk()[0].kernel, "test.scaling.tiled");
  EXPECT_EQ(rows_on_disk()[0].config, "tile=32,threads=1");
  restart();
  EXPECT_EQ(select().tier, Tier::kPersistent);
}

TEST_P(ARowOfNoUseHere, DoesNotMakeTuningUnnecessary) {
  EXPECT_EQ(chain().tuned_row(what(), request()), std::nullopt);
  chain().tune(what(), request(), settings.tuner);
  const std::optional<ConfigRow> tuned = chain().tuned_row(what(), request());
  ASSERT_TRUE(tuned);
  EXPECT_EQ(tuned->config, "tile=32,threads=1");
}

INSTANTIATE_TEST_SUITE_P(Kinds, ARowOfNoUseHere,
                         testing::Values(std::pair("test.scaling.tiled", "tiles=8"),
                                         std::pair("test.scaling.tiled", "tile=7"),
                                         std::pair("test.scaling.tiled", "nonsense"),
                                         std::pair("test.scaling.tiled", "tile=16"),
                                         std::pair("test.scaling.gone", "tile=8")));

TEST_F(ChainPersistentTest, OnlyAFreshRowOfTheVeryProblemMakesTuningUnnecessary) {
  add({.version = 2});
  ConfigRow stale = row("tile=8");
  write(stale);
  EXPECT_EQ(chain().tuned_row(what(), request()), std::nullopt) << "of another kernel version";
  ConfigRow near = row("tile=8");
  near.kernel_version = 2;
  near.key.problem = "rows=101 flavour=0";
  write(near);
  restart();
  EXPECT_EQ(chain().tuned_row(what(), request()), std::nullopt) << "of a neighbour";
  near.key.problem = row_key().problem;
  write(near, "site.db");
  restart();
  EXPECT_EQ(chain().tuned_row(what(), request()), near) << "of any layer";
}

TEST_F(ChainPersistentTest, ADatabaseThatIsNoneIsNotFatal) {
  add_tiled();
  std::filesystem::create_directories(settings.store.user_path);
  listen();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  ASSERT_FALSE(seen_of(EventKind::kDatabase).empty());
  EXPECT_THAT(seen_of(EventKind::kDatabase)[0].reason, HasSubstr("user.db"));
}

TEST_F(ChainPersistentTest, WhatCannotBeWrittenIsKeptInMemory) {
  add_tiled();
  settings.policy = policy_of(Policy::kTune);
  settings.store.user_path = (folder.path() / "no" / "such\0folder").string();
  std::filesystem::create_directories(settings.store.user_path);
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(select().tier, Tier::kMemory);
}

}  // namespace
}  // namespace attune::test
