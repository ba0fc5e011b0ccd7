// Spaces of a million configs: which points a search proposes, and what a tuning does with them.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/point_order.hpp"
#include "search/space_search.hpp"
#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using tuning::PointOrder;
using tuning::SpaceSearch;

/// A million points, of which those are left whose digits add up to kLeast: the larger that is, the
/// fewer there are.
template <int kLeast>
struct DigitsConfig {
  using Op = Scaling;
  int a = 9, b = 9, c = 9, d = 9, e = 9, f = 9;
  friend constexpr bool operator==(const DigitsConfig&, const DigitsConfig&) = default;
  static constexpr auto axes() {
    using C = DigitsConfig;
    constexpr int kDigits[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    return std::tuple{launch_axis("a", &C::a, kDigits), launch_axis("b", &C::b, kDigits),
                      launch_axis("c", &C::c, kDigits), launch_axis("d", &C::d, kDigits),
                      launch_axis("e", &C::e, kDigits), launch_axis("f", &C::f, kDigits)};
  }
  static constexpr auto constraints() {
    using C = DigitsConfig;
    return std::tuple{constraint(
        "the digits add up to enough",
        [](int a, int b, int c, int d, int e, int f) { return a + b + c + d + e + f >= kLeast; },
        &C::a, &C::b, &C::c, &C::d, &C::e, &C::f)};
  }
};
using MillionConfig = DigitsConfig<0>;
using SparseConfig = DigitsConfig<50>;  // 210 of a million keep it

template <class Config>
double away(const Config& c) {
  return std::abs(c.a - 7) + std::abs(c.b - 4) + std::abs(c.c - 8) + std::abs(c.d - 2) +
         std::abs(c.e - 6) + std::abs(c.f - 8);
}

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
  int found = 0;
  while (const auto config = search.next()) {
    const SparseConfig digits = config_of<SparseConfig>(*config);
    ASSERT_GE(digits.a + digits.b + digits.c + digits.d + digits.e + digits.f, 50);
    search.learn(*config, 1 + away(digits));
    ++found;
  }
  EXPECT_GE(found, 200);
  EXPECT_LE(found, 210);
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
  void add_million() { registry.add(std::make_unique<Million>(world), {.platform = "test"}); }

  std::vector<std::string> texts(const TuneResult& result) const {
    std::vector<std::string> all;
    for (const Trial& trial : result.trials)
      all.push_back(text_of(*trial.candidate.kernel, trial.candidate.config));
    return all;
  }

 private:
  /// Right, and the slower the further away it is.
  class Million final : public Kernel<MillionConfig> {
   public:
    explicit Million(World& world) : world_(world) {}
    std::string_view name() const noexcept override { return "test.scaling.million"; }
    int version() const noexcept override { return 1; }
    Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
    MillionConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
    void run(const Problem& problem, const Args& args, const MillionConfig& config,
             const LaunchSite&) const override {
      world_.launch_us = 100 * (1 + away(config));
      for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
    }

   private:
    World& world_;
  };
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
