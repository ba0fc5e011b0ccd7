// The autotune tier: when it tunes, when it does not, and that it does so once.
#include <gmock/gmock.h>

#include <attune/core/error.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ChainAutotuneTest : public ChainTest {
 protected:
  /// Every candidate leaves most of its output unwritten.
  static Script wrong_script() {
    return {.heuristic = {.tile = 4},
            .compute = [](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) {
              a.y[0] = 1e6F;
            }};
  }
  void add_wrong() {
    add(wrong_script());
    add(reference_script(), -10, kReferencePlatform);
  }
  std::string skipped() const {
    std::string reasons;
    for (const SeenEvent& event : seen_of(EventKind::kTuneSkipped)) reasons += event.reason + ";";
    return reasons;
  }
};

TEST_F(ChainAutotuneTest, ClearingMemoryIsHarmless) {
  add_tiled();
  select();
  chain().cache().clear();
  EXPECT_EQ(select().tier, Tier::kPersistent);
  settings.policy.persist_autotune = false;
  problem.flavour = 1;
  restart();
  select();
  chain().cache().clear();
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(ChainAutotuneTest, WhenEveryCandidateFailsTheHeuristicServesAndNobodyTriesAgain) {
  add_wrong();
  const Choice choice = select();
  EXPECT_EQ(choice.tier, Tier::kHeuristic);
  EXPECT_EQ(text(choice), "test.scaling.tiled tile=4,threads=1");
  EXPECT_THAT(logged, AllOf(HasSubstr("tuning scaling rows=100 flavour=0 failed"),
                            HasSubstr("test.scaling.tiled tile=4,threads=1: wrong: y: not finite"),
                            HasSubstr("\n  and 8 more candidates\n")));
  const Choice again = select();
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_EQ(again.origin, Tier::kHeuristic);
  EXPECT_EQ(chain().counters().tunings, 1U);
  EXPECT_TRUE(rows_on_disk().empty());
}

TEST_F(ChainAutotuneTest, AfterForgettingAProblemThatFailedIsTriedAgain) {
  add_wrong();
  select();
  chain().forget(what(), request());
  select();
  EXPECT_EQ(chain().counters().tunings, 2U);
}

TEST_F(ChainAutotuneTest, WithoutHeuristicsAFailureIsAnErrorAndNotTriedAgain) {
  add_wrong();
  settings.policy.allow_heuristics = false;
  EXPECT_THROW(select(), NotTuned);
  EXPECT_THROW(select(), NotTuned);
  EXPECT_EQ(chain().counters().tunings, 1U);
}

TEST_F(ChainAutotuneTest, WrongCandidatesAreQuarantined) {
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = (c.tile == 32 ? 3.0F : 2.0F) * a.x[i];
  }});
  add(reference_script(), -10, kReferencePlatform);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=16,threads=1");
  const auto written =
      ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly).read().quarantine;
  ASSERT_EQ(written.size(), 2U);
  EXPECT_EQ(written[0].kernel, "test.scaling.tiled");
  EXPECT_EQ(written[0].problem, "rows=100 flavour=0");
  EXPECT_THAT(written[0].reason, HasSubstr("relative error"));
  EXPECT_EQ(rows_on_disk()[0].candidates_refused, 2);
  listen();
  chain().retune(what(), request());
  int refused = 0;
  for (const SeenEvent& event : seen_of(EventKind::kTrial)) {
    refused += event.reason.find("quarantined: ") == 0 ? 1 : 0;
  }
  EXPECT_EQ(refused, 2);
}

TEST_F(ChainAutotuneTest, AQuarantinedHeuristicGivesWayToTheNextKernel) {
  add({.name = "test.scaling.broken",
       .compute = [](const auto&, const ScalingArgs& a, const auto&) { a.y[0] = 1e6F; }},
      9);
  add_tiled();
  add(reference_script(), -10, kReferencePlatform);
  EXPECT_EQ(text(select()), kBest);
  ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadWrite).erase(row_key());
  restart();
  EXPECT_EQ(text(select_under(Policy::kDb)), kDefault);
}

