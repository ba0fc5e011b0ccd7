// A function that is called again and again on a thread of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "telemetry/exit_hook.hpp"

namespace attune::telemetry {

/// Throws std::system_error when the thread cannot be started. A forked child has no such thread:
/// there nothing is called, and destroying the task is harmless.
class PeriodicTask {
 public:
  /// Calls `task` after each `interval`, and `at_end` last of all: when it is destroyed or the
  /// process ends. Neither may throw.
  PeriodicTask(std::chrono::milliseconds interval, std::function<void()> task,
               std::function<void()> at_end);
  ~PeriodicTask();
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;

 private:
  void work();
  void stop() noexcept;

  const std::chrono::milliseconds interval_;
  const std::function<void()> task_, at_end_;
  const pid_t process_;
  /// What the two threads share. A child cannot destroy it: the parent's thread waits in it for
  /// ever.
  struct Shared {
    std::mutex mutex;
    std::condition_variable wake;
    bool stopping = false;
  };
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<std::thread> thread_;
  std::optional<ExitHook> exit_hook_;  // last: it uses all of the above
};

}  // namespace attune::telemetry
