// Problems that nobody tuned: exact, then bucket, then the nearest tuned neighbour, then the
// heuristic.
#include <gmock/gmock.h>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ChainNeighbourTest : public ChainTest {
 protected:
  ChainNeighbourTest() { settings.policy = policy_of(Policy::kDb); }

  /// A row of another size.
  void write_for(std::int64_t rows, const std::string& config,
                 const std::string& kernel = "test.scaling.tiled") {
    const ScalingProblem before = std::exchange(problem, {.rows = rows});
    write(row(config, kernel));
    problem = before;
  }
  std::string why() {
    const Decision decision = chain().explain(what(), request());
    return decision.notes.at(static_cast<std::size_t>(Tier::kHeuristic)).reason;
  }
};

TEST_F(ChainNeighbourTest, TheNearestServesAndIsNamed) {
  add_tiled();
  write_for(200, "tile=8");
  write_for(390, "tile=16");
  problem.rows = 600;
  const Choice choice = select();
  EXPECT_EQ(choice.tier, Tier::kHeuristic);
  EXPECT_FALSE(choice.bucket_hit);
  EXPECT_EQ(text(choice), "test.scaling.tiled tile=16,threads=1");
  restart();
  EXPECT_THAT(why(), AllOf(HasSubstr("as the nearest tuned neighbour, 0.62 octaves away"),
                           HasSubstr("rows=390")));
}

TEST_F(ChainNeighbourTest, OneThatIsTooFarDoesNot) {
  add_tiled();
  write_for(100, "tile=8");
  problem.rows = 399;
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  problem.rows = 401;
  EXPECT_EQ(text(select()), kDefault);
  EXPECT_THAT(why(), HasSubstr("no tuned neighbour within 2 octaves"));
}

TEST_F(ChainNeighbourTest, OneThatDiffersInAnotherFieldDoesNot) {
  add_tiled();
  write_for(200, "tile=8");
  problem = {.rows = 300, .flavour = 1};
  EXPECT_EQ(text(select()), kDefault);
}

TEST_F(ChainNeighbourTest, OneWhereKernelsExpectAnotherOrderDoesNot) {
  const auto limit = [](std::int64_t most) {
    return [most](const ScalingProblem& p) { return p.rows <= most ? 1.0 : 3.0; };
  };
  add({.name = "test.scaling.small", .expects = limit(300)});
  add({.name = "test.scaling.large", .expects = [](const ScalingProblem&) { return 2.0; }});
  write_for(280, "tile=8", "test.scaling.small");
  problem.rows = 299;
  EXPECT_EQ(text(select()), "test.scaling.small tile=8,threads=1");
  problem.rows = 301;
  EXPECT_EQ(text(select()), "test.scaling.large tile=1,threads=1");
  restart();
  EXPECT_THAT(why(), HasSubstr("the heuristic takes test.scaling.small tile=1,threads=1 there, and "
                               "test.scaling.large tile=1,threads=1 here"));
}

TEST_F(ChainNeighbourTest, NothingIsNearAnEmptyProblem) {
  add_tiled();
  write_for(1, "tile=8");
  problem.rows = 0;
  EXPECT_EQ(text(select()), kDefault);
  problem.rows = 2;
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
}

TEST_F(ChainNeighbourTest, OneWhoseConfigDoesNotFitIsPassedOverForTheNext) {
  add({.misfits = [](const ScalingProblem& p, const TiledConfig& c) {
    return p.rows % c.tile != 0 ? "ragged" : "";
  }});
  write_for(290, "tile=2");
  write_for(128, "tile=8");
  problem.rows = 301;
  EXPECT_EQ(text(select()), kDefault);
  problem.rows = 320;
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=2,threads=1");
  problem.rows = 301;
  restart();
  EXPECT_THAT(why(), HasSubstr("passed over: rows=290"));
}

/// Its heuristic takes two threads from 150 rows on.
class GrowingKernel final : public Kernel<TiledConfig> {
 public:
  std::string_view name() const noexcept override { return "test.scaling.growing"; }
  int version() const noexcept override { return 1; }
  Support supports(const ScalingProblem&, const DeviceInfo&) const override {
    return Support::yes();
  }
  TiledConfig heuristic_config(const ScalingProblem& problem, const DeviceInfo&) const override {
    return {.tile = 1, .threads = problem.rows >= 150 ? 2 : 1};
  }
  void run(const ScalingProblem&, const ScalingArgs&, const TiledConfig&,
           const LaunchSite&) const override {}
};

TEST_F(ChainNeighbourTest, AnAxisThatTheHeuristicChoosesOtherwiseIsLeftToIt) {
  registry.add(std::make_unique<GrowingKernel>(), {.platform = "test"});
  write(row("tile=8,threads=1", "test.scaling.growing"));
  problem.rows = 130;  // of the next bucket
  EXPECT_EQ(text(select()), "test.scaling.growing tile=8,threads=1");
  problem.rows = 200;
  EXPECT_EQ(text(select()), "test.scaling.growing tile=8,threads=2");
  restart();
  EXPECT_THAT(why(), AllOf(HasSubstr("as the nearest tuned neighbour"),
                           HasSubstr("; the heuristic's own here: threads")));
}

