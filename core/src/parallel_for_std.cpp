// parallel_for over std::thread: for sanitizers that do not see through TBB's synchronisation.
// Threads are made for each call, which costs tens of microseconds.
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <attune/core/parallel_for.hpp>

namespace attune {

void parallel_for(std::int64_t tasks, int max_threads, FunctionRef<void(std::int64_t)> body) {
  const auto threads = std::min<std::int64_t>({tasks, max_threads, usable_cores()});
  if (threads <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&] {
    for (std::int64_t task = next++; task < tasks; task = next++) {
      try {
        body(task);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        next = tasks;
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (std::int64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace attune
