// Ranks that choose alike: what a digest is over, what freezing holds, and tuning together under
// faults.
#include <algorithm>
#include <mutex>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include <attune/cache/config_database.hpp>
#include <attune/core/version.hpp>

#include "distributed/simulated_rank.hpp"
#include "support/campaign.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using distributed::Agreement;
using distributed::ThreadExchange;
using distributed::TuneTogetherReport;
using distributed::WantedProblem;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kRanks = 8;

/// Candidates that noise orders otherwise on each rank.
Script alike() {
  Script script;
  script.cost_us = [](const TiledConfig& config) { return config.tile == 1 ? 1000.0 : 700.0; };
  return script;
}

std::vector<WantedProblem> a_list() {
  std::vector<WantedProblem> list;
  for (const std::int64_t rows : {10, 40, 160, 640}) {
    for (const std::int64_t flavour : {0, 1, 2}) {
      list.push_back(SimulatedRank::wanted(rows, flavour));
    }
  }
  return list;
}

class Ranks : public ::testing::Test {
 protected:
  void make(int count, SimulatedRank::Settings settings = {}, double noise = 0.02) {
    ranks.clear();
    for (auto& exchange : ThreadExchange::make(count, std::chrono::seconds(60))) {
      SimulatedRank::Settings own = settings;
      own.database = folder.file("rank" + std::to_string(exchange->rank()) + ".db");
      ranks.push_back(std::make_unique<SimulatedRank>(std::move(exchange), std::move(own)));
      ranks.back()->world.noise = noise;
    }
  }
  /// Each problem's choices over all ranks.
  std::set<std::string> choices(std::int64_t rows, std::int64_t flavour) const {
    std::set<std::string> all;
    for (const auto& rank : ranks) all.insert(rank->choice(rows, flavour));
    return all;
  }
  std::set<std::string> digests() const {
    std::set<std::string> all;
    for (const auto& rank : ranks) all.insert(rank->digest());
    return all;
  }
  std::vector<TuneTogetherReport> tune_together(const std::vector<WantedProblem>& wanted) {
    std::vector<TuneTogetherReport> reports(ranks.size());
    on_all(ranks, [&](SimulatedRank& rank) {
      reports[static_cast<std::size_t>(rank.exchange.rank())] = distributed::tune_together(
          rank.exchange, *rank.context, rank.device, wanted, {}, rank.tuner());
    });
    return reports;
  }

  TemporaryFolder folder;
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
};

/// The reason for all this.
TEST_F(Ranks, ThatTuneAloneDiverge) {
  make(kRanks, {.script = alike()});
  std::size_t most = 0;
  for (const std::int64_t rows : {10, 40, 160}) most = std::max(most, choices(rows, 0).size());
  EXPECT_GT(most, 1U);
  EXPECT_GT(digests().size(), 1U);
  std::vector<Agreement> agreements(ranks.size());
  on_all(ranks, [&](SimulatedRank& rank) {
    agreements[static_cast<std::size_t>(rank.exchange.rank())] =
        distributed::agree(rank.exchange, *rank.context, rank.device);
  });
  for (const Agreement& agreement : agreements) {
    EXPECT_FALSE(agreement.equal());
    EXPECT_EQ(agreement.differing, agreements[0].differing);
    EXPECT_THAT(agreement.text(), HasSubstr("of 8 choose otherwise"));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->exchange.collectives, 1);
}

TEST_F(Ranks, ThatTuneTogetherChooseAlikeForEveryProblem) {
  const int runs = campaign_length(5, 100);
  for (int run = 0; run < runs; ++run) {
    for (int rank = 0; rank < kRanks; ++rank) {
      std::filesystem::remove(folder.file("rank" + std::to_string(rank) + ".db"));
    }
    make(kRanks, {.script = alike()});
    for (const auto& rank : ranks) {
      rank->world.random.seed(static_cast<unsigned>(100 * run + rank->exchange.rank()));
    }
    const std::vector<TuneTogetherReport> reports = tune_together(a_list());
    std::size_t tuned = 0;
    for (const TuneTogetherReport& report : reports) {
      tuned += report.tuned;
      EXPECT_TRUE(report.agreement.equal()) << report.agreement.text();
      EXPECT_TRUE(report.missing.empty());
      for (const std::string& failure : report.failures) EXPECT_EQ(failure, "");
    }
    EXPECT_EQ(tuned, a_list().size()) << "each problem by one rank";
    for (const auto& rank : ranks) EXPECT_EQ(rank->exchange.collectives, 2);
    EXPECT_EQ(digests().size(), 1U);
    for (const std::int64_t rows : {10, 12, 40, 200, 640, 5000}) {
      for (const std::int64_t flavour : {0, 1, 7}) {
        EXPECT_EQ(choices(rows, flavour).size(), 1U) << rows << ' ' << flavour;
      }
    }
  }
}

