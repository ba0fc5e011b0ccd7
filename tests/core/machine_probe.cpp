// Says what a process takes its machine to be, how many threads it makes, and on how many a loop of
// at most three runs. TEST_CORES is the number of cores that it may run on, whatever there are.
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#include <attune/core/device.hpp>
#include <attune/core/parallel_for.hpp>

/// In the place of the C library's. A sanitizer may ask before its own functions can be called, so
/// the number is read without any.
extern "C" int sched_getaffinity(pid_t /*pid*/, std::size_t size, cpu_set_t* set) noexcept {
  std::size_t cores = 0;
  for (const char* digit = std::getenv("TEST_CORES"); digit != nullptr && *digit != '\0'; ++digit) {
    cores = 10 * cores + static_cast<std::size_t>(*digit - '0');
  }
  CPU_ZERO_S(size, set);
  for (std::size_t core = 0; core < cores; ++core) CPU_SET_S(2 * core, size, set);
  return 0;
}

namespace {

std::ptrdiff_t tasks_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

}  // namespace

int main() {
  std::thread([] {}).join();  // with the first of them a sanitizer starts its own
  const std::ptrdiff_t not_ours = tasks_of_process() - 1;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  attune::parallel_for(60, 3, [&](std::int64_t) {
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  // A loop within each task of a loop, so that every helper is asked for that there may be.
  attune::parallel_for(8, 64,
                       [](std::int64_t) { attune::parallel_for(8, 64, [](std::int64_t) {}); });
  const std::ptrdiff_t tasks = tasks_of_process() - not_ours;
  const attune::DeviceInfo info = attune::read_cpu_info();
  std::printf("usable=%d cores=%d threads=%zu tasks=%td l1=%lld l2=%lld l3=%lld class=%s name=%s\n",
              attune::usable_cores(), info.cores, threads.size(), tasks,
              static_cast<long long>(info.l1_bytes), static_cast<long long>(info.l2_bytes),
              static_cast<long long>(info.l3_bytes), info.device_class.c_str(), info.name.c_str());
  return 0;
}
