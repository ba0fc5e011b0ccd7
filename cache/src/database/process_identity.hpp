// Which process this is, so that another one can tell whether it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace attune {

struct ProcessIdentity {
  std::int64_t pid = 0;
  std::int64_t started =
      0;             // clock ticks after boot: tells a process from a later one with the same pid
  std::string boot;  // the boot and the pid namespace that these numbers belong to; "" when unknown
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

ProcessIdentity this_process();

/// Whether a process can have this number; others mean groups of processes to kill(2).
bool may_be_a_process(std::int64_t pid);

/// True when `process` has certainly ended. Of another machine's, boot's or container's processes
/// nothing is certain.
bool has_ended(const ProcessIdentity& process);

}  // namespace attune
