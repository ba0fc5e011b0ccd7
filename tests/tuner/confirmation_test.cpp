// The last word between two candidates: what the challenger has to show, and in how many samples.
#include "search/confirmation.hpp"

#include <gtest/gtest.h>

#include "tuner/scripted_runner.hpp"

namespace attune::test {
namespace {

constexpr int kChallenger = 1, kHolder = 2;
constexpr int kExchangesInABout = 8, kSamplesInAnExchange = 4;

class DuelTest : public testing::Test {
 protected:
  DuelTest() {
    runner.cost_us = [this](int id) {
      const auto exchange = (runner.timed.size() - 1) / kSamplesInAnExchange;
      return id == kHolder ? 100.0 : 100 * ratio(static_cast<int>(exchange));
    };
  }

  bool is_faster() {
    const tuning::Budget budget(settings);
    const tuning::Racer anchor = racer(0, 100);
    return tuning::is_faster(runner, settings, budget, challenger, holder, anchor, margin);
  }
  double bouts() const {
    return static_cast<double>(runner.timed.size()) / kExchangesInABout / kSamplesInAnExchange;
  }

  /// Sees to it that time is up after so many exchanges.
  void allow(int exchanges) {
    settings.stop = [this, exchanges] {
      return runner.timed.size() >= static_cast<std::size_t>(exchanges * kSamplesInAnExchange);
    };
  }

  ScriptedRunner runner;
  Tuner::Settings settings = settings_on(runner);
  double margin = 0.015;
  tuning::Racer challenger = racer(kChallenger);
  tuning::Racer holder = racer(kHolder);
  /// Challenger over holder, by exchange.
  std::function<double(int exchange)> ratio = [](int) { return 0.9; };
};

TEST_F(DuelTest, ThreeBoutsWonAreEnough) {
  EXPECT_TRUE(is_faster());
  EXPECT_EQ(bouts(), 3);
}

TEST_F(DuelTest, IsLostAtOnceWithoutAnyExchangeThatShowsTheMargin) {
  ratio = [](int) { return 0.99; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(bouts(), 1);
}

TEST_F(DuelTest, OneBoutLostIsEnoughToLose) {
  // Of 40 exchanges 32 are won by far: only the bouts tell that a neighbour had a part in it.
  for (const int lost : {0, 1, 2}) {
    runner.timed.clear();
    ratio = [=](int exchange) { return exchange / kExchangesInABout == lost ? 1.02 : 0.8; };
    EXPECT_FALSE(is_faster()) << lost;
    EXPECT_EQ(bouts(), lost + 1);
  }
}

TEST_F(DuelTest, ABoutWithoutADifferenceIsLost) {
  ratio = [](int exchange) { return exchange / kExchangesInABout == 1 ? 1.0 : 0.5; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(bouts(), 2);
}

TEST_F(DuelTest, IsLostWhenMostExchangesFallShortOfTheMargin) {
  // Two of five show the margin and all are below 1, so that nothing but the median speaks against
  // it.
  ratio = [](int exchange) { return exchange % 5 < 2 ? 0.97 : 0.99; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(bouts(), 5);
}

TEST_F(DuelTest, IsLostWhenTheIntervalReachesToOne) {
  // Three of eight exchanges are no faster, in every bout.
  ratio = [](int exchange) { return exchange % kExchangesInABout < 3 ? 1.0 : 0.9; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(bouts(), 5);
}

TEST_F(DuelTest, ExactlyTheMarginIsEnough) {
  margin = 0.5;
  ratio = [](int) { return 0.5; };
  EXPECT_TRUE(is_faster());
}

TEST_F(DuelTest, AlternatesSoThatADriftFavoursNeither) {
  is_faster();
  const std::vector<int> first_two(runner.timed.begin(), runner.timed.begin() + 8);
  EXPECT_EQ(first_two, (std::vector<int>{kChallenger, kHolder, kHolder, kChallenger,  //
                                         kHolder, kChallenger, kChallenger, kHolder}));
}

TEST_F(DuelTest, TheShorterSampleOfTwoCounts) {
  // One of the challenger's two samples of each exchange is disturbed.
  runner.cost_us = [this](int id) {
    if (id == kHolder) return 100.0;
    return runner.samples_of(kChallenger) % 2 == 0 ? 90.0 : 300.0;
  };
  EXPECT_TRUE(is_faster());
}

TEST_F(DuelTest, WithoutTimeOnlyWhatWasMuchFasterInTheRaceWins) {
  allow(0);
  holder.relative = {1.0};
  challenger.relative = {0.9};  // 1.1 * 0.9 < 1
  EXPECT_TRUE(is_faster());
  challenger.relative = {0.92};
  EXPECT_FALSE(is_faster());
  settings.drop_ratio = 2;
  challenger.relative = {0.5};
  EXPECT_TRUE(is_faster()) << "by as much as drops a loser from the race";
  holder.relative = {0.9};  // of the anchor, which is neither
  EXPECT_FALSE(is_faster());
  EXPECT_TRUE(runner.timed.empty());
}

TEST_F(DuelTest, WhenTheTimeEndsTheExchangesMustSayTheSameAsTheRace) {
  allow(3);
  holder.relative = {1.0};
  challenger.relative = {0.5};
  ratio = [](int) { return 0.8; };
  EXPECT_TRUE(is_faster());
  runner.timed.clear();
  ratio = [](int exchange) { return exchange == 1 ? 0.95 : 0.8; };
  EXPECT_FALSE(is_faster());
  runner.timed.clear();
  challenger.relative = {0.95};
  ratio = [](int) { return 0.5; };
  EXPECT_FALSE(is_faster());
}

TEST_F(DuelTest, ExchangesOfEarlierBoutsCountWhenTheTimeEnds) {
  allow(kExchangesInABout + 1);
  holder.relative = {1.0};
  challenger.relative = {0.5};
  ratio = [](int exchange) { return exchange == 0 ? 0.95 : 0.8; };
  EXPECT_FALSE(is_faster());
}

TEST_F(DuelTest, WhoFailsHasLost) {
  runner.cost_us = [](int id) {
    return id == kChallenger ? fail_as(TrialOutcome::kCrashed, "gone") : 100.0;
  };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(challenger.failure, "gone");
  EXPECT_EQ(challenger.failed_as, TrialOutcome::kCrashed);
  challenger = racer(kChallenger);
  runner.cost_us = [](int id) {
    return id == kHolder ? fail_as(TrialOutcome::kFailed, "gone") : 100.0;
  };
  EXPECT_TRUE(is_faster());
  EXPECT_EQ(holder.failure, "gone");
}

TEST_F(DuelTest, LeavesTheTimeOfThreeBouts) {
  holder.repeats = 7;
  EXPECT_EQ(tuning::duel_us(holder), 3 * 8 * 4 * 7 * 100.0);
}

}  // namespace
}  // namespace attune::test
