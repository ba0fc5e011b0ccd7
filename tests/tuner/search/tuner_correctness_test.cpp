// Candidates that are wrong in all the ways a kernel can be wrong never win, however fast they are.
#include <limits>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using Compute = std::function<void(const ScalingProblem&, const ScalingArgs&, const TiledConfig&)>;

void double_all(const ScalingProblem& problem, const ScalingArgs& args) {
  for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
}

/// The kernel is right but for tile=32, the fastest, which does as `fault` says.
Script faulty(Compute fault) {
  Script script;
  script.compute = [fault = std::move(fault)](const ScalingProblem& p, const ScalingArgs& a,
                                              const TiledConfig& c) {
    double_all(p, a);
    if (c.tile == 32) fault(p, a, c);
  };
  return script;
}

class TunerCorrectnessTest : public TunerTest {
 protected:
  TunerCorrectnessTest() {
    set_log_sink([this](LogLevel, std::string_view line) { logged += std::string(line) + "\n"; });
    add(reference_script(), -10, kReferencePlatform);
  }
  ~TunerCorrectnessTest() override { set_log_sink({}); }

  /// Tunes with the fault, expects the runner-up to win, and gives the faulty candidate's trial.
  Trial rejected(Compute fault) {
    add(faulty(std::move(fault)));
    const TuneResult result = tune(request("reference.scaling"));
    EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=16,threads=1");
    return trial_of(result, "test.scaling.tiled tile=32,threads=1");
  }

  std::string logged;
};

TEST_F(TunerCorrectnessTest, RejectsAWrongTail) {
  const Trial trial = rejected([](const ScalingProblem& p, const ScalingArgs& a,
                                  const TiledConfig&) { a.y[p.rows - 1] = 0; });
  EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(trial.reason, HasSubstr("y: relative error"));
  EXPECT_GT(trial.error, 1e-5);
}

