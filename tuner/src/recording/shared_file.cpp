#include "recording/shared_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include <attune/core/error.hpp>

namespace attune::chain {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw FileError(str(path, ": ", what, ": ", std::generic_category().message(error)));
}

/// Makes the file when nothing is there, unless another process is faster.
int open_or_make(const std::string& path, FileLinks links) {
  constexpr int kFlags = O_RDWR | O_APPEND;
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) {
    const int made = open(path.c_str(), kFlags | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made >= 0) return made;
    if (errno != EEXIST) fail(path, "cannot be made", errno);
  }
  return open_regular_file(path, kFlags, links);
}

}  // namespace

SharedFile::SharedFile(const std::string& path, FileLinks links)
    : path_(path), descriptor_(open_or_make(path, links)) {}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedFile::~SharedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

SharedFile::Lock SharedFile::try_lock() {
  while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK ? Lock::kWithAnother : Lock::kNone;
  }
  return Lock::kTaken;
}

bool SharedFile::is_at_its_path() const {
  struct stat open {};
  struct stat now {};
  return fstat(descriptor_, &open) == 0 && stat(path_.c_str(), &now) == 0 &&
         now.st_ino == open.st_ino && now.st_dev == open.st_dev;
}

off_t SharedFile::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail(path_, "cannot be examined", errno);
  return status.st_size;
}

std::string SharedFile::read(off_t from, std::size_t most) const {
  std::string bytes(most, '\0');
  std::size_t count = 0;
  while (count < most) {
    const ssize_t got =
        pread(descriptor_, bytes.data() + count, most - count, from + static_cast<off_t>(count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read", errno);
    if (got == 0) break;
    count += static_cast<std::size_t>(got);
  }
  bytes.resize(count);
  return bytes;
}

void SharedFile::append(std::string_view text) {
  const off_t before = size();
  while (!text.empty()) {
    const ssize_t put = write(descriptor_, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      // Whoever has the lock is alone. What cannot be taken back is half a line, and is left out.
      static_cast<void>(ftruncate(descriptor_, before));
      fail(path_, "cannot be written", error);
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

bool SharedFile::clear() noexcept { return ftruncate(descriptor_, 0) == 0; }

SharedFile open_locked(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPollEvery{1};
  for (const auto begin = Clock::now(); Clock::now() - begin < patience;) {
    SharedFile file(path, FileLinks::kFollow);
    const SharedFile::Lock lock = file.try_lock();
    if (lock == SharedFile::Lock::kNone) throw FileError(path + ": cannot be locked");
    if (lock == SharedFile::Lock::kTaken && file.is_at_its_path()) return file;
    if (lock == SharedFile::Lock::kWithAnother) std::this_thread::sleep_for(kPollEvery);
  }
  throw FileError(str(path, ": locked by another process for more than ", patience.count(), " ms"));
}

}  // namespace attune::chain
