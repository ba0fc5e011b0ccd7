// The one way that attune uses threads on a CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include <attune/core/function_ref.hpp>

namespace attune {

/// Calls body(0) ... body(tasks - 1), in any order, on at most `max_threads` threads, the caller's
/// among them, and returns when all have ended. With one thread or one task it is a plain loop.
///
/// Which thread runs a task is not fixed, so a task must not depend on another. But where there are
/// no more tasks than threads, a task tends to run on the same thread in each call, and finds in
/// its core's cache what it left there. An exception leaves by the caller: the first one thrown;
/// tasks not yet begun are then dropped.
///
/// May be called from within a task and from several threads at once: each call takes the threads
/// that are idle, and none waits for any but its own tasks. Threads are created on first use and
/// kept, one fewer than usable_cores(); they take no signals, poll for work for 50 us after their
/// last and then sleep; where loops come less than 500 us apart, those that slept too early go on
/// looking for as long, yielding to any other thread. A child of fork() makes its own. Only a
/// fork() within a task is not allowed.
///
/// In a ThreadsScope the loop keeps to what that says instead.
void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t task)> body);

/// Cores this process may use: the smaller of its affinity mask and its cgroup's CPU quota, at
/// least 1.
int usable_cores();

/// A pool of the program's own that runs loops: calls task(0) ... task(tasks - 1), each once, on at
/// most `max_threads` threads, and returns when all have ended. `tasks` and `max_threads` are 2 or
/// more. `task` never throws, may run on any thread, and does not wait for another one: a pool that
/// runs them one after the other is a slow one, and no wrong one. It may be called from several
/// threads at once, though never from within a task.
///
///   options.parallel_for = [](std::int64_t tasks, int, const auto& task) {    // oneTBB
///     tbb::parallel_for(std::int64_t{0}, tasks, task);
///   };
///   options.parallel_for = [](std::int64_t tasks, int threads, const auto& task) {    // OpenMP
///     #pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
///     for (std::int64_t i = 0; i < tasks; ++i) task(i);
///   };
using HostPool =
    std::function<void(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t)> task)>;

/// What the loops of a call may use of the host.
struct HostThreads {
  int most = std::numeric_limits<int>::max();  // threads of a loop, >= 1
  HostPool pool = {};                          // runs them; empty: attune's threads
};

/// Loops of this thread keep to `threads` until the scope ends: to no more threads, and to its
/// pool. A loop that begins within a task of theirs is a plain one, so that a call takes no more
/// threads than it may, and a pool need not be re-entered. The first exception leaves by the caller
/// here, too; parallel_for() throws ExecutionError when the pool returns before all tasks were run.
/// Null leaves what is in force. Scopes end on the thread they began on, the last begun first;
/// `threads` outlives its scope.
class ThreadsScope {
 public:
  explicit ThreadsScope(const HostThreads* threads) noexcept;
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  const HostThreads* outer_;
};

}  // namespace attune