TEST_F(ChainNeighbourTest, AndWithinABucket) {
  registry.add(std::make_unique<GrowingKernel>(), {.platform = "test"});
  write_for(140, "tile=8,threads=1", "test.scaling.growing");
  problem.rows = 149;
  EXPECT_TRUE(select().bucket_hit);
  EXPECT_EQ(text(select()), "test.scaling.growing tile=8,threads=1");
  problem.rows = 151;
  EXPECT_TRUE(select().bucket_hit);
  EXPECT_EQ(text(select()), "test.scaling.growing tile=8,threads=2");
  restart();
  EXPECT_THAT(chain()
                  .explain(what(), request())
                  .notes.at(static_cast<std::size_t>(Tier::kPersistent))
                  .reason,
              HasSubstr("; the heuristic's own here: threads"));
}

TEST_F(ChainNeighbourTest, WhatThatMakesOfARowIsHeldAgainstTheQuarantine) {
  registry.add(std::make_unique<GrowingKernel>(), {.platform = "test"});
  write(row("tile=8,threads=1", "test.scaling.growing"));
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite)
      .quarantine({"scaling", device.info().device_class, "test.scaling.growing", 1,
                   "tile=8,threads=2", "", "it hung", 1});
  problem.rows = 130;
  EXPECT_EQ(text(select()), "test.scaling.growing tile=8,threads=1");
  problem.rows = 200;
  EXPECT_EQ(text(select()), "test.scaling.growing tile=1,threads=2");
}

TEST_F(ChainNeighbourTest, ARowOfAnotherKernelThanTheHeuristicsDoesNotWhereThatDiffers) {
  registry.add(std::make_unique<GrowingKernel>(), {.platform = "test", .priority = 9});
  add_tiled();
  write(row("tile=8,threads=1"));
  problem.rows = 130;
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  problem.rows = 200;
  EXPECT_EQ(text(select()), "test.scaling.growing tile=1,threads=2");
  restart();
  EXPECT_THAT(why(), HasSubstr("passed over: rows=100 flavour=0: the heuristic takes "
                               "test.scaling.growing tile=1,threads=1 there, and "
                               "test.scaling.growing tile=1,threads=2 here"));
}

TEST_F(ChainNeighbourTest, OneThatGainedLittleLeavesItToTheHeuristic) {
  add_tiled();
  ConfigRow little = row("tile=8");
  little.median_us = 19.5;
  write(little);
  problem.rows = 130;
  EXPECT_EQ(text(select()), kDefault);
  restart();
  EXPECT_THAT(why(), HasSubstr("the nearest tuned neighbour, 0.38 octaves away, gained less than"));
}

TEST_F(ChainNeighbourTest, TuningComesFirst) {
  add_tiled();
  write_for(200, "tile=8");
  settings.policy = policy_of(Policy::kTune);
  problem.rows = 300;
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(ChainNeighbourTest, ItStandsInForATuningThatCannotBeDoneNowAndDoesNotHideALaterOne) {
  add_tiled();
  write_for(200, "tile=8");
  settings.policy = policy_of(Policy::kTune);
  problem.rows = 300;
  world.capturing = true;
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=8,threads=1");
  world.capturing = false;
  EXPECT_EQ(select().tier, Tier::kAutotune);
  EXPECT_EQ(rows_on_disk().size(), 2U);
}

TEST_F(ChainNeighbourTest, ItIsNeverStored) {
  add_tiled();
  write_for(200, "tile=8");
  problem.rows = 300;
  select();
  EXPECT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(select().origin, Tier::kHeuristic);
}

TEST_F(ChainNeighbourTest, PolicyHeuristicReadsNoNeighboursAndStrictHasNone) {
  add_tiled();
  write_for(200, "tile=8");
  problem.rows = 300;
  EXPECT_EQ(text(select_under(Policy::kHeuristic)), kDefault);
  EXPECT_THROW(select_under(Policy::kStrict), NotTuned);
}

TEST_F(ChainNeighbourTest, WhatThisProcessTunesIsANeighbourToo) {
  add_tiled();
  settings.policy = policy_of(Policy::kTune);
  problem.rows = 200;
  select();
  problem.rows = 300;
  EXPECT_EQ(text(select_under(Policy::kDb)), kBest);
}

TEST_F(ChainNeighbourTest, ExplainSaysWhichRowsAreNotUsedAndWhy) {
  add_tiled();
  settings.store.shipped_paths = {folder.file("shipped.db")};
  ConfigRow noisy = row("tile=8");
  noisy.noise = NoiseGrade::kC;
  write(noisy);
  write(row("tile=4"), "shipped.db");
  const auto persistent = [&] {
    return chain()
        .explain(what(), request())
        .notes.at(static_cast<std::size_t>(Tier::kPersistent))
        .reason;
  };
  EXPECT_THAT(persistent(), HasSubstr("not used: a user row"));
  EXPECT_THAT(persistent(), HasSubstr("tile=8, measured in noise or for an older kernel"));

  problem.rows = 5000;
  ConfigRow elsewhere = row("tile=16");
  elsewhere.key.device_class = "fake:2";
  write(elsewhere);
  restart();
  EXPECT_THAT(persistent(), HasSubstr("for device class fake:2"));
  problem.rows = 6000;
  EXPECT_THAT(persistent(), Not(HasSubstr("fake:2")));
}

}  // namespace
}  // namespace attune::test
