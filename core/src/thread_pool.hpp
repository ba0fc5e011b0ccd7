// Threads that help callers with their loops.
//
// A caller opens a region, a loop that certain helpers may join, and works on it itself. Helpers
// that are awake join at once, others are woken. When the caller finds no task left it closes the
// region and waits for those who joined, never for one that has yet to wake up: a region costs no
// more than its own tasks. So a caller whose helpers are all busy, or gone since a fork, does
// everything alone.
//
// Task 0 is the caller's, task i the i-th helper's, and only those beyond are taken by whoever
// comes first. So a loop that is run again finds its data in the caches of the same cores.
//
// A helper that runs out of work looks for more for a while before it sleeps, since the next loop
// of a model follows in microseconds and waking up takes tens of them. Where loops keep coming soon
// after helpers fell asleep it looks for longer, but leaves its core to any thread that wants it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <attune/core/function_ref.hpp>

namespace attune {

class ThreadPool {
 public:
  using Body = FunctionRef<void(std::int64_t task)>;

  /// Of at most `helpers` >= 1 threads, which are made when a loop first asks for them.
  explicit ThreadPool(int helpers);
  /// Ends the threads. No loop may be running but one that this is called from.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Runs body(0) ... body(tasks - 1) on the caller and at most `helpers` others, 1 or more and no
  /// more than the pool's. Rethrows the first exception of a task.
  void run(std::int64_t tasks, int helpers, Body body);

 private:
  static constexpr std::size_t kCacheLine = 64;
  static constexpr std::size_t kMostRegions = 16;  // at once; one more runs on its caller alone

  /// The helpers that may join a loop: first, first + 1, ... and from the last one on to 0.
  struct Asked {
    int first = 0;
    int count = 0;
  };

  /// One loop. It stays where it is when its caller has gone, so that a late helper may look.
  class Region {
   public:
    /// Whether this caller has it now, for one loop.
    bool reserve();
    void open(std::int64_t tasks, const Asked& asked, const Body& body);
    /// None when it is not open.
    Asked asked() const;
    /// Joins as helper `index` of `count`, works, and leaves. False when that one is not asked, or
    /// was there: `joined` is the number of the loop it joined last.
    bool help(int index, int count, std::uint64_t& joined);
    /// Runs task `own`, and those without an owner.
    void work(std::int64_t own) noexcept;
    /// Runs what belongs to helpers that have not come: at once those of `late`, a bit a task, and
    /// the others' after they had time to come.
    void work_for_missing(std::uint64_t late) noexcept;
    /// Waits for all who joined, and gives the region back.
    std::exception_ptr close();

   private:
    bool take(std::int64_t own);
    void run_task(std::int64_t task) noexcept;

    // The loop's number, whom it asks, and how many joined: one word, so that whoever joins, joins
    // the loop that it looked at.
    alignas(kCacheLine) std::atomic<std::uint64_t> state_{0};
    alignas(kCacheLine) std::atomic<std::uint64_t> taken_{
        0};                              // bit i: task i, of those with an owner
    std::atomic<std::int64_t> next_{0};  // of those without
    alignas(kCacheLine) std::atomic<std::uint32_t> left_{0};  // helpers that have done their share
    alignas(kCacheLine) std::atomic<bool> reserved_{false};
    std::atomic<bool> failed_{false};
    std::int64_t tasks_ = 0;
    std::int64_t owned_ = 0;  // tasks [0, owned_) have an owner
    const Body* body_ = nullptr;
    std::exception_ptr error_;
  };

  struct alignas(kCacheLine) Helper {
    std::thread thread;
    std::atomic<std::uint32_t> asleep{0};
    bool is_patient = false;  // its own: whether work came soon after it last fell asleep
    std::array<std::uint64_t, kMostRegions> joined{};  // of each region, its last loop
  };

  /// Makes threads until there are so many, or the system grants no more.
  void grow(int helpers);
  /// Those whose helpers sleep, or do not exist: a bit a task.
  std::uint64_t late(const Asked& asked) const;
  /// Some of them that sleep, who wake the others.
  void wake(const Asked& asked);
  void help_until_stopped(int index);
  /// Spins, then sleeps, until a region was opened after `seen`.
  void await_region(Helper& helper, std::uint32_t seen);

  std::array<Region, kMostRegions> regions_;
  const int most_;
  std::unique_ptr<Helper[]> helpers_;
  alignas(kCacheLine) std::atomic<std::uint32_t> opened_{0};  // regions so far
  alignas(kCacheLine) std::atomic<int> asleep_{0};            // helpers
  std::atomic<int> size_{0};                                  // helpers that exist
  std::atomic<bool> stopped_{false};
  std::mutex growing_;
};

}  // namespace attune
