// Which process this is, so that another one can tell whether it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace attune {

struct ProcessIdentity {
  std::int64_t pid = 0;
  /// Clock ticks after boot, which tells it from a later process with the same pid.
  std::int64_t started = 0;
  /// The boot and the pid namespace that these numbers belong to; "" when unknown.
  std::string boot;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

ProcessIdentity this_process();

/// Whether a process can have this number. (To kill(2), others mean groups of processes.)
bool may_be_a_process(std::int64_t pid);

/// True when `process` has certainly ended. Of another machine's, boot's or container's processes
/// nothing is certain.
bool has_ended(const ProcessIdentity& process);

}  // namespace attune
