#include "gpu_ranks.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace attune::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// What the processes of a run share until they have a communicator.
struct Meeting {
  ncclUniqueId id;
  std::atomic<bool> is_there = false;
};

bool run_rank(int number, int ranks, Meeting& meeting, const std::function<bool(Rank&)>& work) {
  setenv("CUDA_VISIBLE_DEVICES", std::to_string(number).c_str(), 1);
  ncclComm_t communicator = nullptr;
  try {
    if (number == 0) {
      if (ncclGetUniqueId(&meeting.id) != ncclSuccess) throw ExecutionError("ncclGetUniqueId");
      meeting.is_there = true;
    }
    while (!meeting.is_there) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ncclCommInitRank(&communicator, ranks, meeting.id, number) != ncclSuccess) {
      throw ExecutionError(str("ncclCommInitRank: ", ncclGetLastError(nullptr)));
    }
    bool well = false;
    {
      Rank rank(communicator);
      well = work(rank);
    }
    ncclCommDestroy(communicator);
    return well;
  } catch (const Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", number, error.what());
    if (communicator != nullptr) ncclCommAbort(communicator);
    return false;
  }
}

/// Waits for the processes until the time is up, or one has failed; then none is left.
bool all_end_well(const std::vector<pid_t>& processes, int limit_s) {
  const auto deadline = Clock::now() + std::chrono::seconds(limit_s);
  std::size_t ended = 0;
  bool well = true;
  while (well && ended < processes.size()) {
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) > 0) {
      ++ended;
      well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      continue;
    }
    if (Clock::now() > deadline) {
      std::fprintf(stderr, "not done within %d s\n", limit_s);
      well = false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!well) {
    for (const pid_t process : processes) kill(process, SIGKILL);
  }
  return well;
}

}  // namespace

bool on_ranks(int ranks, int limit_s, const std::function<bool(Rank&)>& work) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  void* const memory =
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw ExecutionError("mmap");
  Meeting& meeting = *new (memory) Meeting;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(fork());
    if (processes.back() == 0) {
      const bool well = run_rank(rank, ranks, meeting, work);
      std::fflush(nullptr);
      std::_Exit(well ? 0 : 1);
    }
  }
  return all_end_well(processes, limit_s);
}

}  // namespace attune::bench
