#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include <attune/core/error.hpp>
#include <attune/core/parallel_for.hpp>

#include "thread_pool.hpp"

namespace attune {
namespace {

/// The process's pool. A child of fork() has none of its parent's threads and starts with a new
/// one; the parent's is left as it was, in the middle of whatever it did.
class ProcessPool {
 public:
  ProcessPool() {
    renew();
    pthread_atfork(nullptr, nullptr, renew);
  }
  ~ProcessPool() { delete pool_.exchange(nullptr); }
  ProcessPool(const ProcessPool&) = delete;
  ProcessPool& operator=(const ProcessPool&) = delete;

  /// Null when the program is past its end.
  static ThreadPool* get() {
    static ProcessPool process_pool;
    return pool_.load(std::memory_order_acquire);
  }

 private:
  static void renew() { pool_ = new ThreadPool(std::max(1, usable_cores() - 1)); }

  static inline constinit std::atomic<ThreadPool*> pool_{nullptr};
};

using Body = FunctionRef<void(std::int64_t)>;

constinit thread_local const HostThreads* in_force = nullptr;

void run_on_own_pool(std::int64_t tasks, std::int64_t threads, Body body) {
  ThreadPool* const pool = threads > 1 ? ProcessPool::get() : nullptr;
  if (pool == nullptr) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  pool->run(tasks, static_cast<int>(threads - 1), body);
}

/// A pool of the program's is not trusted with exceptions, which OpenMP's threads do not pass on,
/// nor to run every task.
void run_on_host_pool(const HostPool& pool, std::int64_t tasks, std::int64_t threads, Body body) {
  std::atomic<bool> failed = false;
  std::atomic<std::int64_t> ended = 0;
  std::exception_ptr error;
  const auto run = [&](std::int64_t task) noexcept {
    if (task < 0 || task >= tasks) return;
    if (!failed.load(std::memory_order_relaxed)) {
      try {
        body(task);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
    ended.fetch_add(1, std::memory_order_release);
  };
  pool(tasks, static_cast<int>(threads), run);
  const std::int64_t run_tasks = ended.load(std::memory_order_acquire);
  if (error) std::rethrow_exception(error);
  if (run_tasks != tasks) {
    throw ExecutionError(str("parallel_for: the program's pool returned when ", run_tasks, " of ",
                             tasks, " tasks were run"));
  }
}

}  // namespace

ThreadsScope::ThreadsScope(const HostThreads* threads) noexcept : outer_(in_force) {
  if (threads != nullptr) in_force = threads;
}
ThreadsScope::~ThreadsScope() { in_force = outer_; }

void parallel_for(std::int64_t tasks, int max_threads, Body body) {
  const HostThreads* const host = in_force;
  const int most = host == nullptr ? usable_cores() : std::min(host->most, usable_cores());
  const auto threads = std::min<std::int64_t>({tasks, max_threads, most});
  if (host == nullptr || threads <= 1) return run_on_own_pool(tasks, threads, body);
  static const HostThreads alone{.most = 1};
  const auto task_alone = [&](std::int64_t task) {
    const ThreadsScope scope(&alone);
    body(task);
  };
  if (!host->pool) return run_on_own_pool(tasks, threads, task_alone);
  run_on_host_pool(host->pool, tasks, threads, task_alone);
}

}  // namespace attune
