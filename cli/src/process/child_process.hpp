// This program once more, as another process: one that is run to its end, and one that is talked to
// and may come to harm.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "process/descriptor.hpp"
#include "process/lines.hpp"

namespace attune::cli {

struct FinishedProcess {
  int exit_code = 0;   // 128 + the signal when one ended it
  std::string output;  // its standard output
  double seconds = 0;
};

/// Runs `attune ARGUMENTS...` to its end; its standard error is this process's. Throws
/// ExecutionError when it cannot be started.
FinishedProcess run_to_its_end(const std::vector<std::string>& arguments);

class ChildProcess {
 public:
  /// Runs `attune ARGUMENTS...` in a process group of its own, so that Ctrl-C does not reach it.
  /// Its standard input and output are lines to and from here; its standard error is kept, for
  /// end(). Throws ExecutionError when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  /// Kills it and whatever it started.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Sends a line. When that fails it gets no more, and ends: receive() tells.
  void send(std::string_view line);

  /// The next line it sends.
  LineReader::Result receive(std::string& line, LineReader::Clock::time_point deadline,
                             const std::function<bool()>& stop) {
    return reader_.read(line, deadline, stop);
  }

  /// Waits for its end, at most a second, then kills it. How it ended, with its last words on
  /// standard error: "killed by SIGSEGV", "ended itself: exit(1); it said: ...".
  std::string end();
  /// Whether it ended for a reason outside of it, known after end(): by SIGKILL, which the system
  /// sends when memory runs out, and people do; or since a line could not be sent.
  bool ended_from_outside() const;

 private:
  bool has_ended(std::chrono::milliseconds patience) const;
  /// Kills it when it has not ended by itself, and reaps it. Whether it had.
  bool finish(std::chrono::milliseconds patience);
  std::string last_words() const;

  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
  bool sent_ = true;
  bool by_itself_ = false;  // it had ended before it was killed from here
  Descriptor to_child_;
  Descriptor from_child_;
  Descriptor errors_;  // a file in memory
  LineReader reader_{-1};
};

}  // namespace attune::cli
