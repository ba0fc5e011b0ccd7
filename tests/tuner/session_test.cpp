// What a tuning asks of the place where candidates run, in which order, and what it makes of the
// answers.
#include <map>
#include <set>

#include <gmock/gmock.h>

#include <attune/core/log.hpp>
#include <attune/tuner/candidate_runner.hpp>

#include "tuner/tuner_fixture.hpp"

namespace attune::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tuning::Verdict;

/// A place to run candidates of tiles, which are all right, and faster the larger they are.
struct Place {
  std::function<double(int tile)> cost_us = [](int tile) { return 1000.0 / tile; };
  std::function<std::optional<Verdict>(int tile, int round)> reduced = [](int, int) {
    return std::optional<Verdict>(Verdict{});
  };
  std::function<Verdict(int tile)> full = [](int) { return Verdict{}; };
  double full_check_us = 0;  // what that takes
  std::string lost;          // device_failure()

  std::map<int, std::vector<int>> timed;  // by tile: the repeats of each sample
  std::vector<int> checked_at_full_size;  // before the first sample of the race and after it
  std::map<int, int> like;                // by tile: what it was to be like; 0: nothing
};

class PlaceRunner final : public tuning::CandidateRunner {
 public:
  PlaceRunner(World& world, Place& place) : world_(world), place_(place) {}
  std::optional<Verdict> check_reduced(const Candidate& candidate, int round) override {
    return place_.reduced(tile_of(candidate), round);
  }
  Verdict check_at_full_size(const Candidate& candidate, const Candidate* like) override {
    world_.now_us += place_.full_check_us;
    place_.checked_at_full_size.push_back(tile_of(candidate));
    place_.like[tile_of(candidate)] = like == nullptr ? 0 : tile_of(*like);
    return place_.full(tile_of(candidate));
  }
  double time_us(const Candidate& candidate, int repeats) override {
    const int tile = tile_of(candidate);
    place_.timed[tile].push_back(repeats);
    const double us = place_.cost_us(tile) * repeats;
    world_.now_us += us;
    return us;
  }
  std::string device_failure() override { return place_.lost; }

 private:
  static int tile_of(const Candidate& candidate) {
    return Kernel<TiledConfig>::unpack(candidate.config).tile;
  }
  World& world_;
  Place& place_;
};

