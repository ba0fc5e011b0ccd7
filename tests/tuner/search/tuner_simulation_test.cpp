// The tuner against "25 ms of warm-up and 100 ms each", on a simulated machine whose clock drifts
// and whose samples have outliers and a heavy tail: how much slower its choice is than the best,
// and what the search costs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tuner/search/tuner_fixture.hpp"

namespace attune::test {
namespace {

struct IndexedConfig {
  using Op = Scaling;
  int tens = 0;
  int ones = 0;
  friend constexpr bool operator==(const IndexedConfig&, const IndexedConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("tens", &IndexedConfig::tens, {0, 1, 2, 3, 4, 5}),
                      launch_axis("ones", &IndexedConfig::ones, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})};
  }
  std::size_t index() const { return static_cast<std::size_t>(10 * tens + ones); }
};

/// What a launch costs, candidate by candidate: some crowd within a percent of the best, as spaces
/// of configs have it, the others are up to twice as slow.
std::vector<double> draw_costs(std::size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> best_us(5, 200);
  std::uniform_int_distribution<std::size_t> crowd(1, count / 3);
  std::exponential_distribution<double> behind(4);
  std::vector<double> over_best;
  for (std::size_t i = crowd(random); i > 0; --i)
    over_best.push_back(0.001 * static_cast<double>(i));
  while (over_best.size() + 1 < count) over_best.push_back(0.01 + std::min(behind(random), 1.0));
  over_best.push_back(0);
  std::shuffle(over_best.begin(), over_best.end(), random);
  const double best = best_us(random);
  for (double& cost : over_best) cost = best * (1 + cost);
  return over_best;
}

/// How a machine disturbs samples.
struct Disturbance {
  double noise = 0;       // standard deviation of a sample, relative
  double outliers = 0;    // how often a sample is disturbed, by a Pareto-distributed factor
  double drift = 0;       // standard deviation of the clock's wandering, relative
  double drift_us = 2e5;  // how long the wandering remembers
};

/// The factor of the samples of one machine: an Ornstein-Uhlenbeck process times noise and tail.
class Machine {
 public:
  Machine(const Disturbance& by, std::uint64_t seed) : by_(by), random_(seed) {}

  double factor(double now_us) {
    const double keep = std::exp(-(now_us - then_us_) / by_.drift_us);
    then_us_ = now_us;
    wander_ = keep * wander_ + by_.drift * std::sqrt(1 - keep * keep) * normal_(random_);
    double factor = std::exp(wander_ + by_.noise * normal_(random_));
    if (uniform_(random_) < by_.outliers) {
      constexpr double kTail = 1.5;  // heavy: the mean exists, the variance does not
      factor *= std::pow(1 - uniform_(random_), -1 / kTail);
    }
    return factor;
  }

 private:
  Disturbance by_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  double then_us_ = 0;
  double wander_ = 0;
};

/// Candidate i takes costs[i].
class SimulatedKernel final : public Kernel<IndexedConfig> {
 public:
  SimulatedKernel(World& world, std::vector<double> costs, std::size_t standard)
      : world_(world), costs_(std::move(costs)), standard_(standard) {}
  std::string_view name() const noexcept override { return "test.simulated"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  Support fits(const Problem&, const DeviceInfo&, const IndexedConfig& config) const override {
    return config.index() < costs_.size() ? Support::yes()
                                          : Support::no(refused::kConfig, "not of this world");
  }
  IndexedConfig heuristic_config(const Problem&, const DeviceInfo&) const override {
    return {static_cast<int>(standard_ / 10), static_cast<int>(standard_ % 10)};
  }
  void run(const Problem& problem, const Args& args, const IndexedConfig& config,
           const LaunchSite&) const override {
    world_.launch_us = costs_[config.index()];
    for (std::int64_t i = 0; i < problem.rows; ++i) args.y[i] = 2 * args.x[i];
  }

 private:
  World& world_;
  std::vector<double> costs_;
  std::size_t standard_;
};

struct Outcome {
  double regret = 0;  // of the choice, relative to the best
  double share = 0;   // of the time that 125 ms for each candidate would have taken
};

/// One search on one machine.
Outcome search(std::size_t count, const Disturbance& by, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<double> costs = draw_costs(count, random);
  World world;
  Machine machine(by, seed + 1);
  world.disturb = [&] { return machine.factor(world.now_us); };
  const FakeDevice device(world);
  Registry registry;
  registry.add_op<Scaling>();
  const std::size_t standard = std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  registry.add(std::make_unique<SimulatedKernel>(world, costs, standard), {.platform = "test"});

  Tuner::Settings settings;
  settings.now = [&] { return world.now(); };
  settings.budget = std::chrono::seconds(10);
  settings.seed = seed;
  const ScalingProblem problem;
  Tuner::Request request;
  request.op = registry.find_op("scaling");
  request.problem = ProblemRef::of<Scaling>(problem);
  request.device = &device;
  request.kernels = registry.kernels("scaling");
  const TuneResult result = Tuner(settings).tune(request);

  const Candidate& winner = result.trials.at(static_cast<std::size_t>(result.winner)).candidate;
  const double chosen = costs[Kernel<IndexedConfig>::unpack(winner.config).index()];
  constexpr double kUsual = 125e3;
  return {chosen / *std::min_element(costs.begin(), costs.end()) - 1,
          world.now_us / (kUsual * static_cast<double>(count))};
}

struct Summary {
  double mean_regret = 0, p95_regret = 0, share = 0;
};

Summary search_many(const Disturbance& by) {
  constexpr std::size_t kCounts[] = {10, 20, 40, 60};
  constexpr std::uint64_t kWorlds = 40;
  std::vector<double> regrets;
  double share = 0;
  for (const std::size_t count : kCounts) {
    for (std::uint64_t world = 0; world < kWorlds; ++world) {
      const Outcome outcome = search(count, by, 1000 * world + count);
      regrets.push_back(outcome.regret);
      share += outcome.share;
    }
  }
  std::sort(regrets.begin(), regrets.end());
  const auto searches = static_cast<double>(regrets.size());
  Summary summary;
  summary.mean_regret = std::accumulate(regrets.begin(), regrets.end(), 0.0) / searches;
  summary.p95_regret = regrets[static_cast<std::size_t>(0.95 * searches)];
  summary.share = share / searches;
  std::printf(
      "noise %.3f outliers %.2f drift %.2f: regret mean %.2f %% p95 %.2f %%, time %.1f %%\n",
      by.noise, by.outliers, by.drift, 100 * summary.mean_regret, 100 * summary.p95_regret,
      100 * summary.share);
  return summary;
}

class TunerSimulation : public testing::TestWithParam<Disturbance> {};

TEST_P(TunerSimulation, FindsWhatIsFastInATenthOfTheTime) {
  const Summary summary = search_many(GetParam());
  EXPECT_LE(summary.mean_regret, 0.005);
  EXPECT_LE(summary.p95_regret, 0.02);
  EXPECT_LE(summary.share, 0.1);
}

INSTANTIATE_TEST_SUITE_P(
    Machines, TunerSimulation,
    testing::Values(Disturbance{.noise = 0.005}, Disturbance{.noise = 0.015, .outliers = 0.01},
                    Disturbance{.noise = 0.015, .outliers = 0.01, .drift = 0.03},
                    Disturbance{.noise = 0.015, .outliers = 0.05, .drift = 0.1},
                    Disturbance{.noise = 0.03, .outliers = 0.1, .drift = 0.03}));

}  // namespace
}  // namespace attune::test
