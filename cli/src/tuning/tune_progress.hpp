// Progress of tunings, from the events of a context: "[2/8] T=512 H=16  17/96  best 118 us (1.42x)
// eta 1m10s".
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include <attune/core/events.hpp>

#include "output/progress.hpp"

namespace attune::cli {

/// May be told from several threads, of tunings at once: the line is of what was heard last.
class TuneProgress {
 public:
  /// `bus` outlives this. `unit`: of what is minimised, "us" for times.
  TuneProgress(EventBus& bus, std::size_t problems, std::string_view unit, bool quiet);

  void begin(std::size_t index, std::string_view problem);
  void finished(std::size_t index, std::string_view problem, std::string_view result);
  /// Removes the line, for who writes to the same terminal.
  void clear() { progress_.clear(); }

 private:
  void on_event(const Event& event);
  std::string line() const;
  std::string eta() const;

  std::mutex mutex_;  // of all below
  Progress progress_;
  std::size_t problems_;
  std::string unit_;
  std::chrono::steady_clock::time_point begin_;
  std::size_t index_ = 0;
  std::size_t done_ = 0;  // tuned, which took time; known problems did not
  std::string problem_;
  std::int64_t candidates_ = 0;
  std::int64_t settled_ = 0;
  double best_ = 0;
  EventBus::Subscription subscription_;  // last: its sink uses all of the above
};

}  // namespace attune::cli
