// Whether a process has ended: certain of those of this boot and pid namespace, and of no others.
#include "database/process_identity.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

#include <gtest/gtest.h>

namespace attune {
namespace {

/// A process that waits until it is killed.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) pause();
  }
  ~Sleeper() { end(); }
  pid_t pid() const { return pid_; }
  /// Ends it, but leaves it to be waited for.
  void kill_only() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void end() {
    if (ended_) return;
    ended_ = true;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
  bool ended_ = false;
};

ProcessIdentity identity_of(const Sleeper& process, std::int64_t started) {
  ProcessIdentity identity = this_process();
  identity.pid = process.pid();
  identity.started = started;
  return identity;
}

/// What a process says of itself.
std::int64_t started_by_itself() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessIdentity self = this_process();
    const bool is_it = self.pid == getpid() && !has_ended(self);
    const std::int64_t started = is_it ? self.started : -1;
    _exit(write(ends[1], &started, sizeof started) == sizeof started ? 0 : 1);
  }
  std::int64_t started = 0;
  EXPECT_EQ(read(ends[0], &started, sizeof started), static_cast<ssize_t>(sizeof started));
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return started;
}

TEST(ProcessIdentity, OfThisProcessSaysThatItLives) {
  const ProcessIdentity self = this_process();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_GT(self.started, 0);
  EXPECT_FALSE(self.boot.empty());
  EXPECT_FALSE(has_ended(self));
  EXPECT_EQ(self, this_process());
  EXPECT_GE(started_by_itself(), self.started);
}

TEST(ProcessIdentity, OfAnotherLivesUntilItEndsWhetherOrNotItIsWaitedFor) {
  Sleeper other;
  // Started in the same tick as this test, or in one soon after it.
  const std::int64_t now = started_by_itself();
  ProcessIdentity identity = identity_of(other, now);
  for (identity.started = now - 100; identity.started <= now && has_ended(identity);) {
    ++identity.started;
  }
  ASSERT_LE(identity.started, now) << "no start fits";
  EXPECT_FALSE(has_ended(identity));
  other.kill_only();
  EXPECT_TRUE(has_ended(identity));
  other.end();
  EXPECT_TRUE(has_ended(identity));
}

TEST(ProcessIdentity, OfAnEarlierProcessWithThePidOfThisOneHasEnded) {
  ProcessIdentity earlier = this_process();
  --earlier.started;
  EXPECT_TRUE(has_ended(earlier));
}

TEST(ProcessIdentity, OfAnotherMachineBootOrContainerIsUncertain) {
  Sleeper other;
  ProcessIdentity identity = identity_of(other, 1);
  ASSERT_TRUE(has_ended(identity));
  identity.boot = "elsewhere";
  EXPECT_FALSE(has_ended(identity));
  identity.boot.clear();
  EXPECT_FALSE(has_ended(identity));
}

TEST(ProcessIdentity, OfANumberThatNoProcessHasIsUncertain) {
  constexpr std::int64_t kMost = std::numeric_limits<pid_t>::max();
  EXPECT_TRUE(may_be_a_process(1));
  EXPECT_TRUE(may_be_a_process(kMost));
  for (const std::int64_t pid :
       {std::int64_t{0}, std::int64_t{-1}, kMost + 1, kMost + 1 + getpid()}) {
    EXPECT_FALSE(may_be_a_process(pid)) << pid;
    ProcessIdentity identity = this_process();
    identity.pid = pid;
    EXPECT_FALSE(has_ended(identity)) << pid;
  }
}

}  // namespace
}  // namespace attune
