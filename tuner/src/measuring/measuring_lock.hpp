// The right to measure on a device: two measurements at once spoil both.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include <attune/core/device.hpp>

#include "recording/shared_file.hpp"

namespace attune::chain {

/// Held until destroyed: in this process a mutex, and between processes a lock on the file
/// "<folder>/attune-<device>.lock", which the system releases when its holder dies. <device> is
/// "<backend>-<uuid>" for one with a "uuid:" feature, as GPUs have, else its number with the boot
/// of its machine, "cpu_0-<boot_id>": machines that share the folder do not wait for each other.
/// Where there is no folder, it cannot be written, or something else than a file has that name,
/// there is only the mutex. The file holds the holder's process number; a file that holds anything
/// else is locked as well, and left as it is.
class MeasuringLock {
 public:
  /// Without `wait`, held() is false when somebody else measures on `device`. With it, logs whom it
  /// waits for, and gives up when `stop` says so.
  MeasuringLock(const Device& device, const std::string& folder, bool wait,
                const std::function<bool()>& stop);
  ~MeasuringLock();
  MeasuringLock(const MeasuringLock&) = delete;
  MeasuringLock& operator=(const MeasuringLock&) = delete;

  bool held() const { return held_; }

 private:
  bool lock_file(const std::string& path, const Device& device, bool wait,
                 const std::function<bool()>& stop);

  std::unique_lock<std::mutex> here_;
  std::optional<SharedFile> file_;
  bool says_who_ = false;  // the file, by our number
  bool held_ = false;
};

}  // namespace attune::chain
