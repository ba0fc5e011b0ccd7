// A note of the candidate that is running, which is found when the process or the machine does not
// survive it.
//
// The note is a small file beside the user's database, "<database>.running.<pid>.<n>". Whoever
// opens the database next for writing reads the notes of processes that have ended and quarantines
// what they were running: a program that a candidate crashes does not try that candidate each time
// it starts. Somebody may as well have killed the process, so such a suspicion holds for a week
// only.
//
// Anything may lie beside a database under such a name. A note counts when it is a regular file (no
// link to one) of at most 16 KiB, belongs to this user or to the owner of the database, and names a
// process and a candidate that could be quarantined; what is no note is left where it is.
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

/// What a candidate that runs may take along.
enum class AtRisk {
  kProcess,  // it runs in this one
  kMachine,  // it runs in another process: that this one ends proves nothing, that the machine does
};

class SuspectNote {
 public:
  /// Beside the database at `path`, in a file that was not there before; where none can be made,
  /// there are no notes.
  SuspectNote(const std::string& path, AtRisk at_risk);
  /// Removes the note.
  ~SuspectNote();
  SuspectNote(const SuspectNote&) = delete;
  SuspectNote& operator=(const SuspectNote&) = delete;

  /// `candidate` runs from now on. On the disk when it returns, where the machine is at risk.
  void runs(const QuarantineRow& candidate);
  /// Nothing runs that is not known to survive.
  void clear();

 private:
  void write(std::string_view text);

  AtRisk at_risk_;
  std::string owner_;  // the lines that say whose it is
  std::string file_;
  int descriptor_ = -1;
};

/// Calls `blame` with a row for each candidate that was running when its process, or this machine,
/// ended, and removes its note after that. `path` is the database's. Looks at 1000 files at most;
/// throws what `blame` throws, and nothing for what lies there.
void take_suspects(const std::string& path, const std::function<void(const QuarantineRow&)>& blame);

}  // namespace attune
