// Tasks shared among threads of which each has memory of its own.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include <attune/core/parallel_for.hpp>

namespace attune::cpu::simd {

/// The most threads of a launch: the largest value of the kernels' axes.
inline constexpr std::int64_t kMostThreads = 64;

/// Calls body(thread, first, last) for each thread's share of the tasks, and lets none take from
/// another's: for tasks that take equally long, and no longer than their data take from one core's
/// cache to another's.
template <class Body>
void run_task_shares(std::int64_t tasks, std::int64_t threads, const Body& body) {
  if (threads == 1) return body(0, 0, tasks);
  parallel_for(threads, static_cast<int>(threads), [&](std::int64_t thread) {
    body(thread, tasks * thread / threads, tasks * (thread + 1) / threads);
  });
}

/// Calls body(thread, first, last) until all tasks [0, tasks) were run, on `threads` threads from 1
/// to kMostThreads, each under a number of its own. Which of them runs a task is not fixed.
///
/// A thread begins with a share of its own, the same in every launch, so that states that stay in
/// place are found in the caches of the core that wrote them. Sequences differ in length: who is
/// done with its share takes from the others', a few tasks at a time where there are many, since
/// short ones end sooner than a counter travels between cores. Where each has one task there is
/// nothing to take but from a thread that has yet to come, and parallel_for() sees to that.
template <class Body>
void run_task_queue(std::int64_t tasks, std::int64_t threads, const Body& body) {
  if (threads == 1) return body(0, 0, tasks);
  if (tasks <= threads) return run_task_shares(tasks, threads, body);
  constexpr std::int64_t kTurns = 16;  // of each thread
  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  const std::int64_t grain = std::max<std::int64_t>(1, tasks / (threads * kTurns));
  std::array<Share, kMostThreads> shares;
  for (std::int64_t i = 0; i < threads; ++i) {
    Share& share = shares[static_cast<std::size_t>(i)];
    share.next.store(tasks * i / threads, std::memory_order_relaxed);
    share.end = tasks * (i + 1) / threads;
  }
  parallel_for(threads, static_cast<int>(threads), [&](std::int64_t thread) {
    for (std::int64_t i = 0; i < threads; ++i) {
      Share& share = shares[static_cast<std::size_t>((thread + i) % threads)];
      while (share.next.load(std::memory_order_relaxed) < share.end) {
        const std::int64_t first = share.next.fetch_add(grain, std::memory_order_relaxed);
        if (first >= share.end) break;
        body(thread, first, std::min(first + grain, share.end));
      }
    }
  });
}

}  // namespace attune::cpu::simd
