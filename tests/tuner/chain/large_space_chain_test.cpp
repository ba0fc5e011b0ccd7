// What the chain does with kernels of a million configs: where their search begins, and what is
// stored of it.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tuner/chain/chain_fixture.hpp"
#include "tuner/million_kernel.hpp"

namespace attune::test {
namespace {

class ChainLargeSpaceTest : public ChainTest {
 protected:
  ChainLargeSpaceTest() {
    registry.add(std::make_unique<MillionKernel>(world), {.platform = "test"});
  }
};

TEST_F(ChainLargeSpaceTest, ASearchBeginsWithWhatNearProblemsWereTunedTo) {
  const std::string config = "a=0,b=1,c=2,d=3,e=4,f=5";
  write(row(config, "test.scaling.million"));
  problem.rows = 200;
  settings.policy.problem_budget = std::chrono::milliseconds(50);
  listen();
  EXPECT_EQ(select().tier, Tier::kAutotune);
  const std::vector<SeenEvent> trials = seen_of(EventKind::kTrial);
  EXPECT_LT(trials.size(), 100U);
  EXPECT_TRUE(std::any_of(trials.begin(), trials.end(),
                          [&](const SeenEvent& trial) { return trial.config == config; }));
  EXPECT_EQ(seen_of(EventKind::kTuneStarted).at(0).candidates, 1'000'000);
}

TEST_F(ChainLargeSpaceTest, OfThousandsOfTrialsTheFastestAreStored) {
  settings.policy.problem_budget = std::chrono::seconds(20);
  select();
  const ConfigRow written = rows_on_disk().at(0);
  EXPECT_EQ(written.config, "a=7,b=4,c=8,d=2,e=6,f=8");
  EXPECT_GT(written.candidates_tried, 3000);
  const std::vector<TrialRow> trials =
      ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly).trials(row_key());
  EXPECT_EQ(trials.size(), 2000U);
  EXPECT_TRUE(std::any_of(trials.begin(), trials.end(), [&](const TrialRow& trial) {
    return trial.config == written.config && trial.outcome == "ok";
  }));
}

}  // namespace
}  // namespace attune::test
