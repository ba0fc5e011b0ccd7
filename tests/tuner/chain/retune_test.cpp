// Tuning because somebody asked for it: retune() and tune().
#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using ChainRetuneTest = ChainTest;

TEST_F(ChainRetuneTest, RetuneReplacesOnlyByWhatIsFaster) {
  Script script{.cost_us = [](const TiledConfig& c) {
    return c.tile == 32 ? 99.5 : c.tile == 16 ? 100.0 : 300.0;
  }};
  add(script);
  write(row("tile=16,threads=1"));
  EXPECT_EQ(text(chain().retune(what(), request())), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(rows_on_disk()[0].config, "tile=16,threads=1");
  EXPECT_NEAR(rows_on_disk()[0].median_us, 100, 0.5) << "the evidence is renewed";
}

TEST_F(ChainRetuneTest, RetuneReplacesWhatIsSlower) {
  add_tiled();
  write(row("tile=16,threads=1"));
  EXPECT_EQ(select().tier, Tier::kPersistent);
  const Choice choice = chain().retune(what(), request());
  EXPECT_EQ(choice.tier, Tier::kAutotune);
  EXPECT_EQ(text(select()), kBest);
  EXPECT_EQ(rows_on_disk()[0].config, "tile=32,threads=1");
}

TEST_F(ChainRetuneTest, RetuneUnderAPolicyThatNeverWritesStaysInMemory) {
  add_tiled();
  settings.policy = policy_of(Policy::kDb);
  chain().retune(what(), request());
  EXPECT_EQ(text(select()), kBest);
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

TEST_F(ChainRetuneTest, RetuneThrowsWhenNothingIsOfUse) {
  add({.compute = [](const auto&, const auto&, const auto&) {}});
  add(reference_script(), -10, kReferencePlatform);
  EXPECT_THROW(chain().retune(what(), request()), ExecutionError);
}

TEST_F(ChainRetuneTest, TuneWritesUnderAnyPolicyAndReports) {
  add_tiled();
  settings.policy = policy_of(Policy::kHeuristic);
  Tuner::Settings with = settings.tuner;
  with.budget = std::chrono::seconds(5);
  const auto report = chain().tune(what(), request(), with);
  EXPECT_EQ(text(report.choice), kBest);
  EXPECT_EQ(report.row.config, "tile=32,threads=1");
  EXPECT_EQ(report.key, row_key());
  EXPECT_TRUE(report.result.complete);
  EXPECT_EQ(rows_on_disk().size(), 1U);
}

TEST_F(ChainRetuneTest, TuneThatIsStoppedReportsButWritesNothing) {
  add_tiled();
  Tuner::Settings with = settings.tuner;
  with.stop = [this] { return world.launches > 20; };
  const auto report = chain().tune(what(), request(), with);
  EXPECT_FALSE(report.result.complete);
  EXPECT_GE(report.result.winner, 0);
  EXPECT_TRUE(rows_on_disk().empty());
  EXPECT_EQ(chain().cache().size(), 0U);
}

TEST_F(ChainRetuneTest, TuneThrowsWhenItsResultCannotBeWritten) {
  add_tiled();
  settings.store.read_only = true;
  EXPECT_THROW(chain().tune(what(), request(), settings.tuner), CacheError);
}

}  // namespace
}  // namespace attune::test
