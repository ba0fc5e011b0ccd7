// ATTUNE_EVENTS: what happens to be decided, and what goes wrong, as lines of JSON that processes
// share.
//
//   {"time":"2026-11-23T09:49:01.123Z","pid":4711,"event":"selected","op":"recurrent_attention",
//    "problem":"B=1 T=512 ...","device_class":"cpu:...","tier":"persistent","kernel":"simd....",
//    "version":3,"config":"tile_v=64,threads=2","reason":"a site row of ..."}
//
//   event          also has                        written
//   selected       tier                            when a problem gets this choice for the first time
//   prepared       tier, prepare_us                always
//   tune_started   candidates                      always
//   tune_finished  candidates, median_us,          always
//                  default_us, prepare_us
//   tune_skipped                                   for the first time with this reason
//   fault                                          for each candidate that was wrong, failed, crashed
//   launch_failed  tier                            always
//   database                                       for the first time with this reason
//   reloaded                                       always
//
// Where a tuning minimises something else than the time, its lines have objective, score and
// default_score in place of median_us and default_us. Fields without a value are left out. "lost"
// in a line counts events before it that could not be written. Each line is appended under the
// file's lock, whole or not at all. A file that would grow past 8 MiB becomes FILE.1, in place of
// the one before it, and a new one is begun.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_set>

#include <attune/core/events.hpp>

namespace attune::telemetry {

class EventFile {
 public:
  /// Nothing is opened or made before the first event. `events` outlives this.
  EventFile(EventBus& events, std::string path);

 private:
  using Clock = std::chrono::steady_clock;

  void on_event(const Event& event);
  bool is_repeated(const Event& event);
  void write(const Event& event);

  const std::string path_;
  std::unordered_set<std::uint64_t> told_;
  std::uint64_t lost_ = 0;
  Clock::time_point not_before_{};       // after a failure
  EventBus::Subscription subscription_;  // last: its sink uses all of the above
};

/// Appends a line, its line feed included. Throws FileError, and then the file is as it was: what
/// is there is no file of events, it cannot be written, or others hold its lock for over a second.
void append_event(const std::string& path, std::string_view line);

}  // namespace attune::telemetry
