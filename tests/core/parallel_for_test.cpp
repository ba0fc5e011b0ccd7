#include <atomic>
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

}  // namespace
}  // namespace attune
