// What a tuning asks of a candidate before it races: checks, probes, and for how long.
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "tuner/search/search_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tuning::Verdict;

TEST_F(SearchTest, ChecksEveryCandidateAtFullSizeWhereAQuarterOfTheBudgetIsEnough) {
  add_tiles({1, 2, 4, 8, 16, 32});
  place.full_check_us = 100'000;  // six of them are a quarter of 2.4 s
  tune();
  EXPECT_EQ(checked(), (std::set{1, 2, 4, 8, 16, 32}));
}

TEST_F(SearchTest, ElseChecksTheDefaultTheIncumbentAndTheWinnerAtFullSize) {
  add_tiles({1, 2, 4, 8, 16, 32});
  place.full_check_us = 110'000;
  const TuneResult result = tune(with_incumbent(4));
  EXPECT_EQ(winner_of(result), name_of(32));
  EXPECT_EQ(checked(), (std::set{1, 4, 32}));
  ASSERT_GE(place.checked_at_full_size.size(), 2U);
  EXPECT_EQ(place.checked_at_full_size[0], 1) << "before the race";
  EXPECT_EQ(place.checked_at_full_size[1], 4);
}

TEST_F(SearchTest, WhatIsWrongAtFullSizeDoesNotRace) {
  add_tiles({1, 2, 4});
  place.full = [](int tile) {
    return tile == 4 ? Verdict{TrialOutcome::kWrong, "y: too large", 0.5} : Verdict{};
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_EQ(trial(result, 4).outcome, TrialOutcome::kWrong);
  EXPECT_EQ(trial(result, 4).reason, "at full size: y: too large");
  EXPECT_EQ(trial(result, 4).error, 0.5);
  EXPECT_EQ(place.timed[4].size(), 2U) << "the probes alone";
}

TEST_F(SearchTest, WhatCannotBeReducedIsComparedWithTheDefaultAtFullSize) {
  add_tiles({1, 2, 4});
  place.full_check_us = 1e6;  // whatever that takes
  place.reduced = [](int tile, int) {
    return tile == 4 ? std::nullopt : std::optional<Verdict>(Verdict{});
  };
  settings.budget = std::chrono::milliseconds(60'000);
  bool first = true;
  place.full = [&](int tile) {
    if (tile == 4 && first) {
      EXPECT_EQ(place.like[4], 1);
      first = false;
    }
    return Verdict{};
  };
  EXPECT_EQ(winner_of(tune()), name_of(4));
  EXPECT_FALSE(first);
  EXPECT_EQ(place.like[1], 0) << "there is nothing to compare the default with";
}

TEST_F(SearchTest, ADefaultThatCannotBeReducedIsComparedWithNothing) {
  add_tiles({1, 2});
  place.reduced = [](int, int) { return std::nullopt; };
  std::map<int, int> first_like;
  place.full = [&](int tile) {
    first_like.emplace(tile, place.like[tile]);
    return tile == 2 ? Verdict{TrialOutcome::kWrong, "differs", 1} : Verdict{};
  };
  EXPECT_EQ(winner_of(tune()), name_of(1));
  EXPECT_EQ(first_like, (std::map<int, int>{{1, 0}, {2, 1}}));
}

TEST_F(SearchTest, MoreThanTwiceAsSlowAsTheFastestIsNotRaced) {
  add_tiles({1, 2, 4, 8});
  place.cost_us = [](int tile) { return tile == 4 ? 200.0 : tile == 8 ? 201.0 : 100.0; };
  const TuneResult result = tune();
  EXPECT_EQ(trial(result, 8).outcome, TrialOutcome::kSlow);
  EXPECT_THAT(trial(result, 8).reason, HasSubstr("more than 2 times slower"));
  EXPECT_EQ(trial(result, 8).samples, 1);
  EXPECT_EQ(trial(result, 8).median_us, 201);
  EXPECT_EQ(trial(result, 4).outcome, TrialOutcome::kSlow);
  EXPECT_GT(trial(result, 4).samples, 1);
  EXPECT_TRUE(trial(result, 4).reason.empty());
}

TEST_F(SearchTest, SlowIsWhatIsSlowerThanTheFastestOfAllBefore) {
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 1 ? 150.0 : tile == 2 ? 100.0 : 250.0; };
  const TuneResult result = tune();
  EXPECT_EQ(trial(result, 4).samples, 1);
}

TEST_F(SearchTest, TheIncumbentRacesHoweverSlow) {
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 4 ? 900.0 : 100.0; };
  const TuneResult result = tune(with_incumbent(4));
  EXPECT_GT(trial(result, 4).samples, 1);
}

