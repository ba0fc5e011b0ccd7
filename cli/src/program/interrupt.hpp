// Ctrl-C while something long runs: the first one asks to finish, the second one kills.
#pragma once

#include <csignal>

namespace attune::cli {

/// While one lives, SIGINT, SIGTERM and SIGHUP set a flag instead of ending the program; the second
/// signal ends it. That holds for a background job as well, whose shell had SIGINT ignored: `kill
/// -INT` is how scripts stop a tuning. An ignored SIGHUP stays ignored: nohup means it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
  struct sigaction old_hang_up_ {};
};

/// Whether one has come.
bool interrupted();

}  // namespace attune::cli
