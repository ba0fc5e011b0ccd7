#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <attune/core/input_file.hpp>

namespace attune {
namespace {

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace

std::string_view kind_of_file(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "a regular file";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFLNK:
      return "a symbolic link";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "of no known kind";
  }
}

// Opening some devices is an act of its own, so what is no regular file is not opened. The check is
// made again on what was opened: the path may be another file by then.
int open_regular_file(const std::string& path, int flags, FileLinks links) {
  const bool follow = links == FileLinks::kFollow;
  struct stat status {};
  const int error = follow ? stat(path.c_str(), &status) : lstat(path.c_str(), &status);
  if (error != 0) throw FileError(str(path, ": cannot be opened: ", errno_text(errno)));
  if (!S_ISREG(status.st_mode)) {
    throw FileError(str(path, ": is not a regular file but ", kind_of_file(status.st_mode)));
  }
  flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW);
  const int descriptor = open(path.c_str(), flags);
  if (descriptor < 0) throw FileError(str(path, ": cannot be opened: ", errno_text(errno)));
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  close(descriptor);
  throw FileError(str(path, ": is not a regular file"));
}

InputFile::InputFile(const std::string& path, FileLinks links)
    : path_(path), descriptor_(open_regular_file(path, O_RDONLY, links)) {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) return;  // of what was just opened
  size_ = static_cast<std::uint64_t>(status.st_size);
  owner_ = status.st_uid;
}

InputFile::~InputFile() { close(descriptor_); }

std::size_t InputFile::read_some(std::uint64_t from, char* to, std::size_t bytes) const {
  for (;;) {
    const ssize_t got = pread(descriptor_, to, bytes, static_cast<off_t>(from));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw FileError(str(path_, ": cannot be read: ", errno_text(errno)));
  }
}

void InputFile::read_at(std::uint64_t from, void* to, std::uint64_t bytes) const {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    const std::size_t got = read_some(from, place, bytes);
    if (got == 0) throw FileError(str(path_, ": ended while it was read"));
    from += got;
    place += got;
    bytes -= got;
  }
}

std::string InputFile::head(std::size_t most) const {
  std::string bytes(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const std::size_t got = read_some(size, bytes.data() + size, most - size);
    if (got == 0) break;
    size += got;
  }
  bytes.resize(size);
  return bytes;
}

std::string InputFile::text(std::uint64_t most) const {
  const auto refuse = [&] { throw FileError(str(path_, ": is larger than ", most, " bytes")); };
  if (size_ > most) refuse();
  std::string all;
  std::array<char, 65536> part;
  while (const std::size_t got = read_some(all.size(), part.data(), part.size())) {
    all.append(part.data(), got);
    if (all.size() > most) refuse();
  }
  return all;
}

InputFile::int_type InputFile::underflow() {
  const std::size_t got = read_some(next_, buffer_.data(), buffer_.size());
  if (got == 0) return traits_type::eof();
  next_ += got;
  setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
  return traits_type::to_int_type(buffer_[0]);
}

}  // namespace attune
