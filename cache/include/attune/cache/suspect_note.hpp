// A note on the disk of the candidate that is running, to be found when the process or the machine
// does not survive it.
//
// The note is a small file beside the user's database, "<database>.running.<host>.<pid>.<n>".
// Whoever next opens the database for writing reads the notes of processes that have ended, and
// quarantines what they were running: a program that a candidate crashes does not crash on it at
// every start. As somebody may have killed the process, this suspicion holds for a week only.
//
// A file of such a name counts as a note when it is a regular file (not a link) of at most 16 KiB,
// belongs to this user or to the owner of the database, and names a process and a candidate that
// could be quarantined. Any other file is left as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <attune/cache/config_row.hpp>

namespace attune {

/// What a suspicion's reason begins with in a database.
inline constexpr std::string_view kSuspect = "suspect: ";
inline constexpr std::int64_t kSuspicionSeconds = std::int64_t{7} * 24 * 3600;

/// What a candidate may bring down.
enum class AtRisk {
  kProcess,  // this process, in which it runs
  kMachine,  // the machine; it runs in a worker, so the end of this process says nothing about it
};

class SuspectNote {
 public:
  /// Makes a file beside the database at `path`. Where none can be made, nothing is noted.
  SuspectNote(const std::string& path, AtRisk at_risk);
  /// Removes the note.
  ~SuspectNote();
  SuspectNote(const SuspectNote&) = delete;
  SuspectNote& operator=(const SuspectNote&) = delete;

  /// `candidate` runs from now on. Where the machine is at risk, the note is on the disk on return.
  void runs(const QuarantineRow& candidate);
  /// No candidate runs from now on, or only one that has run before.
  void clear();

 private:
  void write(std::string text);

  AtRisk at_risk_;
  std::string owner_;  // the lines that say whose it is
  std::string file_;
  int descriptor_ = -1;
};

/// For each candidate that was running when its process or this machine went down, calls `blame`
/// with the row to be quarantined and then removes the note. `path` is the database's. Looks at
/// 1000 files at most. Throws what `blame` throws, and nothing for what the files hold.
void take_suspects(const std::string& path, const std::function<void(const QuarantineRow&)>& blame);

}  // namespace attune
