#include "measuring/measuring_lock.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <thread>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/this_machine.hpp>

namespace attune::chain {
namespace {

constexpr std::chrono::milliseconds kPollEvery{50};

std::mutex& mutex_of(const Device& device) {
  // Never destroyed: a thread may still measure while the process ends.
  static auto* const guard = new std::mutex();
  static auto* const devices = new std::map<std::string, std::mutex>();
  const std::lock_guard lock(*guard);
  return (*devices)[str(device.info().id)];
}

/// By what the device is called wherever it is seen from, where it says so: which number it has is
/// each process' own affair (CUDA_VISIBLE_DEVICES). Where it does not, as a CPU, the name says of
/// which machine it is: the folder may be one that many machines share.
std::string file_name(const Device& device) {
  constexpr std::string_view kUuid = "uuid:";
  std::string name = str(device.info().id, '-', boot_id());
  for (const std::string& feature : device.info().features) {
    if (feature.starts_with(kUuid))
      name = str(device.info().id.backend, '-', feature.substr(kUuid.size()));
  }
  name = str("attune-", name, ".lock");
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
  return name;
}

/// The file's text where that is a process' number or nothing, as holders of the lock leave it.
std::optional<std::string> holder_of(const SharedFile& file) {
  constexpr std::size_t kMostDigits = 10;
  std::string text = file.read(0, kMostDigits + 1);
  const bool is_number =
      text.size() <= kMostDigits && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace

MeasuringLock::MeasuringLock(const Device& device, const std::string& folder, bool wait,
                             const std::function<bool()>& stop)
    : here_(mutex_of(device), std::defer_lock) {
  if (wait) {
    here_.lock();
  } else if (!here_.try_lock()) {
    return;
  }
  held_ = folder.empty() || lock_file(folder + '/' + file_name(device), device, wait, stop);
}

MeasuringLock::~MeasuringLock() {
  if (says_who_) file_->clear();
}

bool MeasuringLock::lock_file(const std::string& path, const Device& device, bool wait,
                              const std::function<bool()>& stop) {
  try {
    file_.emplace(path, FileLinks::kRefuse);
    for (bool said = false;; said = true) {
      const SharedFile::Lock lock = file_->try_lock();
      if (lock == SharedFile::Lock::kTaken) break;
      if (lock == SharedFile::Lock::kNone) return true;
      if (!wait || stop()) return false;
      if (!said) {
        const std::string holder = holder_of(*file_).value_or("");
        log(LogLevel::kInfo, str("waiting for ", holder.empty() ? "another process" : "process ",
                                 holder, ", which measures on ", device.info().id));
      }
      std::this_thread::sleep_for(kPollEvery);
    }
    // A holder that was killed has left its number.
    says_who_ = holder_of(*file_).has_value() && file_->clear();
    if (says_who_) file_->append(str(getpid()));
  } catch (const FileError& error) {
    log_once(LogLevel::kDebug, error.what());
  }
  return true;
}

}  // namespace attune::chain
