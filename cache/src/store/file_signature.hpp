// What tells that a file is another one than before, or was written to, without opening it.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace attune {

struct FileSignature {
  dev_t device = 0;
  ino_t inode = 0;  // 0: nothing is there
  off_t size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  // content; content, mode, owner or name

  static FileSignature of(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return {};
    return {status.st_dev, status.st_ino, status.st_size, nanoseconds(status.st_mtim),
            nanoseconds(status.st_ctim)};
  }
  bool is_same_file(const FileSignature& other) const {
    return device == other.device && inode == other.inode;
  }
  friend bool operator==(const FileSignature&, const FileSignature&) = default;

 private:
  static std::int64_t nanoseconds(const timespec& time) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    return static_cast<std::int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
  }
};

}  // namespace attune
