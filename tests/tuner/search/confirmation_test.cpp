// The last word between two candidates: what the challenger has to show, and in how many samples.
#include "search/confirmation.hpp"

#include <gtest/gtest.h>

#include "tuner/search/scripted_runner.hpp"

namespace attune::test {
namespace {

constexpr int kChallenger = 1, kHolder = 2;
constexpr int kSequencesInABatch = 8, kSamplesInASequence = 4;

class ConfirmationTest : public testing::Test {
 protected:
  ConfirmationTest() {
    runner.cost_us = [this](int id) {
      const auto sequence = (runner.timed.size() - 1) / kSamplesInASequence;
      return id == kHolder ? 100.0 : 100 * ratio(static_cast<int>(sequence));
    };
  }

  bool is_faster() {
    const tuning::Budget budget(settings);
    const tuning::Racer anchor = racer(0, 100);
    return tuning::is_faster(runner, settings, budget, challenger, baseline, anchor, margin);
  }
  double batches() const {
    return static_cast<double>(runner.timed.size()) / kSequencesInABatch / kSamplesInASequence;
  }

  /// Sees to it that time is up after so many sequences.
  void allow(int sequences) {
    settings.stop = [this, sequences] {
      return runner.timed.size() >= static_cast<std::size_t>(sequences * kSamplesInASequence);
    };
  }

  ScriptedRunner runner;
  Tuner::Settings settings = settings_on(runner);
  double margin = 0.015;
  tuning::Racer challenger = racer(kChallenger);
  tuning::Racer baseline = racer(kHolder);
  /// Challenger over baseline, by sequence.
  std::function<double(int sequence)> ratio = [](int) { return 0.9; };
};

TEST_F(ConfirmationTest, ThreeBatchesWonAreEnough) {
  EXPECT_TRUE(is_faster());
  EXPECT_EQ(batches(), 3);
}

TEST_F(ConfirmationTest, IsLostAtOnceWithoutAnySequenceThatShowsTheMargin) {
  ratio = [](int) { return 0.99; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(batches(), 1);
}

TEST_F(ConfirmationTest, OneBatchLostIsEnoughToLose) {
  // Of 40 sequences 32 are won by far: only the batches tell that a neighbour had a part in it.
  for (const int lost : {0, 1, 2}) {
    runner.timed.clear();
    ratio = [=](int sequence) { return sequence / kSequencesInABatch == lost ? 1.02 : 0.8; };
    EXPECT_FALSE(is_faster()) << lost;
    EXPECT_EQ(batches(), lost + 1);
  }
}

TEST_F(ConfirmationTest, ABatchWithoutADifferenceIsLost) {
  ratio = [](int sequence) { return sequence / kSequencesInABatch == 1 ? 1.0 : 0.5; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(batches(), 2);
}

TEST_F(ConfirmationTest, IsLostWhenMostSequencesFallShortOfTheMargin) {
  // Two of five show the margin and all are below 1, so that nothing but the median speaks against
  // it.
  ratio = [](int sequence) { return sequence % 5 < 2 ? 0.97 : 0.99; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(batches(), 5);
}

TEST_F(ConfirmationTest, IsLostWhenTheIntervalReachesToOne) {
  // Three of eight sequences are no faster, in every batch.
  ratio = [](int sequence) { return sequence % kSequencesInABatch < 3 ? 1.0 : 0.9; };
  EXPECT_FALSE(is_faster());
  EXPECT_EQ(batches(), 5);
}

TEST_F(ConfirmationTest, ExactlyTheMarginIsEnough) {
  margin = 0.5;
  ratio = [](int) { return 0.5; };
  EXPECT_TRUE(is_faster());
}

TEST_F(ConfirmationTest, AlternatesSoThatADriftFavoursNeither) {
  is_faster();
  const std::vector<int> first_two(runner.timed.begin(), runner.timed.begin() + 8);
  EXPECT_EQ(first_two, (std::vector<int>{kChallenger, kHolder, kHolder, kChallenger,  //
                                         kHolder, kChallenger, kChallenger, kHolder}));
}

TEST_F(ConfirmationTest, TheShorterSampleOfTwoCounts) {
  // One of the challenger's two samples of each sequence is disturbed.
  runner.cost_us = [this](int id) {
    if (id == kHolder) return 100.0;
    return runner.samples_of(kChallenger) % 2 == 0 ? 90.0 : 300.0;
  };
  EXPECT_TRUE(is_faster());
}

TEST_F(ConfirmationTest, WithoutTimeOnlyWhatWasMuchFasterInTheRaceWins) {
  allow(0);
  baseline.relative = {1.0};
  challenger.relative = {0.9};  // 1.1 * 0.9 < 1
  EXPECT_TRUE(is_faster());
  challenger.relative = {0.92};
  EXPECT_FALSE(is_faster());
  settings.drop_ratio = 2;
  challenger.relative = {0.5};
  EXPECT_TRUE(is_faster()) << "by as much as drops a loser from the race";
  baseline.relative = {0.9};  // of the anchor, which is neither
  EXPECT_FALSE(is_faster());
  EXPECT_TRUE(runner.timed.empty());
}

TEST_F(ConfirmationTest, WhenTheTimeEndsTheSequencesMustSayTheSameAsTheRace) {
  allow(3);
  baseline.relative = {1.0};
  challenger.relative = {0.5};
  ratio = [](int) { return 0.8; };
  EXPECT_TRUE(is_faster());
  runner.timed.clear();
  ratio = [](int sequence) { return sequence == 1 ? 0.95 : 0.8; };
  EXPECT_FALSE(is_faster());
  runner.timed.clear();
  challenger.relative = {0.95};
  ratio = [](int) { return 0.5; };
  EXPECT_FALSE(is_faster());
}

TEST_F(ConfirmationTest, SequencesOfEarlierBatchesCountWhenTheTimeEnds) {
  allow(kSequencesInABatch + 1);
  baseline.relative = {1.0};
  challenger.relative = {0.5};
  ratio = [](int sequence) { return sequence == 0 ? 0.95 : 0.8; };
  EXPECT_FALSE(is_faster());
}

TEST_F(ConfirmationTest, WhoFailsHasLost) {
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
  EXPECT_EQ(baseline.failure, "gone");
}

TEST_F(ConfirmationTest, LeavesTheTimeOfThreeBatches) {
  baseline.sample_us = 700;
  EXPECT_EQ(tuning::confirmation_us(baseline), 3 * 8 * 4 * 700.0);
}

}  // namespace
}  // namespace attune::test
