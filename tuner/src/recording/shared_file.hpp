// A regular file that processes share: changed in place, under flock(2), by one at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <attune/core/input_file.hpp>

namespace attune::chain {

class SharedFile {
 public:
  /// Opens it for reading and writing; makes it, mode 0600, when nothing is there. What is no
  /// regular file is not opened, and a link that leads nowhere makes nothing. Throws FileError.
  SharedFile(const std::string& path, FileLinks links);
  /// Gives its lock back.
  ~SharedFile();
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&&) = delete;

  enum class Lock {
    kTaken,
    kWithAnother,
    kNone,  // the file system has no locks
  };
  Lock try_lock();

  /// False when another file has taken the place of this one.
  bool is_at_its_path() const;

  off_t size() const;
  /// The bytes at position `from`, `most` or all there are. Throws FileError.
  std::string read(off_t from, std::size_t most) const;

  /// Adds all of it at the end. Throws FileError, and then the file is as it was.
  void append(std::string_view text);
  /// Empties the file. False when that is not possible.
  bool clear() noexcept;

 private:
  std::string path_;
  int descriptor_;
};

/// The file behind `path`, locked. Another process may have put a new one in its place while this
/// one waited; then that one is taken. Throws FileError, as when others hold the lock for longer
/// than `patience`.
SharedFile open_locked(const std::string& path, std::chrono::milliseconds patience);

}  // namespace attune::chain
