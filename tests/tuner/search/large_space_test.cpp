// Spaces of a million configs: which points a search proposes, and what a tuning does with them.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/point_order.hpp"
#include "search/space_search.hpp"
#include "tuner/million_kernel.hpp"
#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using tuning::PointOrder;
using tuning::SpaceSearch;

template <class Config>
Config config_of(const ConfigBlob& blob) {
  return Kernel<Config>::unpack(blob);
}

const ScalingProblem kProblem;

template <class Config>
SpaceSearch search_of(std::uint64_t seed) {
  return {config_space<Config>(), &kProblem, [](const ConfigBlob&) { return true; }, seed};
}

TEST(PointOrder, GivesEveryNumberOnce) {
  for (const std::uint64_t size : {1U, 2U, 3U, 10U, 1000U, 4097U}) {
    const PointOrder order(size, 3);
    std::set<std::uint64_t> numbers;
    for (std::uint64_t place = 0; place < size; ++place) {
      EXPECT_LT(order.at(place), size);
      numbers.insert(order.at(place));
    }
    EXPECT_EQ(numbers.size(), size);
  }
}

TEST(PointOrder, DiffersBySeedAndNotBetweenTwoOfOne) {
  const PointOrder one(1'000'000, 1), again(1'000'000, 1), other(1'000'000, 2);
  int same = 0;
  for (std::uint64_t place = 0; place < 1000; ++place) {
    EXPECT_EQ(one.at(place), again.at(place));
    same += one.at(place) == other.at(place) ? 1 : 0;
  }
  EXPECT_LT(same, 10);
}

TEST(SpaceSearch, ProposesNoConfigTwiceNorOneThatItWasTold) {
  SpaceSearch search = search_of<MillionConfig>(1);
  search.learn(Kernel<MillionConfig>::pack({}), 10);
  std::set<std::string> texts{to_text(to_params(MillionConfig{}))};
  for (int i = 0; i < 2000; ++i) {
    const auto config = search.next();
    ASSERT_TRUE(config.has_value());
    EXPECT_TRUE(texts.insert(to_text(to_params(config_of<MillionConfig>(*config)))).second);
    search.learn(*config, 1 + away(config_of<MillionConfig>(*config)));
  }
}

TEST(SpaceSearch, FindsTheBestOfAMillionWithinAThousandRuns) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    SpaceSearch search = search_of<MillionConfig>(seed);
    double best = 100;
    for (int runs = 0; runs < 1000; ++runs) {
      const MillionConfig config = config_of<MillionConfig>(*search.next());
      best = std::min(best, away(config));
      search.learn(Kernel<MillionConfig>::pack(config), 1 + away(config));
    }
    EXPECT_EQ(best, 0) << "seed " << seed;
  }
}

TEST(SpaceSearch, FindsTheFewOfAMillionThatKeepAConstraint) {
  SpaceSearch search = search_of<SparseConfig>(1);
  for (int found = 0; found < 60; ++found) {
    const auto config = search.next();
    ASSERT_TRUE(config.has_value());
    const SparseConfig digits = config_of<SparseConfig>(*config);
    EXPECT_GE(digits.a + digits.b + digits.c + digits.d + digits.e + digits.f, 50);
    search.learn(*config, 1 + away(digits));
  }
}

TEST(SpaceSearch, ProposesOnlyWhatMayBeTried) {
  const auto even = [](const ConfigBlob& blob) {
    return config_of<MillionConfig>(blob).a % 2 == 0;
  };
  SpaceSearch search(config_space<MillionConfig>(), &kProblem, even, 1);
  for (int i = 0; i < 200; ++i) {
    const auto config = search.next();
    ASSERT_TRUE(config.has_value());
    EXPECT_EQ(config_of<MillionConfig>(*config).a % 2, 0);
    search.learn(*config, i % 3 == 0 ? INFINITY : 1 + away(config_of<MillionConfig>(*config)));
  }
}

class LargeSpaceTest : public TunerTest {
 protected:
  void add_million() { registry.add(std::make_unique<MillionKernel>(world), {.platform = "test"}); }

  std::vector<std::string> texts(const TuneResult& result) const {
    std::vector<std::string> all;
    for (const Trial& trial : result.trials)
      all.push_back(text_of(*trial.candidate.kernel, trial.candidate.config));
    return all;
  }
};

TEST_F(LargeSpaceTest, IsSearchedWithinTheBudgetAndHasNoTrialThatDidNotRun) {
  add_million();
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), "test.scaling.million a=7,b=4,c=8,d=2,e=6,f=8");
  EXPECT_LE(world.now_us, 1.05 * 10e6);
  EXPECT_FALSE(result.complete);
  EXPECT_GT(result.trials.size(), 500U);
  for (const Trial& trial : result.trials) {
    EXPECT_NE(trial.outcome, TrialOutcome::kNotReached);
    EXPECT_GT(trial.samples, 0);
  }
}

TEST_F(LargeSpaceTest, IsSearchedAlikeByOneSeed) {
  add_million();
  settings.budget = std::chrono::seconds(1);
  const std::vector<std::string> first = texts(tune());
  world.now_us = 0;
  EXPECT_EQ(texts(tune()), first);
  settings.seed = 2;
  EXPECT_NE(texts(tune()), first);
}

TEST_F(LargeSpaceTest, BeginsWithTheDefaultTheIncumbentAndWhatNeighboursWereTunedTo) {
  add_million();
  settings.budget = std::chrono::milliseconds(200);
  Tuner::Request with = request();
  with.incumbent = candidate("test.scaling.million", "a=1");
  with.neighbours = [&] {
    return std::vector<Candidate>{candidate("test.scaling.million", "a=2"),
                                  candidate("test.scaling.million", "a=3")};
  };
  const std::vector<std::string> all = texts(tune(with));
  ASSERT_GE(all.size(), 4U);
  EXPECT_EQ(all[0], "test.scaling.million a=9,b=9,c=9,d=9,e=9,f=9");
  EXPECT_EQ(all[1], "test.scaling.million a=1,b=9,c=9,d=9,e=9,f=9");
  EXPECT_EQ(all[2], "test.scaling.million a=2,b=9,c=9,d=9,e=9,f=9");
  EXPECT_EQ(all[3], "test.scaling.million a=3,b=9,c=9,d=9,e=9,f=9");
}

TEST_F(LargeSpaceTest, IsTriedInTurnWithTheCandidatesOfOtherKernels) {
  add_million();
  add({}, -1);
  settings.budget = std::chrono::milliseconds(100);
  const std::vector<std::string> all = texts(tune());
  EXPECT_THAT(all, Contains(HasSubstr("test.scaling.tiled tile=32")));
  EXPECT_GT(all.size(), 12U + 3);  // the other kernel has twelve
}

TEST_F(LargeSpaceTest, RefusesAndAsksOfEachThatItProposes) {
  add_million();
  settings.budget = std::chrono::milliseconds(500);
  Tuner::Request with = request();
  int told = 0;
  with.refuse = [](const Candidate& candidate) {
    const MillionConfig config = config_of<MillionConfig>(candidate.config);
    return std::string(config.a == 7 ? "it hung" : "");
  };
  with.on_trial = [&](const Trial&) { ++told; };
  const TuneResult result = tune(with);
  EXPECT_EQ(winner_of(result).find("a=7"), std::string::npos);
  EXPECT_EQ(told, static_cast<int>(result.trials.size()));
}

}  // namespace
}  // namespace attune::test
