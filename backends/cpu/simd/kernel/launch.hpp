// Tasks of a kernel shared among threads, of which each has scratch memory of its own.
//
// Tasks write disjoint outputs, so results do not depend on the number of threads, nor on which of
// them runs a task.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <attune/core/parallel_for.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

#include "arguments.hpp"
#include "params.hpp"
#include "scratch.hpp"

namespace attune::cpu::simd {

// ---- threads ----

/// Flushes denormal operands and results of this thread to zero until the end of the scope.
///
/// A state that decays passes through the denormals on its way to zero, and on Intel each operation
/// on one costs as much as a hundred others: the recurrent kernel ran eleven times slower with
/// gates down to -40. NEON cores take denormals at full speed, so nothing is done there.
class FlushDenormals {
 public:
  FlushDenormals() {
#if defined(__x86_64__)
    saved_ = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(saved_ | kFlushToZero | kDenormalsAreZero);
#endif
  }
  ~FlushDenormals() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(saved_);
#endif
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  // Bits of MXCSR: Intel SDM volume 1, section 10.2.3.
  static constexpr unsigned kDenormalsAreZero = 1U << 6;
  static constexpr unsigned kFlushToZero = 1U << 15;
  unsigned saved_ = 0;
#endif
};

/// The most threads of a launch: the largest value of the kernels' axes.
inline constexpr std::int64_t kMaxThreads = 64;

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
/// to kMaxThreads, each under a number of its own. Which of them runs a task is not fixed.
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
  std::array<Share, kMaxThreads> shares;
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

// ---- launches ----

/// What lies where in the workspace of a launch: from the start on each thread's scratch memory,
/// then what arguments are turned into, and what a kernel reserves besides.
struct Workspace {
  std::int64_t threads = 0;
  std::int64_t scratch_floats = 0;  // each thread's, a multiple of a cache line
  ArgumentSpace arguments;
  std::size_t size = 0;  // bytes
};

/// No more threads than tasks, of `scratch_floats` each.
inline Workspace workspace_for(const ops::RecurrentAttentionProblem& problem, int threads,
                               std::int64_t tasks, std::int64_t scratch_floats, bool backward) {
  Workspace layout{.threads = std::min<std::int64_t>(threads, tasks),
                   .scratch_floats = scratch_floats,
                   .arguments = {}};
  reserve_aligned(layout.size,
                  static_cast<std::size_t>(layout.threads * scratch_floats) * sizeof(float));
  layout.arguments = reserve_arguments(problem, backward, layout.size);
  return layout;
}

/// The body of a task queue: calls run(first, last, scratch), denormals counting as zero.
template <class Run>
auto on_scratch(const Workspace& layout, std::span<std::byte> workspace, const Run& run) {
  auto* const memory = reinterpret_cast<float*>(workspace.data());  // aligned to 64 by contract
  return [&layout, &run, memory](std::int64_t thread, std::int64_t first, std::int64_t last) {
    const FlushDenormals flush_denormals;
    run(first, last, memory + thread * layout.scratch_floats);
  };
}

/// A forward pass: calls run(params, first, last, scratch) until all `tasks` were run.
template <class Run>
void launch_forward(const ops::RecurrentAttentionProblem& problem,
                    const ops::RecurrentAttentionArgs& args, const Workspace& layout,
                    std::int64_t tasks, std::span<std::byte> workspace, const Run& run) {
  if (tasks == 0) return;
  const ForwardParams params = forward_params(problem, args, layout.arguments, workspace.data());
  fill_padded_rows(params);
  const auto run_params = [&](std::int64_t first, std::int64_t last, float* scratch) {
    run(params, first, last, scratch);
  };
  const auto body = on_scratch(layout, workspace, run_params);
  // A few tokens of equally long sequences take no longer than their states take to come from
  // another core.
  constexpr std::int64_t kFewTokens = 4;
  if (problem.N == 0 && problem.T <= kFewTokens) {
    run_task_shares(tasks, layout.threads, body);
  } else {
    run_task_queue(tasks, layout.threads, body);
  }
}

/// A backward pass: calls run(params, first, last, scratch) until all `tasks` were run. `params`
/// are a kernel's own, which derive from BackwardParams.
template <class Params, class Run>
void launch_backward(const Params& params, const Workspace& layout, std::int64_t tasks,
                     std::span<std::byte> workspace, const Run& run) {
  if (tasks == 0) return;
  const auto run_params = [&](std::int64_t first, std::int64_t last, float* scratch) {
    run(params, first, last, scratch);
  };
  run_task_queue(tasks, layout.threads, on_scratch(layout, workspace, run_params));
}

}  // namespace attune::cpu::simd
