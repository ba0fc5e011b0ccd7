// ATTUNE_STATS: the counters of a running process in a file that others read: a person by
// `attune stats`, a scraper such as node_exporter's textfile collector.
//
// The file is replaced as a whole, from a thread of its own: no call waits for it. Of a process
// that ends it keeps the last counters, but in a folder it is removed, so that no scraper goes on
// reporting what is over.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "telemetry/periodic_task.hpp"

namespace attune::telemetry {

class StatsFile {
 public:
  /// Writes what `text` returns to `path`, or, where that is a folder, to attune-HOST-PID.prom in
  /// it: now, every `interval`, and at the end. Files there that processes of this host left when
  /// they were killed are removed. What cannot be written is said in the log, once, and tried
  /// again.
  StatsFile(const std::string& path, std::chrono::milliseconds interval,
            std::function<std::string()> text);

 private:
  void write() const;
  void end() const;

  std::string path_;
  bool in_folder_ = false;
  std::function<std::string()> text_;
  std::optional<PeriodicTask> task_;  // last: it uses all of the above
};

}  // namespace attune::telemetry
