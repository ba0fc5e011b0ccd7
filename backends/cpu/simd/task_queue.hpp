// Tasks shared among threads of which each has memory of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <attune/core/parallel_for.hpp>

namespace attune::cpu::simd {

/// Calls body(thread, first, last) until all tasks [0, tasks) were run, on `threads` threads >= 1,
/// each under a number of its own. Which of them runs a task is not fixed.
///
/// Sequences differ in length, so threads take tasks as they go; a few at a time where there are
/// many, since short ones end sooner than a counter travels between cores.
template <class Body>
void run_task_queue(std::int64_t tasks, std::int64_t threads, const Body& body) {
  if (threads == 1) return body(0, 0, tasks);
  constexpr std::int64_t kTurns = 16;  // of each thread
  const std::int64_t grain = std::max<std::int64_t>(1, tasks / (threads * kTurns));
  std::atomic<std::int64_t> next{0};
  parallel_for(threads, static_cast<int>(threads), [&](std::int64_t thread) {
    for (;;) {
      const std::int64_t first = next.fetch_add(grain, std::memory_order_relaxed);
      if (first >= tasks) return;
      body(thread, first, std::min(first + grain, tasks));
    }
  });
}

}  // namespace attune::cpu::simd