TEST_F(ChainAutotuneTest, ACapturingStreamIsNeverTunedOn) {
  add_tiled();
  world.capturing = true;
  listen();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_THAT(skipped(), HasSubstr("stream is capturing"));
  EXPECT_EQ(world.launches, 0);
  EXPECT_THROW(chain().retune(what(), request()), ExecutionError);
  world.capturing = false;
  EXPECT_EQ(select().tier, Tier::kAutotune);
}

TEST_F(ChainAutotuneTest, ACaptureThatBeginsStopsATuning) {
  Script script;
  bool captures = true;
  script.compute = [&](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig&) {
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = 2 * a.x[i];
    if (world.launches > 20 && captures) world.capturing = true;
  };
  add(script);
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_LT(world.launches, 40);
  EXPECT_TRUE(rows_on_disk().empty());
  captures = false;
  world.capturing = false;
  EXPECT_EQ(select().tier, Tier::kAutotune) << "a search that was stopped is not remembered";
}

TEST_F(ChainAutotuneTest, OverBudgetTheHeuristicServesFromMemory) {
  add_tiled();
  select();  // takes some of the process's budget
  problem.flavour = 1;
  AutotunePolicy spent = settings.policy;
  spent.process_budget = std::chrono::milliseconds(1);
  const PolicyScope scope(spent);
  listen();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_THAT(skipped(), HasSubstr("over budget"));
  seen.clear();
  const Choice again = select();
  EXPECT_EQ(again.tier, Tier::kMemory);
  EXPECT_EQ(again.origin, Tier::kHeuristic);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].problem, "") << "the short way: no text was made";
}

TEST_F(ChainAutotuneTest, AnUnsupportedProblemLeavesNothingBehind) {
  add({.refuses = [](const ScalingProblem&) { return "only on Sundays"; }});
  EXPECT_THROW(select(), Unsupported);
  EXPECT_THROW(select(), Unsupported);
  EXPECT_EQ(logged, "");
  EXPECT_EQ(chain().counters().tunings, 0U);
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

TEST_F(ChainAutotuneTest, AnOnlyCandidateIsNotMeasured) {
  add({.candidates = {{.tile = 1}}});
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(select().tier, Tier::kMemory);
  EXPECT_EQ(world.launches, 0);
  EXPECT_EQ(chain().tune(what(), request(), settings.tuner).result.trials.size(), 1U)
      << "unless it is asked for";
}

TEST_F(ChainAutotuneTest, APolicyWithoutProblemBudgetDoesNotTune) {
  add_tiled();
  settings.policy.problem_budget = std::chrono::milliseconds(0);
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(select().tier, Tier::kMemory);
}

TEST_F(ChainAutotuneTest, KeepsToTheProblemsBudget) {
  add_tiled();
  world.noise = 0.05;
  settings.policy.problem_budget = std::chrono::milliseconds(50);
  select();
  EXPECT_LT(world.now_us, 60000);
}

TEST_F(ChainAutotuneTest, IsAnnouncedOncePerProcess) {
  add_tiled();
  select();
  problem.flavour = 1;
  select();
  const std::string phrase = "ATTUNE_POLICY=db turns tuning off";
  const std::size_t first = logged.find(phrase);
  // Another test of this process may have been the first.
  if (first == std::string::npos) GTEST_SKIP();
  EXPECT_EQ(logged.find(phrase, first + 1), std::string::npos);
}

TEST_F(ChainAutotuneTest, ATuningThatThrowsIsGivenUp) {
  add({.compute = [](const auto&, const auto&, const auto&) {
    throw ExecutionError("no such luck");
  }});
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_THAT(logged, HasSubstr("no such luck"));
  EXPECT_EQ(select().tier, Tier::kMemory);
}

}  // namespace
}  // namespace attune::test
