#include "shared_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <attune/core/error.hpp>

namespace attune::chain {
namespace {

using Links = InputFile::Links;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw FileError(str(path, ": ", what, ": ", std::generic_category().message(error)));
}

void refuse_unless_regular(const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return;
  throw FileError(str(path, ": is ", kind_of_file(mode), ", not a regular file"));
}

/// Of a path under which nothing is: it is made, unless another process is faster.
int make(const std::string& path, int flags) {
  const int made = open(path.c_str(), flags | O_CREAT | O_EXCL, 0600);
  if (made >= 0 || errno != EEXIST) return made;
  struct stat status {};
  const bool is_link = lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
  if (is_link) throw FileError(path + ": is a symbolic link that leads nowhere");
  return open(path.c_str(), flags);
}

/// Looked at before it is opened, for opening a device is an act of its own, and again after that.
int open_regular(const std::string& path, Links links) {
  const bool follow = links == Links::kFollow;
  const int flags =
      O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW);
  struct stat status {};
  const bool there = (follow ? stat(path.c_str(), &status) : lstat(path.c_str(), &status)) == 0;
  if (!there && errno != ENOENT) fail(path, "cannot be opened", errno);
  if (there) refuse_unless_regular(path, status.st_mode);
  const int descriptor = there ? open(path.c_str(), flags) : make(path, flags);
  if (descriptor < 0) fail(path, "cannot be opened", errno);
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  close(descriptor);
  throw FileError(path + ": is not a regular file");
}

}  // namespace

SharedFile::SharedFile(const std::string& path, Links links)
    : path_(path), descriptor_(open_regular(path, links)) {}

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

}  // namespace attune::chain
