// What tells that a file is another one than before, or was written to, without opening it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace attune {

struct FileSignature {
  dev_t device = 0;
  ino_t inode = 0;  // 0: nothing is there
  off_t size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  // content; content, mode, owner or name

  static FileSignature of(const std::string& path);
  bool is_same_file(const FileSignature& other) const {
    return device == other.device && inode == other.inode;
  }
  friend bool operator==(const FileSignature&, const FileSignature&) = default;
};

}  // namespace attune
