// Where attune meets files, and under which verbs: each command line that names one.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "things.hpp"

namespace attune::test {

/// What attune does with the file of a place.
enum class Use {
  kRead,         // a file of another format: tensors, specs, a plugin
  kReadSpecs,    // the same; one of 0 bytes holds no spec, which is no fault
  kReadNamed,    // a database, or its text, that the command names
  kReadUser,     // the user's database, named by --db, to read only
  kChangeUser,   // the same, to change it
  kInEffect,     // a database that the command does not name: one that cannot be used is left out
  kTuneInto,     // the user's database of ATTUNE_DB, by a command that tunes where it may
  kReplace,      // an output
  kReplacePage,  // one of many outputs
  kRecord,       // a recording, which is added to
  kRecordQuiet,  // the same, by ATTUNE_RECORD: the program goes on without
  kBeside,       // a note or a lock beside a sound database
};

struct Place {
  std::string name;  // "run --output"
  Use use;
  std::string file;  // what the thing is called there
  /// THING stands for the path of the thing, FOLDER for its folder, SCRATCH for the folder of that,
  /// INPUTS for that of sound files: rows.db, rows.jsonl, rows.csv, in.safetensors.
  std::vector<std::string> arguments;
  std::vector<std::string> environment = {};
  int done = 0;                    // exit status when the thing could be used,
  int refused = 0;                 // when it could not,
  int absent = 0;                  // and when there is none, where that is no fault
  bool by_standard_input = false;  // it is opened by a shell

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

const std::vector<Place>& all_places();

/// The file that measurements on the host lock.
std::string host_lock_name();

/// Whether the thing can be put there.
bool can_be_at(const Place& place, const Thing& thing);

/// The exit statuses that are documented for the place when the thing is there.
std::set<int> documented_statuses(const Place& place, const Thing& thing);

/// Whether the command may change the thing, or what lies beside it, when it succeeds.
bool may_change(const Place& place, const Thing& thing);

}  // namespace attune::test
