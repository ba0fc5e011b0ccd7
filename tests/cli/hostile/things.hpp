// What may stand where attune expects a file: one of each kind.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "database_states.hpp"

namespace attune::test {

/// What a thing is to attune; it decides what attune may answer.
enum class Nature {
  kNothing,         // not there
  kEmpty,           // a regular file of 0 bytes, which anybody may have made to be filled
  kDatabase,        // attune's, and attune may write to it
  kReadOnly,        // attune's, and it may not
  kForeign,         // a regular file that is not attune's
  kClosed,          // a regular file that may not be read, or that may not be reached
  kSink,            // a device that takes all that is written to it
  kFullDevice,      // one that takes nothing
  kNoFile,          // no regular file, or a link that leads to none
  kStandardOutput,  // where the program prints to: an empty file, here
};

struct Thing {
  std::string name;  // "a FIFO", with what lies beside it
  Nature nature;
  std::function<void(const std::string& path)> make;
  std::optional<DatabaseStates::State> state = {};  // of a database
  /// What it takes to make it, and not to do harm with it (private_devices.hpp).
  enum class Needs { kNothing, kRoot, kPrivateDevices } needs = Needs::kNothing;
  bool beside_nothing = false;  // it is beside the path, where nothing is
};

/// All of them; databases come from `states`, which must outlive them.
std::vector<Thing> all_things(const DatabaseStates& states);

/// Undoes what would keep a folder from being removed.
void open_closed_folders(const std::string& folder);

}  // namespace attune::test
