// parallel_for over oneTBB: one arena a thread limit, so that a caller's own TBB arena and affinity
// are respected.
#include <algorithm>

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <attune/core/parallel_for.hpp>

namespace attune {

void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t)> body) {
  const int limit = std::min(max_threads, usable_cores());
  if (tasks <= 1 || limit <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  const auto run = [&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, tasks, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) {
          for (std::int64_t task = range.begin(); task != range.end(); ++task) body(task);
        },
        tbb::simple_partitioner());
  };
  const auto threads = static_cast<int>(std::min<std::int64_t>(limit, tasks));
  if (tbb::this_task_arena::max_concurrency() == threads) {
    run();
  } else {
    tbb::task_arena(threads).execute(run);
  }
}

}  // namespace attune
