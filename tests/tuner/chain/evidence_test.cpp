// What a tuning leaves in the database: how fast against what, what was tried, and what must not be
// tried again.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>

#include <attune/tuner/candidate_runner.hpp>

#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// Another process, as it were: all candidates are right, and some come to harm.
class HarmfulPlace final : public tuning::CandidateRunner {
 public:
  explicit HarmfulPlace(World& world) : world_(world) {}
  std::optional<tuning::Verdict> check_reduced(const Candidate& candidate, int) override {
    if (tile_of(candidate) == 4) {
      return tuning::Verdict{TrialOutcome::kWrong, "y: relative error 1", 1};
    }
    return tuning::Verdict{};
  }
  tuning::Verdict check_at_full_size(const Candidate&, const Candidate*) override { return {}; }
  double time_us(const Candidate& candidate, int repeats) override {
    switch (tile_of(candidate)) {
      case 32:
        throw tuning::CandidateFailure(TrialOutcome::kFailed, "illegal instruction");
      case 16:
        throw tuning::CandidateFailure(TrialOutcome::kFailed, "cudaMalloc: out of memory");
      case 8:
        throw tuning::CandidateFailure(TrialOutcome::kCrashed, "ended by SIGSEGV");
      default:
        world_.now_us += 100.0 * repeats / tile_of(candidate);
        return 100.0 * repeats / tile_of(candidate);
    }
  }
  std::string device_failure() override { return ""; }

 private:
  static int tile_of(const Candidate& candidate) {
    return Kernel<TiledConfig>::unpack(candidate.config).tile;
  }
  World& world_;
};

class ChainEvidenceTest : public ChainTest {
 protected:
  std::string reason_for(const std::string& config) const {
    for (const QuarantineRow& row :
         ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly)
             .read()
             .quarantine) {
      if (row.config == config) return row.reason;
    }
    return "";
  }
  static void add_one(const ScalingProblem& p, const ScalingArgs& a, bool wrong) {
    for (std::int64_t i = 0; i < p.rows; ++i) a.y[i] = (wrong ? 3 : 2) * a.x[i];
  }
};

TEST_F(ChainEvidenceTest, WhatComesToHarmElsewhereIsNotTriedAgain) {
  add_tiled();
  settings.tuner.make_runner = [this](const tuning::Workload&) {
    return std::make_unique<HarmfulPlace>(world);
  };
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=2,threads=1");
  EXPECT_EQ(reason_for("tile=32,threads=1"), "failed: illegal instruction");
  EXPECT_EQ(reason_for("tile=8,threads=1"), "crashed: ended by SIGSEGV");
  EXPECT_EQ(reason_for("tile=4,threads=1"), "wrong: y: relative error 1");
  EXPECT_THAT(reason_for("tile=16,threads=1"), StartsWith(std::string(kSuspect) + "failed: "))
      << "memory may be there another time";
  EXPECT_EQ(reason_for("tile=2,threads=1"), "");
  ASSERT_EQ(rows_on_disk().size(), 1U);
  EXPECT_EQ(rows_on_disk()[0].candidates_tried, 4);
  EXPECT_EQ(rows_on_disk()[0].candidates_refused, 8);
}

TEST_F(ChainEvidenceTest, WhatThrowsInThisProcessMayBeTriedAgain) {
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
    if (c.tile == 32) throw ExecutionError("out of threads");
    add_one(p, a, false);
  }});
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=16,threads=1");
  EXPECT_EQ(reason_for("tile=32,threads=1"), "");
  EXPECT_EQ(rows_on_disk().at(0).candidates_refused, 2);
}

TEST_F(ChainEvidenceTest, UnderAPolicyThatNeverWritesNothingIsQuarantined) {
  settings.policy.persist_autotune = false;
  add(reference_script(), -10, kReferencePlatform);
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
    add_one(p, a, c.tile == 32);
  }});
  EXPECT_EQ(text(select()), "test.scaling.tiled tile=16,threads=1");
  EXPECT_FALSE(std::filesystem::exists(settings.store.user_path));
}

