// explain(): every tier with its reason, and no effect.
#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using Outcome = TierNote::Outcome;

class ChainExplainTest : public ChainTest {
 protected:
  Decision explain() { return explain(request()); }
  Decision explain(const Request& with) { return chain().explain(what(), with); }
  static const TierNote& note(const Decision& decision, Tier tier) {
    return decision.notes.at(static_cast<std::size_t>(tier));
  }
};

TEST_F(ChainExplainTest, HasANoteForEveryTierInOrder) {
  add_tiled();
  const Decision decision = explain();
  ASSERT_EQ(decision.notes.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(decision.notes[i].tier, static_cast<Tier>(i));
    EXPECT_FALSE(decision.notes[i].reason.empty());
  }
}

TEST_F(ChainExplainTest, SaysWhetherPriorityOrExpectationMadeTheDefault) {
  settings.policy = policy_of(Policy::kDb);
  add({.name = "test.scaling.slow", .expects = [](const ScalingProblem&) { return 20.0; }});
  EXPECT_THAT(note(explain(), Tier::kHeuristic).reason, HasSubstr("the best kernel by priority"));
  add({.name = "test.scaling.quick", .expects = [](const ScalingProblem&) { return 10.04; }});
  restart();
  EXPECT_EQ(note(explain(), Tier::kHeuristic).config, "test.scaling.quick tile=1,threads=1");
  EXPECT_THAT(note(explain(), Tier::kHeuristic).reason,
              HasSubstr("expected to be the fastest, 10 us"));
}

TEST_F(ChainExplainTest, OfAnUnknownProblemSaysWhatIsMissingAndWhatStandsIn) {
  add_tiled();
  settings.policy = policy_of(Policy::kDb);
  settings.policy.process_budget = AutotunePolicy::of(Policy::kDb).process_budget;
  const Decision decision = explain();
  EXPECT_EQ(note(decision, Tier::kOverride).reason, "none given");
  EXPECT_EQ(note(decision, Tier::kOverlay).reason, "no scope active");
  EXPECT_EQ(note(decision, Tier::kPin).reason, "no pin for this problem");
  EXPECT_EQ(note(decision, Tier::kMemory).outcome, Outcome::kMiss);
  EXPECT_EQ(note(decision, Tier::kPersistent).outcome, Outcome::kMiss);
  EXPECT_EQ(note(decision, Tier::kAutotune).outcome, Outcome::kNotAsked);
  EXPECT_EQ(note(decision, Tier::kAutotune).reason, "policy db does not tune");
  EXPECT_EQ(note(decision, Tier::kHeuristic).outcome, Outcome::kChosen);
  EXPECT_EQ(note(decision, Tier::kHeuristic).config, kDefault);
  ASSERT_TRUE(decision.choice.has_value());
  EXPECT_EQ(decision.choice->tier, Tier::kHeuristic);
}

TEST_F(ChainExplainTest, SaysThatSelectWouldTune) {
  add_tiled();
  EXPECT_THAT(note(explain(), Tier::kAutotune).reason,
              HasSubstr("select would tune now, for at most 2000 ms"));
}

TEST_F(ChainExplainTest, SaysThatThereIsNothingToTune) {
  add({.candidates = {{.tile = 1}}});
  EXPECT_EQ(note(explain(), Tier::kAutotune).reason, "there is one candidate only");
}

TEST_F(ChainExplainTest, HasNoEffect) {
  add_tiled();
  listen();
  explain();
  explain();
  EXPECT_EQ(chain().cache().size(), 0U);
  EXPECT_EQ(chain().counters().heuristics, 0U);
  EXPECT_EQ(world.launches, 0);
  EXPECT_TRUE(seen_of(EventKind::kSelected).empty());
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

TEST_F(ChainExplainTest, OfARowNamesItsEvidenceAndWhatWouldFollow) {
  add_tiled();
  write(row("tile=8"));
  const Decision decision = explain();
  const TierNote& persistent = note(decision, Tier::kPersistent);
  EXPECT_EQ(persistent.outcome, Outcome::kChosen);
  EXPECT_EQ(persistent.config, "test.scaling.tiled tile=8,threads=1");
  EXPECT_THAT(persistent.reason, HasSubstr("a user row of"));
  EXPECT_THAT(persistent.reason, HasSubstr("2 times as fast as the default"));
  EXPECT_EQ(note(decision, Tier::kHeuristic).outcome, Outcome::kNotAsked);
  EXPECT_THAT(note(decision, Tier::kHeuristic).reason,
              HasSubstr("would give test.scaling.tiled tile=1,threads=1"));
}

TEST_F(ChainExplainTest, ListsRowsThatWerePassedOver) {
  add_tiled();
  write(row("tile=8", "plugin.scaling"));
  const TierNote refused = note(explain(), Tier::kPersistent);
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_THAT(refused.reason, HasSubstr("1 row was refused: no kernel 'plugin.scaling' is loaded"));
  problem.rows = 101;
  write(row("tile=2"));
  problem.rows = 100;
  restart();
  const TierNote neighbour = note(explain(), Tier::kPersistent);
  EXPECT_EQ(neighbour.outcome, Outcome::kChosen);
  EXPECT_THAT(neighbour.reason, HasSubstr("tuned for a neighbour: rows=101 flavour=0"));
  EXPECT_THAT(neighbour.reason, HasSubstr("passed over: no kernel 'plugin.scaling' is loaded"));
}

TEST_F(ChainExplainTest, SaysOfEachRowWhyItIsNotUsed) {
  settings.store.shipped_paths = {folder.file("shipped.db")};
  add({.version = 2, .misfits = [](const ScalingProblem&, const TiledConfig& c) {
         return c.tile == 16 ? "tile=16 is ragged" : "";
       }});
  const auto reason = [&] {
    restart();
    return note(explain(), Tier::kPersistent).reason;
  };
  ConfigRow mine = row("tile=16,threads=1");
  mine.kernel_version = 2;
  write(mine);
  EXPECT_THAT(reason(), HasSubstr("tile=16 is ragged"));
  mine.config = "tile=77,threads=1";
  write(mine);
  EXPECT_THAT(reason(), HasSubstr("tile"));
  mine.config = "tile=8,threads=1";
  QuarantineRow bad{
      mine.key.op, mine.key.device_class, mine.kernel, 2, mine.config, "", "it hung", 1};
  write(mine);
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).quarantine(bad);
  write(mine);
  EXPECT_THAT(reason(), HasSubstr("is quarantined: it hung"));
  mine.config = "tile=4,threads=1";
  mine.noise = NoiseGrade::kC;
  write(mine);
  ConfigRow shipped = mine;
  shipped.config = "tile=2,threads=1";
  shipped.noise = NoiseGrade::kA;
  write(shipped, "shipped.db");
  EXPECT_THAT(reason(), HasSubstr("tile=4,threads=1, measured in noise or for an older kernel"));
  mine.noise = NoiseGrade::kA;
  write(mine);
  EXPECT_THAT(reason(), HasSubstr("tile=2,threads=1, comes later"));
  mine.kernel_version = 1;
  write(mine);
  std::filesystem::remove(folder.file("shipped.db"));
  EXPECT_THAT(reason(), HasSubstr("stale: tuned for version 1 of the kernel, which is at 2"));
  std::filesystem::remove(settings.store.user_path);
  mine.key.device_class = "fake:2";
  write(mine);
  EXPECT_THAT(reason(), HasSubstr("for device class fake:2 and platform auto"));
}

