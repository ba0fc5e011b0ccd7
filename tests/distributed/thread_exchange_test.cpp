// Ranks that are threads: what each sends arrives at all, and who waits in vain is told.
#include <atomic>
#include <cstdint>
#include <thread>

#include <gmock/gmock.h>

#include <attune/core/error.hpp>
#include <attune/distributed/staged_exchange.hpp>
#include <attune/distributed/thread_exchange.hpp>

namespace attune::test {
namespace {

using distributed::Exchange;
using distributed::ThreadExchange;
using std::chrono::milliseconds;

template <class Work>
void on_threads(std::vector<std::unique_ptr<Exchange>>& ranks, Work&& work) {
  std::vector<std::jthread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&work, &rank] { work(*rank); });
}

TEST(ThreadExchange, GathersInTheOrderOfRanksRoundAfterRound) {
  for (const int size : {1, 2, 5, 8}) {
    auto ranks = ThreadExchange::make(size);
    std::atomic<int> wrong = 0;
    on_threads(ranks, [&](Exchange& rank) {
      for (std::int64_t round = 0; round < 300; ++round) {
        const std::int64_t ours = 1000 * round + rank.rank();
        std::vector<std::int64_t> all(static_cast<std::size_t>(rank.size()), -1);
        rank.all_gather(&ours, all.data(), sizeof ours, nullptr);
        for (int from = 0; from < rank.size(); ++from) {
          wrong += all[static_cast<std::size_t>(from)] == 1000 * round + from ? 0 : 1;
        }
      }
    });
    EXPECT_EQ(wrong, 0) << size;
  }
}

TEST(ThreadExchange, OfNothingIsABarrier) {
  auto ranks = ThreadExchange::make(3);
  std::atomic<int> came = 0, early = 0;
  on_threads(ranks, [&](Exchange& rank) {
    std::this_thread::sleep_for(milliseconds(10 * rank.rank()));
    ++came;
    rank.all_gather(nullptr, nullptr, 0, nullptr);
    early += came == 3 ? 0 : 1;
  });
  EXPECT_EQ(early, 0);
}

TEST(ThreadExchange, DifferentSizesAreAnErrorOnEveryRank) {
  auto ranks = ThreadExchange::make(3);
  std::atomic<int> refused = 0;
  on_threads(ranks, [&](Exchange& rank) {
    const std::int64_t zeros[3] = {};
    std::int64_t room[9];
    try {
      rank.all_gather(zeros, room, rank.rank() == 1 ? 16 : 8, nullptr);
    } catch (const InvalidArgument&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 3);
}

TEST(ThreadExchange, WhoeverWaitsForARankThatDoesNotComeIsTold) {
  auto ranks = ThreadExchange::make(4, milliseconds(50));
  std::atomic<int> told = 0;
  on_threads(ranks, [&](Exchange& rank) {
    if (rank.rank() == 2) return;
    const char byte = 'x';
    char room[4];
    try {
      rank.all_gather(&byte, room, 1, nullptr);
    } catch (const ExecutionError&) {
      ++told;
    }
  });
  EXPECT_EQ(told, 3);
  const char late = 'x';
  char room[4];
  EXPECT_THROW(ranks[2]->all_gather(&late, room, 1, nullptr), ExecutionError);
}

TEST(StagedExchange, GathersMemoryOfADevice) {
  auto ranks = ThreadExchange::make(3);
  std::atomic<int> wrong = 0;
  on_threads(ranks, [&](Exchange& host) {
    distributed::StagedExchange rank(host, cpu_device());
    for (std::int64_t round = 0; round < 20; ++round) {
      const std::int64_t ours[] = {round, rank.rank()};
      std::int64_t all[6] = {};
      rank.all_gather(ours, all, sizeof ours, nullptr);
      for (int from = 0; from < rank.size(); ++from) {
        wrong += all[2 * from] == round && all[2 * from + 1] == from ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadExchange, NeedsARank) { EXPECT_THROW(ThreadExchange::make(0), InvalidArgument); }

}  // namespace
}  // namespace attune::test
