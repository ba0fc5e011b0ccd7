#include <pthread.h>

#include <algorithm>
#include <atomic>

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

}  // namespace

void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t)> body) {
  const auto threads = std::min<std::int64_t>({tasks, max_threads, usable_cores()});
  ThreadPool* const pool = threads > 1 ? ProcessPool::get() : nullptr;
  if (pool == nullptr) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  pool->run(tasks, static_cast<int>(threads - 1), body);
}

}  // namespace attune
