// The right to measure on a device: two measurements at once spoil both.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include <attune/core/device.hpp>

#include "recording/shared_file.hpp"

namespace attune::chain {

/// Held until destroyed: in this process by a mutex, and among processes by a lock on the file
/// "<folder>/attune-<device>.lock" (of a GPU, its "uuid:" feature), which the system gives back
/// when its holder dies. An empty folder, one that cannot be written, or something else than a file
/// under that name is no hindrance: then there is only the mutex. The file says its holder's
/// number; one that says something else is locked as well, and left as it is.
class MeasuringLock {
 public:
  /// Nothing else that the folder serves is to measure on `device`. Without `wait` only when nobody
  /// does; with it, says whom it waits for and goes on until `stop` says so.
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