class SessionTest : public TunerTest {
 protected:
  SessionTest() {
    settings.make_runner = [this](const tuning::Workload&) {
      return std::make_unique<PlaceRunner>(world, place);
    };
    settings.warmup = 0;
    settings.budget = std::chrono::milliseconds(2400);
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~SessionTest() override { set_log_sink({}); }

  /// Candidates of these tiles; the first is the default.
  void add_tiles(const std::vector<int>& tiles) {
    Script script{.heuristic = {.tile = tiles.front()}};
    for (const int tile : tiles) script.candidates.push_back({.tile = tile});
    add(std::move(script));
  }
  static std::string name_of(int tile) {
    return str("test.scaling.tiled tile=", tile, ",threads=1");
  }
  static const Trial& trial(const TuneResult& result, int tile) {
    return trial_of(result, name_of(tile));
  }
  Tuner::Request with_incumbent(int tile) {
    Tuner::Request with = request();
    with.incumbent = candidate("test.scaling.tiled", str("tile=", tile));
    return with;
  }
  std::set<int> checked() const {
    return {place.checked_at_full_size.begin(), place.checked_at_full_size.end()};
  }

  Place place;
};

TEST_F(SessionTest, ChecksEveryCandidateAtFullSizeWhereAQuarterOfTheBudgetIsEnough) {
  add_tiles({1, 2, 4, 8, 16, 32});
  place.full_check_us = 100'000;  // six of them are a quarter of 2.4 s
  tune();
  EXPECT_EQ(checked(), (std::set{1, 2, 4, 8, 16, 32}));
}

TEST_F(SessionTest, ElseChecksTheDefaultTheIncumbentAndTheWinnerAtFullSize) {
  add_tiles({1, 2, 4, 8, 16, 32});
  place.full_check_us = 110'000;
  const TuneResult result = tune(with_incumbent(4));
  EXPECT_EQ(winner_of(result), name_of(32));
  EXPECT_EQ(checked(), (std::set{1, 4, 32}));
  ASSERT_GE(place.checked_at_full_size.size(), 2U);
  EXPECT_EQ(place.checked_at_full_size[0], 1) << "before the race";
  EXPECT_EQ(place.checked_at_full_size[1], 4);
}

TEST_F(SessionTest, WhatIsWrongAtFullSizeDoesNotRace) {
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

TEST_F(SessionTest, AWinnerIsCheckedWithOtherInputsFirst) {
  add_tiles({1, 2, 4});
  place.reduced = [](int tile, int round) {
    return tile == 4 && round == 1 ? Verdict{TrialOutcome::kWrong, "y: too large", 0.5} : Verdict{};
  };
  const TuneResult result = tune();
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_EQ(trial(result, 4).outcome, TrialOutcome::kWrong);
  EXPECT_EQ(trial(result, 4).reason, "after the race: y: too large");
}

TEST_F(SessionTest, WhoFailsOnlyAfterTheRaceIsFollowedByTheNext) {
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

TEST_F(SessionTest, WhatCannotBeReducedIsComparedWithTheDefaultAtFullSize) {
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

TEST_F(SessionTest, ADefaultThatCannotBeReducedIsComparedWithNothing) {
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

TEST_F(SessionTest, MoreThanTwiceAsSlowAsTheFastestIsNotRaced) {
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

TEST_F(SessionTest, SlowIsWhatIsSlowerThanTheFastestOfAllBefore) {
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 1 ? 150.0 : tile == 2 ? 100.0 : 250.0; };
  const TuneResult result = tune();
  EXPECT_EQ(trial(result, 4).samples, 1);
}

TEST_F(SessionTest, TheIncumbentRacesHoweverSlow) {
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 4 ? 900.0 : 100.0; };
  const TuneResult result = tune(with_incumbent(4));
  EXPECT_GT(trial(result, 4).samples, 1);
}

TEST_F(SessionTest, RepeatsALaunchUntilASampleLastsLongEnough) {
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

TEST_F(SessionTest, ProbesAgainWhileLaunchesGetFaster) {
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

TEST_F(SessionTest, WhatFailsWhenItIsFirstTimedDoesNotRace) {
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

TEST_F(SessionTest, AProbeThatIsDisturbedDoesNotCount) {
  add_tiles({1});
  settings.min_sample_us = 200;
  int calls = 0;
  place.cost_us = [&](int) { return ++calls == 2 ? 1000.0 : 50.0; };
  tune();
  EXPECT_EQ(place.timed[1].back(), 4);
}

TEST_F(SessionTest, ALaunchThatTakesATwentiethOfTheBudgetIsProbedOnce) {
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

TEST_F(SessionTest, ASampleLastsLongerOnTheHostThanOnADevice) {
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

TEST_F(SessionTest, ALaunchOfNoTimeIsRepeatedABoundedNumberOfTimes) {
  add_tiles({1});
  place.cost_us = [](int) { return 0.0; };
  tune();
  EXPECT_EQ(place.timed[1].back(), 100'000);
}

TEST_F(SessionTest, AdmitsCandidatesForHalfOfItsBudget) {
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

TEST_F(SessionTest, TriesTheIncumbentWithoutTimeButNotWhenSomebodyWaits) {
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

TEST_F(SessionTest, WhoIsStoppedIsNotCheckedAgain) {
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

TEST_F(SessionTest, WhoIsStoppedChecksAWinnerThatNeverWas) {
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

TEST_F(SessionTest, WhoeverFailsInTheDuelIsSettled) {
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

TEST_F(SessionTest, ADefaultThatFailsInTheDuelHasLost) {
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

TEST_F(SessionTest, TheWinnerIsHeldAgainstTheIncumbentToo) {
  // 2 % faster than the default, 1 % faster than what is stored.
  add_tiles({1, 2, 4});
  place.cost_us = [](int tile) { return tile == 1 ? 102.5 : tile == 2 ? 101.0 : 100.0; };
  EXPECT_EQ(winner_of(tune()), name_of(4));
  const TuneResult result = tune(with_incumbent(2));
  EXPECT_EQ(winner_of(result), name_of(2));
  EXPECT_TRUE(result.incumbent_kept);
  EXPECT_EQ(trial(result, 2).outcome, TrialOutcome::kOk);
}

TEST_F(SessionTest, AnIncumbentThatIsTheDefaultIsKeptWhenItWins) {
  add_tiles({1, 2});
  place.cost_us = [](int) { return 100.0; };
  EXPECT_FALSE(tune().incumbent_kept);
  EXPECT_TRUE(tune(with_incumbent(1)).incumbent_kept);
}

TEST_F(SessionTest, StopsWhereTheDeviceIsLost) {
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

TEST_F(SessionTest, AnIncumbentIsNotKeptOnADeviceThatIsLost) {
  add_tiles({1, 2});
  place.reduced = [this](int, int) {
    place.lost = "bus error";
    return Verdict{TrialOutcome::kCrashed, "gone"};
  };
  const TuneResult result = tune(with_incumbent(2));
  EXPECT_EQ(result.winner, -1);
  EXPECT_FALSE(result.incumbent_kept);
}

TEST_F(SessionTest, TellsOfEachTrialWhenItIsSettled) {
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

TEST_F(SessionTest, SaysHowFarEachIsFromTheDefaultAndHowItSpread) {
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
