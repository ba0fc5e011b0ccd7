// What a tuning minimises besides the time, and the constraint of the error: in the search, in the
// key, and in what is told of both.
#include <cmath>
#include <limits>
#include <memory>

#include <gmock/gmock.h>

#include <attune/cache/row_request.hpp>
#include <attune/core/error.hpp>
#include <attune/tuner/objective.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

/// Scores of a test's choice, with or without launching.
class ScriptedObjective final : public Objective {
 public:
  using Score = std::function<double(const ScoredLaunches&)>;
  ScriptedObjective(std::string name, Score score)
      : name_(std::move(name)), score_(std::move(score)) {}
  std::string_view name() const noexcept override { return name_; }
  std::string_view unit() const noexcept override { return "units"; }
  double score(const ScoredLaunches& launches) const override { return score_(launches); }
  double least_sample_us() const noexcept override { return least_us; }
  std::string why_unavailable(const Device&) const override { return missing; }

  std::string missing;
  double least_us = 0;

 private:
  std::string name_;
  Score score_;
};

double workspace_of(const ScoredLaunches& launches) {
  return static_cast<double>(launches.candidate.kernel->erased_workspace_bytes(
      launches.problem, launches.candidate.config));
}

class ObjectiveTest : public ChainTest {
 protected:
  void minimise(const std::string& name, ScriptedObjective::Score score) {
    objective = std::make_shared<ScriptedObjective>(name, std::move(score));
    settings.tuner.objective = objective;
  }
  std::shared_ptr<ScriptedObjective> objective;
};

TEST_F(ObjectiveTest, DecidesWhatIsChosen) {
  add({.heuristic = {.tile = 8}});
  minimise("memory", workspace_of);
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=1,threads=1");
  ASSERT_EQ(rows_on_disk().size(), 1U);
  const ConfigRow row = rows_on_disk()[0];
  EXPECT_EQ(row.key, row_key("auto;objective=memory"));
  EXPECT_DOUBLE_EQ(row.median_us, 16);
  EXPECT_DOUBLE_EQ(row.default_us, 8 * 16);
}

TEST_F(ObjectiveTest, MayMeasureTheLaunches) {
  add_tiled();
  minimise("half",
           [](const ScoredLaunches& launches) { return 0.5 * launches.run() / launches.count; });
  EXPECT_EQ(text(select()), kBest);
  EXPECT_NEAR(rows_on_disk().at(0).default_us, 0.5 * 1001, 1);
}

TEST_F(ObjectiveTest, IsNotAskedOfBatchesInWhichItsCounterMayNotMove) {
  add_tiled();
  constexpr double kTickUs = 20'000;
  double clock_us = 0;
  minimise("ticks", [&](const ScoredLaunches& launches) {
    const double before = std::floor(clock_us / kTickUs);
    clock_us += launches.run();
    return (std::floor(clock_us / kTickUs) - before) * kTickUs / launches.count;
  });
  objective->least_us = 5 * kTickUs;
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ObjectiveTest, RowsOfAnotherOneAreNotSeen) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  write(row("tile=32,threads=1"));
  minimise("memory", workspace_of);
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  ConfigRow other = row("tile=4,threads=1");
  other.key = row_key("auto;objective=memory");
  write(other);
  restart();
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=4,threads=1");
  const Decision decision = chain().explain(what(), request());
  EXPECT_THAT(decision.notes[static_cast<std::size_t>(Tier::kMemory)].reason,
              HasSubstr("persistent"));
  settings.tuner.objective = nullptr;
  restart();
  EXPECT_EQ(text(select()), kBest);
}

TEST_F(ObjectiveTest, ARowSaysWhatItGained) {
  settings.policy = policy_of(Policy::kDb);
  add_tiled();
  ConfigRow measured = row("tile=4,threads=1");
  measured.key = row_key("auto;objective=memory");
  write(measured);
  minimise("memory", workspace_of);
  const Decision decision = chain().explain(what(), request());
  EXPECT_THAT(decision.notes[static_cast<std::size_t>(Tier::kPersistent)].reason,
              HasSubstr("50 % of the default's memory"));
}

TEST_F(ObjectiveTest, AScoreThatIsNoneEndsTheTuning) {
  add_tiled();
  for (const double score :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    minimise("odd", [score](const ScoredLaunches&) { return score; });
    restart();
    try {
      chain().tune(what(), request(), settings.tuner);
      FAIL() << "nothing was thrown";
    } catch (const ExecutionError& error) {
      EXPECT_THAT(error.what(), HasSubstr("objective odd: the score of a launch is"));
    }
  }
  EXPECT_TRUE(rows_on_disk().empty());
  const ConfigDatabase file(settings.store.user_path, ConfigDatabase::Mode::kReadOnly);
  EXPECT_TRUE(file.read().quarantine.empty()) << "it was no candidate's fault";
}

