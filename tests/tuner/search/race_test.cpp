// The race by itself: who leaves when, what the samples are divided by, and when it is over.
#include "search/race.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>

#include "tuner/search/scripted_runner.hpp"

namespace attune::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr int kRoundsToDrop = 4, kRoundsToJudge = 8;

class RaceTest : public testing::Test {
 protected:
  /// Racers 0, 1, ... of these costs; 0 is the anchor.
  bool race(const std::vector<double>& costs, double share = 1) {
    for (const double cost : costs) {
      racers.push_back(racer(static_cast<int>(racers.size()), cost, repeats));
    }
    if (!scripted) {
      runner.cost_us = [costs](int id) { return costs[static_cast<std::size_t>(id)]; };
    }
    return race_on(share);
  }
  bool race_on(double share = 1) {
    const tuning::Budget budget(settings);
    tuning::Race race(runner, settings, budget, racers, 0,
                      [this](const tuning::Racer& gone) { dropped.push_back(gone.trial); });
    return race.run(share);
  }
  /// The same with costs that change.
  void script(std::function<double(int)> cost_us) {
    runner.cost_us = std::move(cost_us);
    scripted = true;
  }
  std::ptrdiff_t samples(std::size_t id) const { return std::ssize(racers[id].scores); }

  ScriptedRunner runner;
  Tuner::Settings settings = settings_on(runner);
  int repeats = 1;
  bool scripted = false;
  std::vector<tuning::Racer> racers;
  std::vector<std::size_t> dropped;
};

TEST_F(RaceTest, OfEqualsIsOverWhenTheyAreKnownToBe) {
  EXPECT_TRUE(race({100, 100, 100}));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(samples(i), kRoundsToJudge);
  EXPECT_TRUE(dropped.empty());
}

TEST_F(RaceTest, OfWhatCannotBeToldApartTakesAllSamples) {
  settings.iters = 30;
  script([this](int id) {
    return id == 0 ? 100.0 : 90.0 + 10 * static_cast<double>(runner.samples_of(1) % 3);
  });
  EXPECT_TRUE(race({100, 100}));
  EXPECT_EQ(samples(1), 30);
  EXPECT_TRUE(dropped.empty());
}

TEST_F(RaceTest, IsOverWhenAllOthersHaveLeft) {
  EXPECT_TRUE(race({100, 150, 120}));
  EXPECT_THAT(dropped, UnorderedElementsAre(1, 2));
  EXPECT_EQ(samples(0), kRoundsToDrop);
}

TEST_F(RaceTest, TheFarSlowerLeavesSoonAndTheSlowerWhenItIsSure) {
  EXPECT_TRUE(race({100, 100, 111, 105}));
  EXPECT_THAT(dropped, ElementsAre(2, 3));
  EXPECT_EQ(samples(2), kRoundsToDrop);
  EXPECT_EQ(samples(3), kRoundsToJudge);
  EXPECT_FALSE(racers[3].racing);
  EXPECT_TRUE(racers[1].racing);
}

TEST_F(RaceTest, HowMuchSlowerIsFarIsASetting) {
  settings.drop_ratio = 1.5;
  EXPECT_TRUE(race({100, 151, 150}));
  EXPECT_EQ(samples(1), kRoundsToDrop);
  EXPECT_EQ(samples(2), kRoundsToJudge);
}

TEST_F(RaceTest, WhatMayBeAsFastStaysHoweverSlowItsMedian) {
  settings.iters = 20;
  script([this](int id) {
    return id == 0 ? 100.0 : 50.0 + 100 * static_cast<double>(runner.samples_of(1) % 3);
  });
  EXPECT_TRUE(race({100, 100}));
  EXPECT_TRUE(dropped.empty());
  EXPECT_EQ(samples(1), 20);
}

TEST_F(RaceTest, TheAnchorMayLeaveAndIsMeasuredAllTheSame) {
  EXPECT_TRUE(race({200, 100, 100}));
  EXPECT_THAT(dropped, ElementsAre(0));
  EXPECT_EQ(samples(0), kRoundsToJudge);
  EXPECT_EQ(racers[0].relative.size(), static_cast<std::size_t>(kRoundsToDrop));
  EXPECT_THAT(racers[0].relative, Each(1.0));
  EXPECT_THAT(racers[1].relative, Each(0.5));
}

