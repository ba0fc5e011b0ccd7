// The pool by itself, with more threads than this machine may have cores: who runs which task.
#include "thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits until so many have come, so that each must have a thread of its own. False when they do
/// not.
class Rendezvous {
 public:
  explicit Rendezvous(int count) : count_(count) {}
  bool meet() {
    ++arrived_;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(20);
    while (arrived_ < count_ && Clock::now() < end) std::this_thread::yield();
    return arrived_ >= count_;
  }

 private:
  const int count_;
  std::atomic<int> arrived_ = 0;
};

TEST(ThreadPool, GivesEachHelperATaskOfItsOwn) {
  ThreadPool pool(5);
  for (int round = 0; round < 20; ++round) {
    Rendezvous all(6);
    std::atomic<int> met = 0;
    pool.run(6, 5, [&](std::int64_t) { met += all.meet() ? 1 : 0; });
    ASSERT_EQ(met, 6);
  }
}

TEST(ThreadPool, KeepsATaskWithItsThreadFromLoopToLoop) {
  ThreadPool pool(3);
  std::vector<std::thread::id> first(4);
  for (int round = 0; round < 20; ++round) {
    Rendezvous all(4);
    std::vector<std::thread::id> threads(4);
    pool.run(4, 3, [&](std::int64_t task) {
      threads[static_cast<std::size_t>(task)] = std::this_thread::get_id();
      all.meet();
    });
    if (round == 0) first = threads;
    ASSERT_EQ(threads, first);
    ASSERT_EQ(threads[0], std::this_thread::get_id()) << "task 0 is the caller's";
  }
}

TEST(ThreadPool, AsksNoMoreHelpersThanItMay) {
  ThreadPool pool(6);
  Rendezvous all(7);
  pool.run(7, 6, [&](std::int64_t) { all.meet(); });  // so that there are six, and awake
  for (const int helpers : {1, 2, 4}) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    pool.run(100, helpers, [&](std::int64_t) {
      {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
    EXPECT_LE(threads.size(), static_cast<std::size_t>(helpers) + 1);
    EXPECT_GE(threads.size(), 2U);
  }
}

TEST(ThreadPool, ALoopAsksHelpersThatAnotherDoesNot) {
  ThreadPool pool(5);
  for (int round = 0; round < 10; ++round) {
    Rendezvous all(7);  // a caller and three helpers, a caller and two
    std::atomic<int> met = 0;
    std::atomic<bool> begun = false;
    std::jthread other([&] {
      while (!begun) std::this_thread::yield();
      pool.run(3, 2, [&](std::int64_t) { met += all.meet() ? 1 : 0; });
    });
    pool.run(4, 3, [&](std::int64_t) {
      begun = true;
      met += all.meet() ? 1 : 0;
    });
    other.join();
    ASSERT_EQ(met, 7);
  }
}

TEST(ThreadPool, RunsEachTaskOnceHoweverManyThereAreForAHelper) {
  for (const int helpers : {1, 7, 80}) {  // 64 tasks have an owner at most
    ThreadPool pool(helpers);
    for (const std::int64_t tasks : {1, 2, 63, 64, 65, 66, 81, 500}) {
      for (int round = 0; round < 3; ++round) {
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
        pool.run(tasks, helpers,
                 [&](std::int64_t task) { ++runs[static_cast<std::size_t>(task)]; });
        for (const auto& count : runs) ASSERT_EQ(count, 1) << tasks << " tasks";
      }
    }
  }
}

TEST(ThreadPool, TakesLoopsWithinLoopsBeyondWhatItKeepsTrackOf) {
  ThreadPool pool(2);
  std::atomic<int> depth = 0;
  const std::function<void(int)> nest = [&](int left) {
    if (left == 0) return;
    pool.run(1, 1, [&](std::int64_t) {
      ++depth;
      nest(left - 1);
    });
  };
  for (int round = 0; round < 3; ++round) nest(20);
  EXPECT_EQ(depth, 60);
}

TEST(ThreadPool, GoesOnAfterAnException) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> begun = 0;
    try {
      pool.run(1000, 3, [&](std::int64_t task) {
        ++begun;
        if (task % 7 == 0) throw std::runtime_error(std::to_string(task));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(std::stoi(error.what()) % 7, 0);
    }
    ASSERT_LT(begun, 1000) << "what had not begun was dropped";
    std::atomic<int> sum = 0;
    pool.run(10, 3, [&](std::int64_t task) { sum += static_cast<int>(task); });
    ASSERT_EQ(sum, 45);
  }
}

TEST(ThreadPool, DoesNotWaitForAHelperThatIsBusyElsewhere) {
  ThreadPool pool(1);
  std::atomic<bool> free = false;
  std::atomic<bool> busy = false;
  std::jthread other([&] {
    pool.run(2, 1, [&](std::int64_t task) {
      if (task == 0) return;
      busy = true;
      while (!free) std::this_thread::yield();
    });
  });
  while (!busy) std::this_thread::yield();
  // Task 1 of the other loop is the only helper's, or its caller's: in either case that one is not
  // to be had.
  std::atomic<int> sum = 0;
  pool.run(10, 1, [&](std::int64_t task) { sum += static_cast<int>(task); });
  EXPECT_EQ(sum, 45);
  free = true;
}

TEST(ThreadPool, EndsWithHelpersThatSleepOrNeverWere) {
  { const ThreadPool unused(4); }
  ThreadPool slept(3);
  slept.run(4, 3, [](std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than a helper looks for work
  std::atomic<int> runs = 0;
  slept.run(4, 3, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace attune