TEST_F(SearchTest, RepeatsALaunchUntilASampleLastsLongEnough) {
  add_tiles({1});
  place.cost_us = [](int) { return 30.0; };
  settings.min_sample_us = 200;
  tune();
  std::vector<int>& repeats = place.timed[1];
  ASSERT_GE(repeats.size(), 10U);
  EXPECT_EQ(repeats[0], 1);
  EXPECT_EQ(std::set(repeats.begin() + 1, repeats.end()), std::set{7});
  EXPECT_EQ(repeats.size(), 2U + 8U);
}

TEST_F(SearchTest, ProbesAgainWhileLaunchesGetFaster) {
  add_tiles({1});
  settings.min_sample_us = 200;
  std::vector<double> costs{200, 100, 50, 25, 20, 10};
  place.cost_us = [&](int) {
    const double cost = costs.front();
    if (costs.size() > 1) costs.erase(costs.begin());
    return cost;
  };
  tune();
  std::vector<int> probes = place.timed[1];
  ASSERT_GE(probes.size(), 6U);
  probes.resize(6);
  EXPECT_THAT(probes, ElementsAre(1, 1, 2, 4, 8, 10)) << "four more, then the race";
  EXPECT_EQ(place.timed[1].back(), 10);
}

TEST_F(SearchTest, WhatFailsWhenItIsFirstTimedDoesNotRace) {
  add_tiles({1, 2});
  place.cost_us = [](int tile) {
    if (tile == 2) throw tuning::CandidateFailure(TrialOutcome::kCrashed, "gone");
    return 100.0;
  };
  const TuneResult result = tune();
  EXPECT_EQ(trial(result, 2).outcome, TrialOutcome::kCrashed);
  EXPECT_EQ(place.timed[2].size(), 1U);
  EXPECT_TRUE(result.complete);
}

TEST_F(SearchTest, AProbeThatIsDisturbedDoesNotCount) {
  add_tiles({1});
  settings.min_sample_us = 200;
  int calls = 0;
  place.cost_us = [&](int) { return ++calls == 2 ? 1000.0 : 50.0; };
  tune();
  EXPECT_EQ(place.timed[1].back(), 4);
}

TEST_F(SearchTest, ALaunchThatTakesATwentiethOfTheBudgetIsProbedOnce) {
  add_tiles({1, 2});
  settings.budget = std::chrono::milliseconds(2000);
  settings.min_sample_us = 1e6;
  place.cost_us = [](int tile) { return tile == 1 ? 100'001.0 : 100'000.0; };
  tune();
  EXPECT_EQ(place.timed[1][0], 1);
  EXPECT_EQ(place.timed[1][1], 1) << "of the race, which repeats it as seldom";
  ASSERT_GE(place.timed[2].size(), 2U);
  EXPECT_EQ(place.timed[2][1], 10);
}

TEST_F(SearchTest, ASampleLastsLongerOnTheHostThanOnADevice) {
  add_tiles({1});
  place.cost_us = [](int) { return 10.0; };
  tune();
  EXPECT_EQ(place.timed[1].back(), 20);
  Tuner::Request on_host = request();
  on_host.device = &cpu_device();
  place.timed.clear();
  tune(on_host);
  EXPECT_EQ(place.timed[1].back(), 100);
}

TEST_F(SearchTest, ALaunchOfNoTimeIsRepeatedABoundedNumberOfTimes) {
  add_tiles({1});
  place.cost_us = [](int) { return 0.0; };
  tune();
  EXPECT_EQ(place.timed[1].back(), 100'000);
}

TEST_F(SearchTest, ScreensCandidatesForHalfOfItsBudget) {
  add_tiles({1, 2, 4, 8, 16, 32});
  settings.budget = std::chrono::milliseconds(1000);
  place.reduced = [this](int, int round) {
    if (round == 0) world.now_us += 180'000;
    return std::optional<Verdict>(Verdict{});
  };
  place.cost_us = [](int) { return 100.0; };
  const TuneResult result = tune();
  // Three take more than half; the rest would be tried had there been time.
  EXPECT_EQ(place.timed.count(4), 1U);
  EXPECT_EQ(place.timed.count(8), 0U);
  EXPECT_EQ(trial(result, 8).outcome, TrialOutcome::kNotReached);
  EXPECT_EQ(trial(result, 8).reason, "the budget ended first");
  EXPECT_FALSE(result.complete);
}

TEST_F(SearchTest, TriesTheIncumbentWithoutTimeButNotWhenSomebodyWaits) {
  add_tiles({1, 2, 4});
  settings.budget = std::chrono::milliseconds(0);
  tune(with_incumbent(4));
  EXPECT_EQ(place.timed.count(4), 1U);
  place.timed.clear();
  settings.stop = [this] { return !place.timed.empty(); };
  const TuneResult stopped = tune(with_incumbent(4));
  EXPECT_EQ(place.timed.count(4), 0U);
  EXPECT_EQ(winner_of(stopped), name_of(4)) << "nothing is known to be better";
}

}  // namespace
}  // namespace attune::test