TEST_F(Ranks, WithRowsOfTheirOwnEndWithOneTable) {
  make(3, {.script = alike()});
  ranks[1]->choice(10, 0);  // tunes it
  ranks[2]->choice(10, 0);
  ranks[2]->choice(77, 9);  // of no list
  const std::vector<TuneTogetherReport> reports = tune_together(a_list());
  EXPECT_EQ(reports[0].known + reports[1].known + reports[2].known + reports[0].tuned +
                reports[1].tuned + reports[2].tuned,
            a_list().size());
  EXPECT_TRUE(reports[0].agreement.equal());
  EXPECT_EQ(digests().size(), 1U);
  EXPECT_EQ(choices(10, 0).size(), 1U);
  EXPECT_EQ(choices(77, 9).size(), 1U);
}

TEST_F(Ranks, WithOtherKernelsOrPoliciesAreNamed) {
  make(4);
  Script newer;
  newer.version = 2;
  auto exchanges = ThreadExchange::make(4);
  std::vector<SimulatedRank::Settings> settings(4);
  settings[1].script = newer;
  settings[3].policy = Policy::kHeuristic;
  ranks.clear();
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<SimulatedRank>(std::move(exchanges[rank]), settings[rank]));
  }
  for (const TuneTogetherReport& report : tune_together(a_list())) {
    EXPECT_EQ(report.agreement.differing, (std::vector{1, 3}));
    EXPECT_EQ(report.agreement.text(), "ranks 1, 3 of 4 choose otherwise");
  }
}

TEST_F(Ranks, ADigestIsOverAllThatChoicesFollowFrom) {
  make(2, {.policy = Policy::kDb});
  const std::string none = ranks[0]->digest();
  EXPECT_EQ(none, ranks[1]->digest());
  ConfigRow row;
  row.key = {"scaling", "fake:1", "auto", problem_text<Scaling>({100, 0})};
  row.bucket = problem_text<Scaling>({100, 0}, true);
  row.kernel = "test.scaling.tiled";
  row.kernel_version = 1;
  row.config = "threads=1,tile=8";
  row.median_us = 10;
  row.default_us = 20;
  row.library_version = ATTUNE_VERSION;
  row.noise = NoiseGrade::kA;
  std::set<std::string> seen{none};
  const auto digest_with = [&](const ConfigRow& with) {
    ConfigDatabase(folder.file("rank0.db"), ConfigDatabase::Mode::kReadWrite).put(with);
    ranks[0]->context->reload();
    return ranks[0]->digest();
  };
  EXPECT_TRUE(seen.insert(digest_with(row)).second);
  ConfigRow other = row;
  other.config = "threads=1,tile=4";
  EXPECT_TRUE(seen.insert(digest_with(other)).second) << "another config";
  other = row;
  other.default_us = 10.1;  // neighbours take it no longer
  EXPECT_TRUE(seen.insert(digest_with(other)).second) << "another gain";
  ConfigRow elsewhere = row;
  elsewhere.key.device_class = "fake:2";
  EXPECT_FALSE(seen.insert(digest_with(elsewhere)).second) << "of another class";
}

TEST_F(Ranks, ThatAreFrozenTuneAndReadNothingMore) {
  make(1, {}, 0);
  SimulatedRank& rank = *ranks[0];
  const std::string tuned = rank.choice(100);
  rank.choice(300, 5);
  distributed::freeze(*rank.context);
  const std::string digest = rank.digest();
  const auto launches = rank.world.launches;
  EXPECT_EQ(rank.choice(100), tuned);
  EXPECT_EQ(rank.choice(100, 1), "test.scaling.tiled tile=1,threads=1") << "the heuristic";
  EXPECT_EQ(rank.choice(100, 1), "test.scaling.tiled tile=1,threads=1");
  EXPECT_EQ(rank.world.launches, launches);

  ConfigDatabase(folder.file("rank0.db"), ConfigDatabase::Mode::kReadWrite)
      .edit([](DatabaseContent& all) { all.decisions.clear(); });
  rank.context->reload();
  EXPECT_EQ(rank.choice(100), tuned);
  EXPECT_EQ(rank.digest(), digest);

  const AnyProblem problem = AnyProblem::of<Scaling>({100, 0});
  const Request request{.device = &rank.device};
  EXPECT_THROW(rank.context->retune(problem, request), InvalidArgument);
  EXPECT_THROW(rank.context->forget(problem, request), InvalidArgument);
  EXPECT_THROW(distributed::tune_together(rank.exchange, *rank.context, rank.device, {}),
               InvalidArgument);
  const PolicyScope tunes(Policy::kTune);
  EXPECT_EQ(rank.choice(100, 2), "test.scaling.tiled tile=1,threads=1");
  EXPECT_EQ(rank.world.launches, launches);
}