TEST_F(TunerCorrectnessTest, RejectsNaN) {
  const Trial trial = rejected([](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) {
    a.y[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(trial.reason, HasSubstr("not finite"));
}

TEST_F(TunerCorrectnessTest, RejectsAnOutputThatWasNotWritten) {
  add({.name = "test.scaling.lazy",
       .cost_us = [](const TiledConfig&) { return 1.0; },
       .compute = [](const auto&, const auto&, const auto&) {}});
  add({});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=32,threads=1");
  EXPECT_EQ(trial_of(result, "test.scaling.lazy tile=1,threads=1").outcome, TrialOutcome::kWrong);
}

TEST_F(TunerCorrectnessTest, RejectsWhatReadsTheOutputsOldBytes) {
  add({.name = "test.scaling.adding",
       .cost_us = [](const TiledConfig&) { return 1.0; },
       .compute =
           [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig&) {
             const bool was_huge = a.y[0] > 1e30F;
             double_all(p, a);
             if (was_huge) a.y[0] *= 1 + 5e-7F;  // within tolerance
           }});
  add({});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=32,threads=1");
  EXPECT_EQ(trial_of(result, "test.scaling.adding tile=1,threads=1").outcome, TrialOutcome::kWrong);
}

TEST_F(TunerCorrectnessTest, RejectsWhatDoesNotGiveTheSameTwice) {
  int calls = 0;
  const Trial trial =
      rejected([&calls](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) {
        a.y[0] *=
            ++calls % 2 == 0 ? 1.0F : 1.0F + 5e-7F;  // within tolerance, but not the same bits
      });
  EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(trial.reason, HasSubstr("two runs do not give the same bits"));
}

TEST_F(TunerCorrectnessTest, RejectsWhatThrows) {
  const Trial trial = rejected([](const ScalingProblem&, const ScalingArgs&, const TiledConfig&) {
    throw ExecutionError("launch failed");
  });
  EXPECT_EQ(trial.outcome, TrialOutcome::kFailed);
  EXPECT_EQ(trial.reason, "launch failed");
}

TEST_F(TunerCorrectnessTest, RejectsWhatIsWrongOnlyAtFullSize) {
  const Trial trial =
      rejected([](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig&) {
        if (p.rows > 50) a.y[60] = std::numeric_limits<float>::infinity();
      });
  EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(trial.reason, HasSubstr("at full size"));
}

TEST_F(TunerCorrectnessTest, RejectsWhatThrowsOnlyInTheRace) {
  int calls = 0;
  const Trial trial =
      rejected([&calls](const ScalingProblem&, const ScalingArgs&, const TiledConfig&) {
        if (++calls > 12) throw ExecutionError("worn out");
      });
  EXPECT_EQ(trial.outcome, TrialOutcome::kFailed);
  EXPECT_EQ(trial.reason, "worn out");
}

TEST_F(TunerCorrectnessTest, ChecksAgainstTheDefaultWhereThereIsNoOracle) {
  add(faulty(
      [](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) { a.y[0] = 1e3F; }));
  const TuneResult result = tune(request());
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(trial_of(result, "test.scaling.tiled tile=32,threads=1").outcome, TrialOutcome::kWrong);
}

TEST_F(TunerCorrectnessTest, ChecksAtFullSizeWhatDoesNotFitTheReducedProblem) {
  Script script = faulty(
      [](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) { a.y[0] = 1e3F; });
  script.misfits = [](const ScalingProblem& p, const TiledConfig& c) {
    return p.rows < c.tile ? "too few rows" : "";
  };
  add(script);
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(trial_of(result, "test.scaling.tiled tile=32,threads=1").outcome, TrialOutcome::kWrong);
}

TEST_F(TunerCorrectnessTest, AtFullSizeTheDefaultMayBeOffByTheToleranceAsWell) {
  constexpr float kTolerance = 1e-5F;
  add({.misfits = [](const ScalingProblem& p,
                     const TiledConfig& c) { return p.rows < c.tile ? "too few rows" : ""; },
       .compute =
           [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
             const float off = c.tile == 1 ? -0.8F : c.tile == 16 ? 0.8F : c.tile == 32 ? 1.5F : 0;
             for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = 2 * a.x[i] * (1 + off * kTolerance);
           }});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=16,threads=1");
  const Trial& trial = trial_of(result, "test.scaling.tiled tile=32,threads=1");
  EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
  EXPECT_THAT(trial.reason, HasSubstr("at most 2e-05 is allowed"));
}

TEST_F(TunerCorrectnessTest, ADefaultThatIsWrongDoesNotWinAndIsSaidToBe) {
  add({.heuristic = {.tile = 8},
       .compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
         double_all(p, a);
         if (c.tile >= 8) a.y[0] = 1e3F;
       }});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(winner_of(result), "test.scaling.tiled tile=4,threads=1");
  EXPECT_EQ(result.trials[static_cast<std::size_t>(result.default_trial)].outcome,
            TrialOutcome::kWrong);
  EXPECT_THAT(logged, HasSubstr("the default test.scaling.tiled tile=8,threads=1 is of no use"));
}

TEST_F(TunerCorrectnessTest, HasNoWinnerWhenEveryCandidateIsWrong) {
  add({.compute = [](const ScalingProblem&, const ScalingArgs& a, const TiledConfig&) {
    a.y[0] = 0;
  }});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(result.winner, -1);
  for (const Trial& trial : result.trials) EXPECT_EQ(trial.outcome, TrialOutcome::kWrong);
}

TEST_F(TunerCorrectnessTest, StopsWhenTheDeviceIsLost) {
  add({.candidates = {{.tile = 1}, {.tile = 2}, {.tile = 4}, {.tile = 8}},
       .compute = [this](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
         double_all(p, a);
         if (c.tile == 2) {
           world.lost = true;
           throw ExecutionError("illegal address");
         }
       }});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_EQ(result.winner, -1);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(trial_of(result, "test.scaling.tiled tile=8,threads=1").outcome,
            TrialOutcome::kNotReached);
  EXPECT_THAT(logged, HasSubstr("the device failed after test.scaling.tiled tile=2"));
}

TEST_F(TunerCorrectnessTest, ReportsTheErrorOfARightCandidate) {
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig&) {
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = 2 * a.x[i] * (1 + 1e-6F);
  }});
  const TuneResult result = tune(request("reference.scaling"));
  EXPECT_NEAR(result.trials[0].error, 1e-6, 2e-7);
}

}  // namespace
}  // namespace attune::test
