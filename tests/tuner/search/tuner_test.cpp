// The tuner on a quiet device: what it tries, in which order, and which candidate it takes.
#include <set>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/tuner/tuner.hpp>

#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

TEST(Tuner, TakesWarmupAndIters) {
  const Tuner tuner(3, 50);
  EXPECT_EQ(tuner.settings().warmup, 3);
  EXPECT_EQ(tuner.settings().iters, 50);
  EXPECT_THROW(Tuner(-1, 50), InvalidArgument);
  EXPECT_THROW(Tuner(3, 0), InvalidArgument);
}

TEST_F(TunerTest, FindsTheFastestCandidate) {
  add({});
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=32,threads=1");
  EXPECT_TRUE(result.complete);
  EXPECT_FALSE(result.incumbent_kept);
  EXPECT_EQ(result.trials.size(), 12U);
}

TEST_F(TunerTest, ComparesAcrossKernels) {
  add({.name = "test.scaling.first"}, 10);
  add({.name = "test.scaling.second",
       .cost_us = [](const TiledConfig& c) { return c.tile == 4 ? 7.0 : 900.0; }});
  EXPECT_EQ(winner_of(tune()), "test.scaling.second tile=4,threads=1");
}

TEST_F(TunerTest, MeasuresTheDefaultFirstAndMarksIt) {
  add({.heuristic = {.tile = 4}});
  std::vector<std::string> order;
  Tuner::Request with = request();
  const TuneResult result = tune(with);
  EXPECT_EQ(result.default_trial, 0);
  const Trial& standard = result.trials[0];
  EXPECT_EQ(text_of(*standard.candidate.kernel, standard.candidate.config),
            "test.scaling.tiled tile=4,threads=1");
  EXPECT_NEAR(standard.median_us, 251, 1);
  EXPECT_DOUBLE_EQ(standard.relative, 1);
}

TEST_F(TunerTest, TriesEqualCandidatesOnce) {
  add({.heuristic = {.tile = 2},
       .candidates = {{.tile = 2}, {.tile = 4}, {.tile = 4}, {.tile = 2}}});
  EXPECT_EQ(tune().trials.size(), 2U);
}

TEST_F(TunerTest, TellsEachTrialOnce) {
  add({});
  std::multiset<std::string> told;
  Tuner::Request with = request();
  with.on_trial = [&](const Trial& trial) {
    told.insert(text_of(*trial.candidate.kernel, trial.candidate.config));
  };
  const TuneResult result = tune(with);
  EXPECT_EQ(told.size(), result.trials.size());
  EXPECT_EQ(std::set(told.begin(), told.end()).size(), result.trials.size());
}

TEST_F(TunerTest, ReportsLosersAsSlowWithTheirTimes) {
  add({});
  const TuneResult result = tune();
  const Trial& slow = trial_of(result, "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(slow.outcome, TrialOutcome::kSlow);
  EXPECT_NEAR(slow.median_us, 63.5, 1);
  EXPECT_EQ(trial_of(result, winner_of(result)).outcome, TrialOutcome::kOk);
}

TEST_F(TunerTest, DoesNotTryWhatIsRefused) {
  add({});
  Tuner::Request with = request();
  with.refuse = [](const Candidate& candidate) {
    const bool crashed = candidate.kernel->params(candidate.config)[0].value == "32";
    return std::string(crashed ? "it crashed before" : "");
  };
  const TuneResult result = tune(with);
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=16,threads=1");
  const Trial& refused = trial_of(result, "test.scaling.tiled tile=32,threads=1");
  EXPECT_EQ(refused.outcome, TrialOutcome::kQuarantined);
  EXPECT_EQ(refused.reason, "it crashed before");
  EXPECT_EQ(refused.samples, 0);
}

TEST_F(TunerTest, DoesNotTryWhatDoesNotFit) {
  add({.candidates = {{.tile = 2}, {.tile = 32}},
       .misfits = [](const ScalingProblem&, const TiledConfig& c) {
         return c.tile == 32 ? "rows are no multiple of the tile" : "";
       }});
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=2,threads=1");
  const Trial& misfit = trial_of(result, "test.scaling.tiled tile=32,threads=1");
  EXPECT_EQ(misfit.outcome, TrialOutcome::kUnsupported);
  EXPECT_EQ(misfit.reason, "rows are no multiple of the tile");
}

TEST_F(TunerTest, ThrowsWhenNoKernelTakesTheProblem) {
  add({.refuses = [](const ScalingProblem&) { return "only on Sundays"; }});
  try {
    tune();
    FAIL() << "nothing was thrown";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("test.scaling.tiled: only on Sundays"));
  }
}

