// The one way that attune uses threads on a CPU.
#pragma once

#include <cstdint>

#include <attune/core/function_ref.hpp>

namespace attune {

/// Calls body(0) ... body(tasks - 1), in any order, on at most `max_threads` threads, the caller's
/// among them, and returns when all have ended. With one thread or one task it is a plain loop.
///
/// Which thread runs a task is not fixed, so a task must not depend on another. An exception leaves
/// by the caller: the first one thrown; tasks not yet begun are then dropped. May be called from
/// within a task (the tasks then share the same threads) and from several threads at once. Threads
/// are created on first use and kept, never more than usable_cores() of them.
void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t task)> body);

/// Cores this process may use: the smaller of its affinity mask and its cgroup's CPU quota, at
/// least 1.
int usable_cores();

}  // namespace attune
