// What a folder holds, to tell whether anything of it was touched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace attune::test {

/// All that may not change of a file that somebody else owns.
struct FileState {
  std::string kind;  // "folder", "link", "FIFO", ...
  mode_t mode = 0;
  uid_t owner = 0;
  gid_t group = 0;
  dev_t device = 0;        // that a device file stands for
  std::string link;        // where a link leads
  ino_t inode = 0;         // another one, when the file was replaced
  std::string content;     // of a regular file; of one of 16 MiB and more, its size and blocks
  std::int64_t mtime = 0;  // of a regular file, in nanoseconds
  friend bool operator==(const FileState&, const FileState&) = default;
};

/// By path below the folder, with all that its folders hold.
using FolderSnapshot = std::map<std::string, FileState>;
FolderSnapshot snapshot_of(const std::string& folder);

/// What became of each name that is not as it was: "was a FIFO, is a file".
std::map<std::string, std::string> changes(const FolderSnapshot& before,
                                           const FolderSnapshot& after);

}  // namespace attune::test
