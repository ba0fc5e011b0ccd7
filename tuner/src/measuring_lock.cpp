#include "measuring_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <map>
#include <thread>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

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
/// each process' own affair (CUDA_VISIBLE_DEVICES).
std::string file_name(const Device& device) {
  constexpr std::string_view kUuid = "uuid:";
  std::string name = str(device.info().id);
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

/// Who holds the file, as its holder wrote it.
std::string holder_of(int file) {
  std::array<char, 32> bytes{};
  const ssize_t count = ::pread(file, bytes.data(), bytes.size(), 0);
  return std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
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
  if (file_ < 0) return;
  static_cast<void>(::ftruncate(file_, 0));
  ::close(file_);
}

bool MeasuringLock::lock_file(const std::string& path, const Device& device, bool wait,
                              const std::function<bool()>& stop) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return true;
  for (bool said = false; ::flock(file, LOCK_EX | LOCK_NB) != 0;) {
    const bool taken = errno == EWOULDBLOCK;
    if (!taken || !wait || stop()) {
      ::close(file);
      return !taken;  // a file system without locks is no hindrance
    }
    if (!said) {
      log(LogLevel::kInfo,
          str("waiting for process ", holder_of(file), ", which measures on ", device.info().id));
    }
    said = true;
    std::this_thread::sleep_for(kPollEvery);
  }
  file_ = file;
  const std::string pid = str(getpid());
  static_cast<void>(::pwrite(file_, pid.data(), pid.size(), 0));
  return true;
}

}  // namespace attune::chain
