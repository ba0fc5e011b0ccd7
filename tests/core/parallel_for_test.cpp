#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/parallel_for.hpp>

namespace attune {
namespace {

TEST(ParallelFor, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 64}) {
    std::vector<std::atomic<int>> runs(1000);
    parallel_for(1000, threads, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST(ParallelFor, TakesNoTasks) {
  parallel_for(0, 4, [](std::int64_t) { FAIL(); });
}

TEST(ParallelFor, WithOneThreadIsALoopInOrder) {
  std::vector<std::int64_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(5, 1, [&](std::int64_t task) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, ThrowsTheTasksException) {
  EXPECT_THROW(parallel_for(100, 4,
                            [](std::int64_t task) {
                              if (task == 17) throw std::runtime_error("17");
                            }),
               std::runtime_error);
}

TEST(ParallelFor, MayBeNestedAndCalledFromManyThreads) {
  std::atomic<int> sum = 0;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      parallel_for(8, 2, [&](std::int64_t) { parallel_for(8, 2, [&](std::int64_t) { ++sum; }); });
    });
  }
  callers.clear();
  EXPECT_EQ(sum, 4 * 8 * 8);
}

TEST(ParallelFor, DropsWhatHasNotBegunAfterAnException) {
  std::atomic<int> runs = 0;
  EXPECT_THROW(parallel_for(100'000, 4,
                            [&](std::int64_t) {
                              ++runs;
                              throw std::runtime_error("each");
                            }),
               std::runtime_error);
  EXPECT_LE(runs, 4);
  parallel_for(4, 4, [&](std::int64_t) { ++runs; });  // and goes on as if nothing had been
}

TEST(ParallelFor, TakesMoreCallersThanItHasThreads) {
  std::atomic<int> sum = 0;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 40; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) parallel_for(3, 3, [&](std::int64_t) { ++sum; });
    });
  }
  callers.clear();
  EXPECT_EQ(sum, 40 * 50 * 3);
}

TEST(ParallelFor, WakesThreadsThatSleep) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> arrived = 0;
    // Ends only when both tasks run at the same time, which takes a second thread.
    if (usable_cores() > 1) {
      parallel_for(2, 2, [&](std::int64_t) {
        ++arrived;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      });
      EXPECT_EQ(arrived, 2);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ParallelFor, SeesWhatTasksOfOtherThreadsWrote) {
  std::vector<std::int64_t> values(64);
  for (std::int64_t round = 1; round <= 2000; ++round) {
    parallel_for(
        64, 4, [&](std::int64_t task) { values[static_cast<std::size_t>(task)] += round * task; });
    ASSERT_EQ(values[63], 63 * round * (round + 1) / 2);
  }
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow threads over a fork
TEST(ParallelFor, WorksInAForkedChild) {
  const auto sum = [] {
    std::atomic<int> total = 0;
    parallel_for(100, 4, [&](std::int64_t task) { total += static_cast<int>(task); });
    return total.load();
  };
  ASSERT_EQ(sum(), 4950);
  const pid_t child = fork();
  if (child == 0) _exit(sum() == 4950 && sum() == 4950 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum(), 4950);
}
#endif

}  // namespace
}  // namespace attune