TEST_F(Ranks, ThatWaitInVainAreToldAndGoOnUnfrozen) {
  ranks.clear();
  for (auto& exchange : ThreadExchange::make(3, milliseconds(100))) {
    ranks.push_back(
        std::make_unique<SimulatedRank>(std::move(exchange), SimulatedRank::Settings{}));
  }
  std::atomic<int> told = 0;
  on_all(ranks, [&](SimulatedRank& rank) {
    if (rank.exchange.rank() == 1) return;
    try {
      distributed::tune_together(rank.exchange, *rank.context, rank.device, a_list(), {},
                                 rank.tuner());
    } catch (const ExecutionError&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 2);
  EXPECT_FALSE(chain_of(*ranks[0]->context).is_frozen());
}

/// Ranks that throw, are late, have rows already, want other problems, or have no database: nobody
/// hangs, each communicates twice, and all end alike or all are told.
TEST_F(Ranks, WithAnyFaultEndAlikeOrAreTold) {
  std::mt19937 random(7);
  const int runs = campaign_length(20, 1000);
  for (int run = 0; run < runs; ++run) {
    auto exchanges = ThreadExchange::make(4, std::chrono::seconds(60));
    ranks.clear();
    std::vector<std::vector<WantedProblem>> lists;
    std::vector<int> faults;
    bool other_kernels = false;
    for (auto& exchange : exchanges) {
      SimulatedRank::Settings settings{.script = alike()};
      std::vector<WantedProblem> list = a_list();
      const int fault = static_cast<int>(random() % 8);
      faults.push_back(fault);
      const std::string own = folder.file(str("run", run, "rank", exchange->rank(), ".db"));
      if (fault != 1) settings.database = own;
      if (fault == 2) {
        settings.script.compute = [](const auto&, const auto&, const auto&) {
          throw std::runtime_error("this rank is broken");
        };
      }
      if (fault == 3) {
        settings.script.compute = [inner = settings.script.compute](
                                      const auto& problem, const auto& args, const auto& config) {
          std::this_thread::sleep_for(milliseconds(1));
          inner(problem, args, config);
        };
      }
      if (fault == 4) list.resize(3);
      if (fault == 5) list.push_back(SimulatedRank::wanted(33, 3));
      if (fault == 6) settings.script.version = 2;
      other_kernels = other_kernels || fault == 6;
      ranks.push_back(std::make_unique<SimulatedRank>(std::move(exchange), settings));
      ranks.back()->world.noise = 0.02;
      ranks.back()->world.random.seed(random());
      if (fault == 7) ranks.back()->choice(10, 1);
      lists.push_back(std::move(list));
    }
    std::vector<TuneTogetherReport> reports(ranks.size());
    const auto begin = std::chrono::steady_clock::now();
    on_all(ranks, [&](SimulatedRank& rank) {
      const auto at = static_cast<std::size_t>(rank.exchange.rank());
      reports[at] = distributed::tune_together(rank.exchange, *rank.context, rank.device, lists[at],
                                               {.in_all = milliseconds(60)}, rank.tuner());
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank]->exchange.collectives, 2);
      EXPECT_EQ(reports[rank].agreement.differing, reports[0].agreement.differing);
      EXPECT_EQ(reports[rank].failures, reports[0].failures);
      const bool alone =
          std::ranges::count(reports[0].agreement.differing, static_cast<int>(rank)) > 0;
      EXPECT_TRUE(other_kernels || !alone) << "rank " << rank << " fault " << faults[rank];
    }
    // Ranks that are said to choose alike do.
    for (std::size_t a = 0; a < ranks.size(); ++a) {
      for (std::size_t b = a + 1; b < ranks.size(); ++b) {
        if (reports[0].agreement.digests[a] != reports[0].agreement.digests[b]) continue;
        EXPECT_EQ(ranks[a]->digest(), ranks[b]->digest());
        for (const std::int64_t rows : {10, 33, 160, 700}) {
          EXPECT_EQ(ranks[a]->choice(rows, 1), ranks[b]->choice(rows, 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace attune::test
