// Running a part of a test in processes of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

namespace attune::test {

/// Forks; the child ends with 0 when body() returns true, with 1 when it returns false or throws.
inline pid_t start_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    status = body() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  _exit(status);
}

/// Whether the child ended with 0.
inline bool wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline bool in_child(const std::function<bool()>& body) { return wait_for(start_child(body)); }

/// Runs body(0) ... body(count - 1) at once, each in a process; how many of them succeeded.
inline int in_children(int count, const std::function<bool(int)>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_child([&, i] { return body(i); }));
  }
  int good = 0;
  for (const pid_t child : children) good += wait_for(child) ? 1 : 0;
  return good;
}

}  // namespace attune::test