TEST_F(ChainExplainTest, OfMemorySaysWhereItCameFrom) {
  add_tiled();
  select();
  const Decision decision = explain();
  EXPECT_EQ(note(decision, Tier::kMemory).outcome, Outcome::kChosen);
  EXPECT_EQ(note(decision, Tier::kMemory).reason, "remembered from the autotune tier");
  EXPECT_EQ(decision.choice->tier, Tier::kMemory);
  EXPECT_EQ(note(decision, Tier::kPersistent).outcome, Outcome::kNotAsked);
}

TEST_F(ChainExplainTest, OfAnOverlayAndAPin) {
  add_tiled();
  pin("test.scaling.tiled", "tile=4");
  EXPECT_EQ(note(explain(), Tier::kPin).reason, "pinned: an incident");
  const OverlayScope scope("scaling", NamedConfig::parse("tile=2"));
  const Decision decision = explain();
  EXPECT_EQ(note(decision, Tier::kOverlay).outcome, Outcome::kChosen);
  EXPECT_EQ(note(decision, Tier::kPin).outcome, Outcome::kNotAsked);
  EXPECT_EQ(decision.choice->tier, Tier::kOverlay);
}

TEST_F(ChainExplainTest, OfAnOverrideThatDoesNotFitHasAnErrorAndNoChoice) {
  add_tiled();
  const NamedConfig named = NamedConfig::parse("tile=3");
  Request with = request();
  with.config = &named;
  const Decision decision = explain(with);
  EXPECT_FALSE(decision.choice.has_value());
  EXPECT_EQ(note(decision, Tier::kOverride).outcome, Outcome::kRefused);
  EXPECT_THAT(decision.error, HasSubstr("tile=3"));
  EXPECT_THAT(note(decision, Tier::kHeuristic).reason, HasSubstr("would give"));
}

TEST_F(ChainExplainTest, UnderStrictHasAnErrorAndSaysWhatTheHeuristicWouldGive) {
  add_tiled();
  settings.policy = AutotunePolicy::of(Policy::kStrict);
  const Decision decision = explain();
  EXPECT_FALSE(decision.choice.has_value());
  EXPECT_FALSE(decision.error.empty());
  EXPECT_EQ(note(decision, Tier::kAutotune).reason, "policy strict does not tune");
  EXPECT_EQ(note(decision, Tier::kHeuristic).outcome, Outcome::kRefused);
  EXPECT_EQ(note(decision, Tier::kHeuristic).config, kDefault);
}

TEST_F(ChainExplainTest, UnderHeuristicSaysThatDatabasesAreNotRead) {
  add_tiled();
  settings.policy = AutotunePolicy::of(Policy::kHeuristic);
  const Decision decision = explain();
  EXPECT_EQ(note(decision, Tier::kPin).outcome, Outcome::kNotAsked);
  EXPECT_EQ(note(decision, Tier::kPersistent).outcome, Outcome::kNotAsked);
  EXPECT_EQ(note(decision, Tier::kPersistent).reason, "the policy does not read databases");
}

TEST_F(ChainExplainTest, OfAnUnsupportedProblemListsTheReasons) {
  add({.refuses = [](const ScalingProblem&) { return "only on Sundays"; }});
  const Decision decision = explain();
  EXPECT_FALSE(decision.choice.has_value());
  EXPECT_THAT(decision.error, HasSubstr("test.scaling.tiled: only on Sundays"));
}

TEST_F(ChainExplainTest, AgreesWithSelect) {
  add_tiled();
  for (const Policy policy : {Policy::kDb, Policy::kHeuristic}) {
    const PolicyScope scope(policy);
    const Decision decision = explain();
    const Choice choice = select();
    EXPECT_EQ(text(*decision.choice), text(choice));
    EXPECT_EQ(decision.choice->tier, choice.tier);
  }
}

}  // namespace
}  // namespace attune::test