TEST_F(ChainEvidenceTest, OfADefaultThatIsOfNoUseTheWinnerIsItsOwnMeasure) {
  add(reference_script(), -10, kReferencePlatform);
  add({.compute = [](const ScalingProblem& p, const ScalingArgs& a, const TiledConfig& c) {
    add_one(p, a, c.tile == 1);
  }});
  EXPECT_EQ(text(select()), kBest);
  const ConfigRow written = rows_on_disk().at(0);
  EXPECT_NEAR(written.median_us, 32.25, 0.01);
  EXPECT_EQ(written.default_us, written.median_us);
  EXPECT_EQ(written.default_config, kDefault);
  EXPECT_EQ(written.candidates_refused, 2);
}

TEST_F(ChainEvidenceTest, WhatWasNotReachedCountsAsNeitherAndIsNotStored) {
  settings.policy.problem_budget = std::chrono::milliseconds(3);
  add_tiled();
  select();
  const ConfigRow written = rows_on_disk().at(0);
  EXPECT_EQ(written.candidates_refused, 0);
  EXPECT_LT(written.candidates_tried, 12);
  EXPECT_GE(written.candidates_tried, 1);
  const auto trials =
      ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly).trials(row_key());
  EXPECT_EQ(std::ssize(trials), written.candidates_tried);
  EXPECT_TRUE(std::none_of(trials.begin(), trials.end(),
                           [](const TrialRow& trial) { return trial.outcome == "not_reached"; }));
}

TEST_F(ChainEvidenceTest, WhereNothingIsOfUseSaysWhyOfEach) {
  add({.candidates = {{.tile = 1}, {.tile = 2}},
       .misfits = [](const ScalingProblem&,
                     const TiledConfig& c) { return c.tile == 2 ? "too few rows" : ""; },
       .compute = [](const auto&, const auto&, const auto&) { throw ExecutionError("boom"); }});
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_THAT(logged, HasSubstr("test.scaling.tiled tile=1,threads=1: failed: boom"));
  EXPECT_THAT(logged, HasSubstr("test.scaling.tiled tile=2,threads=1: unsupported: too few rows"));
  EXPECT_TRUE(rows_on_disk().empty());
}

/// What a process says of its first tunings; each is a process of its own.
class ChainAnnouncementDeathTest : public ChainEvidenceTest {
 protected:
  ChainAnnouncementDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  [[noreturn]] void tune_twice() {
    add_tiled();
    select();
    problem.rows = 7;
    select();
    std::fprintf(stderr, "%s", logged.c_str());
    std::_Exit(logged.find("Results are kept") == logged.rfind("Results are kept") ? 0 : 1);
  }
};

TEST_F(ChainAnnouncementDeathTest, SaysOnceThatItTunesAndWhereResultsAreKept) {
  EXPECT_EXIT(tune_twice(), testing::ExitedWithCode(0),
              "tuning scaling rows=100 flavour=0, as every new problem: .* Results are kept in "
              ".*user.db; ATTUNE_POLICY=db turns tuning off");
}

TEST_F(ChainAnnouncementDeathTest, SaysThatResultsEndWithTheProcessWhereNothingIsStored) {
  settings.policy.persist_autotune = false;
  EXPECT_EXIT(tune_twice(), testing::ExitedWithCode(0), "Results are kept until it ends;");
}

TEST_F(ChainAnnouncementDeathTest, SaysThatResultsEndWithTheProcessWhereThereIsNoDatabase) {
  settings.store.user_path.clear();
  EXPECT_EXIT(tune_twice(), testing::ExitedWithCode(0), "Results are kept until it ends;");
}

TEST_F(ChainAnnouncementDeathTest, SaysThatResultsEndWithTheProcessWhereTheDatabaseCannotBeMade) {
  settings.store.user_path = "/proc/attune/attune.db";
  EXPECT_EXIT(tune_twice(), testing::ExitedWithCode(0), "Results are kept until it ends;");
}

}  // namespace
}  // namespace attune::test
