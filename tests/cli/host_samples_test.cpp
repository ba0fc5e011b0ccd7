// Which rounds of a measurement count, and what comes of them.
#include "suites/host_samples.hpp"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace attune::cli {
namespace {

void keep_busy(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

MeasureSettings few() {
  MeasureSettings settings;
  settings.iters = 4;
  settings.min_sample_us = 200;
  settings.budget_us = 2e4;
  return settings;
}

TEST(HostSamples, WorkThatDoesNotHaveItsCoresNeverCounts) {
  const HostWork asleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  const HostRounds rounds = take_rounds(std::span(&asleep, 1), few());
  EXPECT_EQ(rounds.kept, 0);
  ASSERT_GE(rounds.us.front().size(), 3U);  // all of them, for want of better ones
  EXPECT_GE(rounds.us.front().front(), 1000);
}

TEST(HostSamples, EveryWorkHasASampleInEveryRound) {
  const HostWork works[] = {[] { keep_busy(std::chrono::microseconds(50)); },
                            [] { keep_busy(std::chrono::microseconds(300)); }};
  const HostRounds rounds = take_rounds(works, few());
  ASSERT_EQ(rounds.us.size(), 2U);
  EXPECT_EQ(rounds.us[0].size(), rounds.us[1].size());
  for (const double us : rounds.us[0]) EXPECT_GE(us, 50);
  for (const double us : rounds.us[1]) EXPECT_GE(us, 300);
}

TEST(HostSamples, RoundsBesideADisturbanceDoNotCount) {
  // Eight runs of sixteen are disturbed, more than a sample is tried: work and probe take ten times
  // as long.
  using std::chrono::microseconds;
  std::int64_t runs = 0;
  const auto disturbed = [&] { return runs % 16 >= 8; };
  const HostWork work = [&] {
    ++runs;
    keep_busy(microseconds(disturbed() ? 5000 : 500));
  };
  std::vector<QuietProbe> probes;
  probes.emplace_back([&] { keep_busy(microseconds(disturbed() ? 1000 : 100)); });
  MeasureSettings settings = few();
  settings.iters = 12;
  settings.budget_us = 4e5;
  const HostRounds rounds = take_rounds(std::span(&work, 1), settings, probes);
  ASSERT_GE(rounds.us.front().size(), 3U);
  EXPECT_LT(rounds.kept, 1);
  if (rounds.kept == 0) GTEST_SKIP() << "others use this machine's cores all the time";
  for (const double us : rounds.us.front()) EXPECT_LT(us, 5000);
}

TEST(HostSamples, StopWhenTold) {
  MeasureSettings settings = few();
  settings.stop = [] { return true; };
  const HostWork nothing = [] {};
  EXPECT_TRUE(take_rounds(std::span(&nothing, 1), settings).us.front().empty());
}

TEST(HostSamples, ARatioIsTheMedianOverRounds) { EXPECT_EQ(median_ratio({2, 9, 8}, {1, 3, 2}), 3); }

}  // namespace
}  // namespace attune::cli
