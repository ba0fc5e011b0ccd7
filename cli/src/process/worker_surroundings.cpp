#include "process/worker_surroundings.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <thread>

#include <attune/core/error.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

int check(int result, const char* what) {
  if (result < 0) throw ExecutionError(str(what, ": ", std::strerror(errno)));
  return result;
}

/// Moves a descriptor to a number of its own, and puts `other` in its place.
Descriptor replace(int number, Descriptor other) {
  constexpr int kFirstFree = 10;
  Descriptor moved(check(::fcntl(number, F_DUPFD_CLOEXEC, kFirstFree), "fcntl"));
  check(::dup2(other.number(), number), "dup2");
  return moved;
}

/// By the links of the folder that has one of each: proc(5) counts them as a file system's folders.
/// A walk through it would take longer than a short launch.
std::int64_t count_threads() {
  struct stat tasks {};
  return ::stat("/proc/self/task", &tasks) == 0 ? static_cast<std::int64_t>(tasks.st_nlink) : 0;
}

/// What has been written to standard output since the last time, or "".
std::string take_output() {
  std::cout.flush();
  std::fflush(stdout);
  struct stat status {};
  if (::fstat(STDOUT_FILENO, &status) != 0 || status.st_size == 0) return "";
  std::array<char, 60> bytes;
  const ssize_t count = ::pread(STDOUT_FILENO, bytes.data(), bytes.size(), 0);
  static_cast<void>(::ftruncate(STDOUT_FILENO, 0));
  static_cast<void>(::lseek(STDOUT_FILENO, 0, SEEK_SET));
  return std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
}

}  // namespace

WorkerEnds settle_in() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::ofstream("/proc/self/oom_score_adj") << "1000";
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  WorkerEnds ends;
  ends.commands = replace(
      STDIN_FILENO, Descriptor(check(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null")));
  ends.replies = replace(
      STDOUT_FILENO, Descriptor(check(memfd_create("attune-output", MFD_CLOEXEC), "memfd_create")));
  return ends;
}

void limit_memory(std::int64_t bytes) {
  malloc_trim(0);
  // Of what can be written: address space that is only set aside, as allocators do for each thread,
  // is no memory. In pages: size, resident, shared, text, library, data; proc(5).
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  if (!file) return;
  const auto most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(RLIMIT_DATA, &limit);
}

void Surroundings::before() { threads_ = count_threads(); }

std::string Surroundings::after(const std::string& name, int launches) {
  // A pool of threads grows when it is first needed; that is no leak.
  static const std::int64_t pool =
      64 + 2 * static_cast<std::int64_t>(std::thread::hardware_concurrency());
  constexpr int kTimes = 3;
  if (const std::string output = take_output(); !output.empty()) {
    return str("writes to standard output: '", printable(output), "'");
  }
  const std::int64_t more = count_threads() - threads_;
  Leavings& left = leavings_[name];
  left.threads += more;
  left.times += more >= std::max(launches, 2) ? 1 : 0;
  if (left.times < kTimes && left.threads <= pool) return "";
  return str("leaves threads behind: ", left.threads, " so far");
}

}  // namespace attune::cli