TEST_F(RaceTest, SamplesCountRelativeToTheAnchorOfTheirBlock) {
  // 20 racers are two blocks, of 15 and of 5, each with a sample of the anchor; the clock of the
  // second is three times as slow.
  const auto cost_us = [this](int) {
    const std::size_t at = (runner.timed.size() - 1) % 22;
    return at < 16 ? 100.0 : 300.0;
  };
  script(cost_us);
  EXPECT_TRUE(race(std::vector<double>(21, 100)));
  EXPECT_TRUE(dropped.empty());
  EXPECT_EQ(samples(0), 2 * kRoundsToJudge);
  for (std::size_t i = 1; i < racers.size(); ++i) {
    ASSERT_EQ(samples(i), kRoundsToJudge);
    ASSERT_THAT(racers[i].relative, Each(1.0)) << i;
  }
}

TEST_F(RaceTest, AFullBlockIsOne) {
  EXPECT_TRUE(race(std::vector<double>(16, 100)));
  EXPECT_EQ(samples(0), kRoundsToJudge);
}

TEST_F(RaceTest, GoesThroughTheRacersInAnotherOrderEachRound) {
  race(std::vector<double>(5, 100));
  std::set<std::vector<int>> orders;
  std::set<std::ptrdiff_t> places_of_the_anchor;
  for (auto begin = runner.timed.begin(); begin != runner.timed.end(); begin += 5) {
    EXPECT_EQ(std::set<int>(begin, begin + 5).size(), 5U);
    orders.emplace(begin, begin + 5);
    places_of_the_anchor.insert(std::find(begin, begin + 5, 0) - begin);
  }
  EXPECT_GT(orders.size(), 4U);
  EXPECT_GT(places_of_the_anchor.size(), 2U);
}

TEST_F(RaceTest, ASampleIsOfOneLaunch) {
  repeats = 25;
  race({100, 100});
  EXPECT_THAT(racers[1].scores, Each(100.0));
}

TEST_F(RaceTest, AClockThatStandsStillGivesRatiosAllTheSame) {
  EXPECT_TRUE(race({0, 0}));
  EXPECT_THAT(racers[1].relative, Each(1.0));
}

TEST_F(RaceTest, WithNobodyToRaceAgainstEightSamplesAreEnough) {
  EXPECT_TRUE(race({100}));
  EXPECT_EQ(samples(0), kRoundsToJudge);
}

TEST_F(RaceTest, AloneItTakesNoMoreSamplesThanItMay) {
  settings.iters = 3;
  EXPECT_TRUE(race({100}));
  EXPECT_EQ(samples(0), 3);
}

TEST_F(RaceTest, WithoutTimeItSaysThatItIsNotOver) {
  settings.budget = std::chrono::milliseconds(0);
  EXPECT_FALSE(race({100}));
  EXPECT_FALSE(race({100, 100}));
  EXPECT_TRUE(runner.timed.empty());
}

TEST_F(RaceTest, EndsBehindTheSamplesThatWereAskedForTogetherWhenItsShareIsSpent) {
  settings.budget = std::chrono::milliseconds(10);
  script([this](int id) {
    if (runner.timed.size() == 5) runner.now_us += 4000;
    return id == 0 ? 100.0 : 101.0;
  });
  EXPECT_FALSE(race({100, 101}, 0.4));
  EXPECT_EQ(runner.timed.size(), 6U);
}

TEST_F(RaceTest, IsNotOverWhenTheTimeEndsBeforeTheLastRoundDoes) {
  settings.stop = [this] { return runner.timed.size() == 2 * kRoundsToJudge - 2; };
  EXPECT_FALSE(race({100, 100}));
}

TEST_F(RaceTest, WhoFailsLeavesWithItsFailureAndTheOthersGoOn) {
  script([this](int id) {
    if (id == 2 && runner.samples_of(2) == 3) fail_as(TrialOutcome::kCrashed, "gone");
    return 100.0;
  });
  EXPECT_TRUE(race({100, 100, 100}));
  EXPECT_THAT(dropped, ElementsAre(2));
  EXPECT_EQ(racers[2].failure, "gone");
  EXPECT_EQ(racers[2].failed_as, TrialOutcome::kCrashed);
  EXPECT_EQ(samples(2), 2);
  EXPECT_EQ(samples(1), kRoundsToJudge);
}

TEST_F(RaceTest, WithoutItsAnchorItIsNotOver) {
  script([this](int id) {
    if (id == 0 && runner.samples_of(0) == 3) fail_as(TrialOutcome::kFailed, "gone");
    return 100.0;
  });
  EXPECT_FALSE(race({100, 100}));
  EXPECT_THAT(dropped, ElementsAre(0));
}

