// The one way that attune uses threads on a CPU.
#pragma once

#include <cstdint>

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
void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t task)> body);

/// Cores this process may use: the smaller of its affinity mask and its cgroup's CPU quota, at
/// least 1.
int usable_cores();

}  // namespace attune
