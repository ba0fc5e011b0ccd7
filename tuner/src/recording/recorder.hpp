// Which problems nothing was tuned for, and how often they came: ATTUNE_RECORD.
//
// One JSON object a line: the problem as a SPEC, and what is known of the calls.
//
//   {"op":"recurrent_attention","B":1,"T":512,...,"dtype":"bf16","recorded":{"device_class":
//    "cpu:...","platform":"auto","answer":"heuristic","hits":12}}
//
// Several lines of one problem add up. Each process appends a line when a problem is new to it, and
// again whenever its count has doubled and when the process ends, so that of a process that is
// killed at most half the count of a problem is missing, and no problem. Lines are appended under
// the file's lock, whole or not at all; any number of processes may share a file. At 1, 2, 4, ...
// MiB it is rewritten with one line a problem (a new file that takes its place, with its mode and
// owner, and with the lines of others as they were), past 16 MiB nothing is added. Which files are
// recordings, and are added to: attune/tuner/recording.hpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <attune/core/function_ref.hpp>
#include <attune/core/selection.hpp>

#include "telemetry/exit_hook.hpp"

namespace attune::chain {

/// What is written of a problem besides its count.
struct RecordedCall {
  std::string op;       // whose kernels serve it
  std::string problem;  // its text, exact
  std::string device_class;
  std::string platform;  // that was asked for
  std::string answer;    // "heuristic", "bucket", "neighbour" or "stale"
};

class Recorder {
 public:
  /// Nothing is opened or made before the first count.
  explicit Recorder(std::string path);
  /// Writes what is not yet written.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// A call that nothing was tuned for; `describe` is asked when the problem is new. Past 10,000
  /// problems a process new ones are left out. Never throws: what cannot be written is said in the
  /// log, once, and recording ends.
  void count(const SelectionKey& key, FunctionRef<RecordedCall()> describe) noexcept;

  /// The same for a problem that was counted before; another one is not counted.
  void count_again(const SelectionKey& key) noexcept;

  /// Writes what is not yet written. This is done at the end of the process, too.
  void flush() noexcept;

 private:
  struct Entry {
    std::string line;  // up to the count
    std::uint64_t hits = 0;
    std::uint64_t written = 0;
  };
  void add(Entry& entry);
  void write(Entry& entry);
  void start_anew_after_fork();

  const std::string path_;
  std::mutex mutex_;
  pid_t process_;
  bool failed_ = false;
  bool full_ = false;
  std::map<std::string, Entry, std::less<>> entries_;  // by the key's bytes
  telemetry::ExitHook exit_hook_;                      // last: it uses all of the above
};

}  // namespace attune::chain