TEST_F(ObjectiveTest, WhatCannotBeMeasuredIsSaidBeforeAnythingRuns) {
  add_tiled();
  minimise("energy", workspace_of);
  objective->missing = "there is no counter";
  EXPECT_THROW(chain().tune(what(), request(), settings.tuner), Unavailable);
  EXPECT_EQ(world.launches, 0);
  EXPECT_EQ(text(select()), kDefault) << "a call goes on with the heuristic";
  EXPECT_THAT(logged, HasSubstr("there is no counter"));
}

TEST_F(ObjectiveTest, ACandidateThatFailsWhileItIsScoredIsThatCandidatesFault) {
  add({.compute = [](const ScalingProblem& of, const ScalingArgs& args, const TiledConfig& c) {
    if (c.tile == 32 && of.rows > 9) throw std::runtime_error("tile 32");
    for (std::int64_t i = 0; i < of.rows; ++i) args.y[i] = 2 * args.x[i];
  }});
  minimise("half", [](const ScoredLaunches& launches) { return launches.run() / launches.count; });
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=16,threads=1");
}

/// With tile=32 off by one millionth.
Script inexact() {
  return {
      .compute = [](const ScalingProblem& problem, const ScalingArgs& args, const TiledConfig& c) {
        const float factor = c.tile == 32 ? 2.000002F : 2.0F;
        for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = factor * args.x[i];
      }};
}

TEST_F(ObjectiveTest, AConstraintOfTheErrorExcludesWhatIsLessExact) {
  add(inexact());
  add(reference_script(), 0, "reference");
  EXPECT_EQ(text(select()), kBest);
  Request with = request();
  with.constraints.error = 1e-7;
  EXPECT_EQ(text(select(with)), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(rows_on_disk().size(), 2U);
  restart();
  EXPECT_EQ(text(select(with)), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(chain().counters().tunings, 0U);
}

TEST_F(ObjectiveTest, WhatNobodyMeasuredDoesNotServeAConstraintOfTheError) {
  settings.policy = policy_of(Policy::kDb);
  add(inexact());
  Request with = request();
  with.constraints.error = 1e-7;
  try {
    select(with);
    FAIL() << "nothing was thrown";
  } catch (const NotTuned& error) {
    EXPECT_THAT(error.what(), HasSubstr("is not known to be at most 1e-07"));
    EXPECT_THAT(error.what(), HasSubstr("--max-error"));
  }
  EXPECT_FALSE(chain().explain(what(), with).choice.has_value());
}

TEST_F(ObjectiveTest, TheOnlyCandidateIsMeasuredForAConstraintOfTheError) {
  add({.candidates = {{}}});
  Request with = request();
  with.constraints.error = 1e-7;
  EXPECT_EQ(select(with).tier, Tier::kAutotune);
  EXPECT_EQ(select(with).tier, Tier::kMemory);
}

TEST_F(ObjectiveTest, WhereNothingKeepsTheErrorEachCallIsAnError) {
  Script script = inexact();
  script.heuristic = {.tile = 32};
  script.candidates = {script.heuristic};
  add(script);
  add(reference_script(), 0, "reference");
  Request with = request();
  with.constraints.error = 1e-7;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(select(with), NotTuned) << i;
  EXPECT_TRUE(rows_on_disk().empty());
}

TEST(RowRequestText, LeavesOutWhatIsAtItsDefault) {
  EXPECT_EQ(RowRequest().text(), "auto");
  EXPECT_EQ((RowRequest{.platform = "simd"}).text(), "simd");
  const RowRequest all{.platform = "auto",
                       .objective = "energy",
                       .constraints = {.workspace_bytes = 1 << 20, .error = 1e-5}};
  EXPECT_EQ(all.text(), "auto;objective=energy;workspace<=1048576;error<=1e-05");
  const RowRequest read = RowRequest::parse(all.text());
  EXPECT_EQ(read.objective, "energy");
  EXPECT_EQ(read.constraints, all.constraints);
  EXPECT_EQ(objective_of(all.text()), "energy");
  EXPECT_EQ(objective_of("auto;workspace<=1"), "");
}

TEST(RowRequestText, RefusesWhatIsNone) {
  for (const char* text :
       {"", ";objective=energy", "auto;objective=", "auto;objective=Energy", "auto;workspace<=-1",
        "auto;workspace<=x", "auto;error<=1e-5", "auto;error<=nan", "auto;error<=-1", "auto;x",
        "auto;error<=1e-05;workspace<=1"}) {
    EXPECT_THROW(RowRequest::parse(text), InvalidArgument) << text;
  }
  EXPECT_THROW((RowRequest{.constraints = {.error = -1}}).text(), InvalidArgument);
  EXPECT_THROW((RowRequest{.objective = "a name that is long"}).text(), InvalidArgument);
  EXPECT_THROW((RowRequest{.platform = "a-platform",
                           .objective = "a-name-of-16-let",
                           .constraints = {.workspace_bytes = kNoLimit - 1, .error = 1e-5}})
                   .text(),
               InvalidArgument);
}

}  // namespace
}  // namespace attune::test