TEST_F(TunerTest, KeepsAnIncumbentThatIsNearlyAsFast) {
  add({.heuristic = {.tile = 1},
       .candidates = {{.tile = 1}, {.tile = 2}, {.tile = 4}},
       .cost_us = [](const TiledConfig& c) {
         return c.tile == 1 ? 200.0 : c.tile == 2 ? 101.0 : 100.0;
       }});
  Tuner::Request with = request();
  with.incumbent = candidate("test.scaling.tiled", "tile=2");
  const TuneResult kept = tune(with);
  EXPECT_EQ(winner_of(kept), "test.scaling.tiled tile=2,threads=1");
  EXPECT_TRUE(kept.incumbent_kept);
  settings.hysteresis = 0.005;
  const TuneResult replaced = tune(with);
  EXPECT_EQ(winner_of(replaced), "test.scaling.tiled tile=4,threads=1");
  EXPECT_FALSE(replaced.incumbent_kept);
}

TEST_F(TunerTest, ReplacesAnIncumbentThatIsClearlySlower) {
  add({});
  Tuner::Request with = request();
  with.incumbent = candidate("test.scaling.tiled", "tile=8");
  const TuneResult result = tune(with);
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=32,threads=1");
  EXPECT_FALSE(result.incumbent_kept);
}

TEST_F(TunerTest, GoesOnWhenTheIncumbentNoLongerFits) {
  add({.candidates = {{.tile = 1}, {.tile = 2}},
       .misfits = [](const ScalingProblem&, const TiledConfig& c) {
         return c.tile > 2 ? "too large" : "";
       }});
  Tuner::Request with = request();
  with.incumbent = candidate("test.scaling.tiled", "tile=8");
  EXPECT_EQ(winner_of(tune(with)), "test.scaling.tiled tile=2,threads=1");
}

TEST_F(TunerTest, GradesAQuietSessionA) {
  add({});
  EXPECT_EQ(tune().noise, NoiseGrade::kA);
}

TEST_F(TunerTest, GradesANoisySessionC) {
  add({});
  world.noise = 0.2;
  EXPECT_EQ(tune().noise, NoiseGrade::kC);
}

TEST_F(TunerTest, MeasuresAnOnlyCandidateForItsEvidence) {
  add({.candidates = {{.tile = 1}}});
  const TuneResult result = tune();
  EXPECT_EQ(result.trials.size(), 1U);
  EXPECT_GE(result.trials[0].samples, 8);
  EXPECT_EQ(result.noise, NoiseGrade::kA);
  EXPECT_TRUE(result.complete);
}

TEST_F(TunerTest, RepeatsShortLaunchesUntilASampleIsLongEnough) {
  add({.candidates = {{.tile = 1}, {.tile = 2}},
       .cost_us = [](const TiledConfig& c) { return c.tile == 1 ? 0.5 : 0.4; }});
  settings.iters = 10;
  settings.warmup = 0;
  tune();
  // Two candidates, ten rounds: each sample lasts at least 200 us.
  EXPECT_GE(world.now_us, 2 * 10 * 200 * 0.8);
}

}  // namespace
}  // namespace attune::test
