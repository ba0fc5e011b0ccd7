// Progress on standard error: one line that is redrawn on a terminal; elsewhere a plain line now
// and then, so that a log shows that something is happening.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "output/terminal.hpp"

namespace attune::cli {

class Progress {
 public:
  /// Log lines go above the progress line while this lives.
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Where things stand; shown at most ten times a second, or every ten seconds without a terminal.
  void update(std::string_view line);
  /// Something is finished: a line that stays.
  void finish(std::string_view line);
  /// Removes the redrawn line.
  void clear() { write_above(""); }

 private:
  using Clock = std::chrono::steady_clock;
  void write_above(std::string_view text);

  std::mutex mutex_;  // log lines come from any thread
  bool quiet_;
  Terminal terminal_;
  bool drawn_ = false;
  Clock::time_point last_;
};

}  // namespace attune::cli
