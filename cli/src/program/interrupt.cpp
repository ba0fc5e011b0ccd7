#include "program/interrupt.hpp"

#include <atomic>

namespace attune::cli {
namespace {

std::atomic<bool> flag = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void on_signal(int) { flag.store(true); }

}  // namespace

InterruptGuard::InterruptGuard() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  // SA_RESETHAND is what lets a second signal kill; SA_RESTART keeps writes that are under way
  // whole.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  sigaction(SIGHUP, nullptr, &old_hang_up_);
  if (old_hang_up_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // as nohup has it
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGHUP, &old_hang_up_, nullptr);
}

bool interrupted() { return flag.load(); }

}  // namespace attune::cli
