// What the loops of a call may use of the host: how many threads, and whose.
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>
#include <attune/core/registry.hpp>

namespace attune {
namespace {

/// A pool with a thread for each task, that counts its loops.
class CountingPool {
 public:
  HostPool hook() {
    return [this](std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t)> task) {
      ++loops;
      most_threads = max_threads;
      std::vector<std::jthread> threads;
      for (std::int64_t i = 0; i < tasks; ++i) threads.emplace_back([&task, i] { task(i); });
    };
  }
  std::atomic<int> loops = 0;
  std::atomic<int> most_threads = 0;
};

/// The threads that run the tasks of a loop.
std::set<std::thread::id> threads_of_a_loop() {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(64, 64, [&](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads;
}

class HostThreadsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (usable_cores() < 2) GTEST_SKIP() << "every loop is a plain one on one core";
  }
};

TEST_F(HostThreadsTest, OneThreadIsTheCallers) {
  const HostThreads one{.most = 1};
  const ThreadsScope scope(&one);
  EXPECT_EQ(threads_of_a_loop(), std::set{std::this_thread::get_id()});
}

TEST_F(HostThreadsTest, AScopeEndsWithWhatWasBefore) {
  CountingPool pool;
  const HostThreads with_pool{.pool = pool.hook()};
  const HostThreads one{.most = 1};
  const ThreadsScope outer(&with_pool);
  {
    const ThreadsScope inner(&one);
    parallel_for(4, 4, [](std::int64_t) {});
    const ThreadsScope none(nullptr);
    parallel_for(4, 4, [](std::int64_t) {});
  }
  EXPECT_EQ(pool.loops, 0);
  parallel_for(4, 4, [](std::int64_t) {});
  EXPECT_EQ(pool.loops, 1);
}

TEST_F(HostThreadsTest, ThePoolRunsEachTaskOnce) {
  CountingPool pool;
  const HostThreads with_pool{.most = 2, .pool = pool.hook()};
  const ThreadsScope scope(&with_pool);
  std::vector<std::atomic<int>> runs(32);
  parallel_for(32, 64, [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_EQ(pool.loops, 1);
  EXPECT_EQ(pool.most_threads, 2);
}

TEST_F(HostThreadsTest, APlainLoopDoesNotReachThePool) {
  CountingPool pool;
  const HostThreads with_pool{.pool = pool.hook()};
  const ThreadsScope scope(&with_pool);
  parallel_for(5, 1, [](std::int64_t) {});
  parallel_for(1, 5, [](std::int64_t) {});
  parallel_for(0, 5, [](std::int64_t) {});
  EXPECT_EQ(pool.loops, 0);
}

TEST_F(HostThreadsTest, ANestedLoopStaysOnTheThreadOfItsTask) {
  CountingPool pool;
  for (const HostThreads& threads : {HostThreads{.pool = pool.hook()}, HostThreads{.most = 2}}) {
    const ThreadsScope scope(&threads);
    std::atomic<int> sum = 0;
    std::atomic<int> elsewhere = 0;
    parallel_for(4, 4, [&](std::int64_t) {
      const std::thread::id of_task = std::this_thread::get_id();
      parallel_for(8, 4, [&](std::int64_t) {
        ++sum;
        if (std::this_thread::get_id() != of_task) ++elsewhere;
      });
    });
    EXPECT_EQ(sum, 32);
    EXPECT_EQ(elsewhere, 0);
  }
  EXPECT_EQ(pool.loops, 1);
}

TEST_F(HostThreadsTest, ThePoolNeverSeesATasksException) {
  bool pool_saw_one = false;
  const HostThreads with_pool{.pool = [&](std::int64_t tasks, int, const auto& task) {
    for (std::int64_t i = 0; i < tasks; ++i) {
      try {
        task(i);
      } catch (...) {
        pool_saw_one = true;
      }
    }
  }};
  const ThreadsScope scope(&with_pool);
  int runs = 0;
  const auto body = [&](std::int64_t task) {
    ++runs;
    if (task == 3) throw std::runtime_error("3");
  };
  EXPECT_THROW(parallel_for(10, 4, body), std::runtime_error);
  EXPECT_FALSE(pool_saw_one);
  EXPECT_EQ(runs, 4) << "tasks after the exception are dropped";
}

TEST_F(HostThreadsTest, APoolThatLeavesTasksOutIsAnError) {
  const HostThreads lazy{.pool = [](std::int64_t tasks, int, const auto& task) {
    for (std::int64_t i = 0; i + 1 < tasks; ++i) task(i);
  }};
  const ThreadsScope scope(&lazy);
  try {
    parallel_for(8, 4, [](std::int64_t) {});
    FAIL() << "nothing was thrown";
  } catch (const ExecutionError& error) {
    EXPECT_STREQ(error.what(),
                 "parallel_for: the program's pool returned when 7 of 8 tasks were run");
  }
}

TEST_F(HostThreadsTest, WhatThePoolThrowsLeavesByTheCaller) {
  const HostThreads broken{
      .pool = [](std::int64_t, int, const auto&) { throw std::runtime_error("no threads"); }};
  const ThreadsScope scope(&broken);
  EXPECT_THROW(parallel_for(8, 4, [](std::int64_t) {}), std::runtime_error);
}

TEST(HostDevice, OfAllCoresHasTheClassOfTheProcess) {
  EXPECT_EQ(make_cpu_device({})->info().device_class, cpu_device().info().device_class);
  EXPECT_EQ(make_cpu_device({.most = 1 << 20})->info().device_class,
            cpu_device().info().device_class);
}

TEST(HostDevice, OfFewerThreadsHasTheClassOfAProcessThatIsRestrictedToThem) {
  const auto one = make_cpu_device({.most = 1});
  EXPECT_EQ(one->info().cores, 1);
  EXPECT_EQ(one->info().device_class, read_cpu_info(1).device_class);
  EXPECT_EQ(one->info().id, cpu_device().info().id);
  ASSERT_NE(one->threads(), nullptr);
  EXPECT_EQ(one->threads()->most, 1);
  EXPECT_EQ(cpu_device().threads(), nullptr);
}

TEST(HostDevice, NeedsAThread) {
  for (const int most : {0, -1}) {
    EXPECT_THROW(make_cpu_device({.most = most}), InvalidArgument);
  }
}

TEST(HostDevice, IsTheHostOfARegistryMadeWithIt) {
  const Registry registry(HostThreads{.most = 1});
  ASSERT_EQ(registry.devices().size(), 1U);
  EXPECT_EQ(registry.device(cpu_device().info().id).info().cores, 1);
}

}  // namespace
}  // namespace attune
