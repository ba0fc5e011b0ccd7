// What a tuning makes of a race: the last checks, the confirmation, stops and failures.
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "tuner/search/search_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tuning::Verdict;

TEST_F(SearchTest, AWinnerIsCheckedWithOtherInputsFirst) {
  add_tiles({1, 2, 4});
  place.reduced = [](int tile, int round) {
    return tile == 4 && round == 1 ? Verdict{TrialOutcome::kWrong, "y: too large", 0.5} : Verdict{};
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_EQ(trial(result, 4).outcome, TrialOutcome::kWrong);
  EXPECT_EQ(trial(result, 4).reason, "after the race: y: too large");
}

TEST_F(SearchTest, WhoFailsOnlyAfterTheRaceIsFollowedByTheNext) {
  add_tiles({1, 2, 4, 8, 16});
  place.cost_us = [](int tile) { return tile == 1 ? 150.0 : 100.0 - tile / 1000.0; };
  int checks = 0;
  place.full = [&](int tile) {
    const bool at_last = ++checks > 5;
    return at_last && tile > 2 ? Verdict{TrialOutcome::kWrong, "worn out", 1} : Verdict{};
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  for (const int tile : {4, 8, 16}) EXPECT_EQ(trial(result, tile).outcome, TrialOutcome::kWrong);
}

TEST_F(SearchTest, WhoIsStoppedIsNotCheckedAgain) {
  add_tiles({1, 2});
  bool stop = false;
  place.cost_us = [&](int tile) {
    stop = place.timed[1].size() > 5;
    return tile == 1 ? 100.0 : 99.0;
  };
  settings.stop = [&] { return stop; };
  EXPECT_EQ(winner_of(tune()), name_of(1));
  EXPECT_EQ(place.checked_at_full_size.size(), 2U) << "each once, before the race";
}

TEST_F(SearchTest, WhoIsStoppedChecksAWinnerThatNeverWas) {
  add_tiles({1, 2});
  place.full_check_us = 2e6;  // so only the default is checked before the race
  settings.budget = std::chrono::milliseconds(6000);
  bool stop = false;
  place.cost_us = [&](int tile) {
    stop = place.timed[1].size() > 7;
    return tile == 1 ? 150.0 : 99.0;
  };
  settings.stop = [&] { return stop; };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_THAT(place.checked_at_full_size, ElementsAre(1, 2));
}

TEST_F(SearchTest, WhoeverFailsInTheConfirmationIsSettled) {
  add_tiles({1, 2});
  place.cost_us = [&](int tile) {
    if (tile == 1) return 110.0;
    if (checked().size() == 2 && place.checked_at_full_size.size() > 2) {
      throw tuning::CandidateFailure(TrialOutcome::kCrashed, "gone");
    }
    return 100.0;
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(1));
  EXPECT_EQ(trial(result, 2).outcome, TrialOutcome::kCrashed);
  EXPECT_EQ(trial(result, 2).reason, "gone");
}

TEST_F(SearchTest, ADefaultThatFailsInTheConfirmationHasLost) {
  add_tiles({1, 2});
  place.cost_us = [&](int tile) {
    if (tile == 2) return 100.0;
    if (place.checked_at_full_size.size() > 2) {
      throw tuning::CandidateFailure(TrialOutcome::kFailed, "gone");
    }
    return 110.0;
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_EQ(trial(result, 1).outcome, TrialOutcome::kFailed);
}

TEST_F(SearchTest, TheWinnerIsHeldAgainstTheIncumbentToo) {
  // 2 % faster than the default, 1 % faster than what is stored.
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 1 ? 102.5 : tile == 2 ? 101.0 : 100.0; };
  EXPECT_EQ(winner_of(tune()), name_of(4));
  const TuneResult result = tune(with_incumbent(2));
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_TRUE(result.incumbent_kept);
  EXPECT_EQ(trial(result, 2).outcome, TrialOutcome::kOk);
}

TEST_F(SearchTest, AnIncumbentThatIsTheDefaultIsKeptWhenItWins) {
  add_tiles({1, 2});
  place.cost_us = [](int) { return 100.0; };
  EXPECT_FALSE(tune().incumbent_kept);
  EXPECT_TRUE(tune(with_incumbent(1)).incumbent_kept);
}

TEST_F(SearchTest, StopsWhereTheDeviceIsLost) {
  add_tiles({1, 2, 4, 8});
  place.reduced = [this](int tile, int) {
    if (tile != 2) return Verdict{};
    place.lost = "bus error";
    return Verdict{TrialOutcome::kCrashed, "gone"};
  };
  const TuneResult result = tune();
  EXPECT_EQ(result.winner, -1);
  EXPECT_EQ(trial(result, 8).outcome, TrialOutcome::kNotReached);
  EXPECT_THAT(trial(result, 8).reason, HasSubstr("bus error"));
  EXPECT_EQ(place.timed.count(4), 0U);
  EXPECT_EQ(place.timed[1].size(), 2U) << "nothing races";
}

TEST_F(SearchTest, AnIncumbentIsNotKeptOnADeviceThatIsLost) {
  add_tiles({1, 2});
  place.reduced = [this](int, int) {
    place.lost = "bus error";
    return Verdict{TrialOutcome::kCrashed, "gone"};
  };
  const TuneResult result = tune(with_incumbent(2));
  EXPECT_EQ(result.winner, -1);
  EXPECT_FALSE(result.incumbent_kept);
}

TEST_F(SearchTest, TellsOfEachTrialWhenItIsSettled) {
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 1 ? 100.0 : tile == 2 ? 120.0 : 300.0; };
  std::vector<std::string> told;
  Tuner::Request with = request();
  with.on_trial = [&](const Trial& trial) {
    told.push_back(text_of(*trial.candidate.kernel, trial.candidate.config));
  };
  tune(with);
  EXPECT_THAT(told, ElementsAre(name_of(4), name_of(2), name_of(1)));
}

TEST_F(SearchTest, SaysHowFarEachIsFromTheDefaultAndHowItSpread) {
  add_tiles({1, 2});
  place.cost_us = [this](int tile) {
    const double cost = tile == 1 ? 1000 : 950;
    return place.timed[tile].size() % 2 == 0 ? cost : cost * 1.002;
  };
  const TuneResult result = tune();
  EXPECT_NEAR(trial(result, 2).relative, 0.95, 0.003);
  EXPECT_NEAR(trial(result, 1).spread, 0.001, 1e-4);
  EXPECT_EQ(result.noise, NoiseGrade::kA);
}

}  // namespace
}  // namespace attune::test