TEST_F(RaceTest, LeavesOutTheSlowestWhereThereIsNoTimeToJudgeThem) {
  // A round may take 0.9 * 16 ms / 8 = 1800 us: the anchor's 5 * 100 and the three fastest. The
  // fourth would have to be gone by half of them.
  settings.budget = std::chrono::milliseconds(16);
  repeats = 5;
  EXPECT_FALSE(race({100, 90, 95, 80, 75, 85}));
  ASSERT_GE(dropped.size(), 2U);
  EXPECT_THAT((std::vector<std::size_t>{dropped[0], dropped[1]}), ElementsAre(1, 2));
  EXPECT_EQ(samples(1), 0);
  EXPECT_EQ(samples(2), 0);
  for (const std::size_t stays : {0U, 3U, 4U, 5U}) EXPECT_GE(samples(stays), kRoundsToDrop);
}

TEST_F(RaceTest, WhatThereIsJustTimeForRaces) {
  settings.budget = std::chrono::milliseconds(16);
  settings.iters = 1;
  race({300, 300, 300, 900});
  EXPECT_THAT(dropped, testing::IsEmpty());
  runner.timed.clear();
  racers.clear();
  runner.now_us = 0;
  race({300, 300, 300, 901});
  EXPECT_THAT(dropped, ElementsAre(3));
}

TEST_F(RaceTest, OfEqualEstimatesTheFirstRace) {
  settings.budget = std::chrono::milliseconds(16);
  settings.iters = 1;
  race(std::vector<double>(10, 300));
  EXPECT_THAT(dropped, ElementsAre(6, 7, 8, 9));
}

TEST_F(RaceTest, TwoRaceWhateverTimeThereIs) {
  settings.budget = std::chrono::milliseconds(1);
  race({1e4, 3e4, 2e4, 4e4});
  ASSERT_FALSE(dropped.empty());
  EXPECT_EQ(dropped[0], 3U);
  EXPECT_EQ(std::count(dropped.begin(), dropped.end(), 1U), 0);
}

TEST_F(RaceTest, WarmsUpEachRacerAndKeepsNoneOfThoseSamples) {
  settings.warmup = 5;
  EXPECT_TRUE(race({100, 100}));
  EXPECT_EQ(runner.timed.size(), 2U * (5 + kRoundsToJudge));
  EXPECT_EQ(samples(0), kRoundsToJudge);
  EXPECT_EQ(samples(1), kRoundsToJudge);
}

TEST_F(RaceTest, WarmsUpForATenthOfItsTimeAtMost) {
  settings.warmup = 100;
  settings.budget = std::chrono::milliseconds(100);
  repeats = 10;
  EXPECT_TRUE(race({100, 100}));
  EXPECT_EQ(runner.timed.size(), 2U * (5 + kRoundsToJudge)) << "10 ms are five times both";
  settings.budget = std::chrono::milliseconds(0);
  runner.timed.clear();
  EXPECT_FALSE(race_on());
  EXPECT_TRUE(runner.timed.empty());
}

TEST_F(RaceTest, WhoFailsWhileItWarmsUpLeaves) {
  settings.warmup = 2;
  script([](int id) { return id == 1 ? fail_as(TrialOutcome::kFailed, "cold") : 100.0; });
  EXPECT_TRUE(race({100, 100, 100}));
  EXPECT_THAT(dropped, ElementsAre(1));
  EXPECT_EQ(runner.samples_of(1), 1);
}

TEST_F(RaceTest, AScoreIsTheMedianOrTheEstimateBeforeAnySample) {
  const tuning::Racer anchor = racer(0, 200);
  tuning::Racer one = racer(1, 150);
  EXPECT_EQ(one.score(anchor), 0.75);
  one.relative = {3, 1, 2};
  EXPECT_EQ(one.score(anchor), 2);
}

TEST_F(RaceTest, ABudgetIsSpentByShares) {
  settings.budget = std::chrono::milliseconds(10);
  const tuning::Budget budget(settings);
  EXPECT_EQ(budget.remaining_us(0.5), 5000);
  runner.now_us = 4999;
  EXPECT_FALSE(budget.spent(0.5));
  runner.now_us = 5000;
  EXPECT_TRUE(budget.spent(0.5));
  EXPECT_FALSE(budget.spent(0.6));
  EXPECT_EQ(budget.elapsed().count(), 5000);
  settings.stop = [] { return true; };
  EXPECT_TRUE(budget.spent(1));
}

}  // namespace
}  // namespace attune::test
