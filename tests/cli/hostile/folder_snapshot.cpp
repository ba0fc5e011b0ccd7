#include "folder_snapshot.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace attune::test {
namespace {

std::string kind_of(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISBLK(mode) ? "a block device" : "a character device";
}

std::string content_of(const std::string& path, const struct stat& status) {
  constexpr off_t kLarge = off_t{16} << 20;
  if (status.st_size >= kLarge) {
    return std::to_string(status.st_size) + " bytes in " + std::to_string(status.st_blocks);
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

FileState state_of(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  FileState state;
  state.kind = kind_of(status.st_mode);
  state.mode = status.st_mode & 07777U;
  state.owner = status.st_uid;
  state.group = status.st_gid;
  state.device = status.st_rdev;
  state.inode = status.st_ino;
  if (S_ISLNK(status.st_mode)) state.link = std::filesystem::read_symlink(path).string();
  if (S_ISREG(status.st_mode)) {
    state.content = content_of(path, status);
    state.mtime = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  }
  return state;
}

void add(const std::string& folder, const std::string& prefix, FolderSnapshot& all) {
  std::error_code closed;  // a folder that may not be entered: what is in it cannot change
  for (const auto& entry : std::filesystem::directory_iterator(folder, closed)) {
    const std::string name = prefix + entry.path().filename().string();
    all[name] = state_of(entry.path());
    if (all[name].kind == "a folder") add(entry.path(), name + '/', all);
  }
}

std::string difference(const FileState& before, const FileState& after) {
  if (before.kind != after.kind) return "was " + before.kind + ", is " + after.kind;
  if (before.link != after.link) return "leads to " + after.link;
  if (before.content != after.content) return "has another content";
  if (before.owner != after.owner || before.group != after.group) return "has another owner";
  if (before.mode != after.mode) return "has another mode";
  return before.inode != after.inode ? "was replaced" : "was written to";
}

}  // namespace

FolderSnapshot snapshot_of(const std::string& folder) {
  FolderSnapshot all;
  add(folder, "", all);
  return all;
}

std::map<std::string, std::string> changes(const FolderSnapshot& before,
                                           const FolderSnapshot& after) {
  std::map<std::string, std::string> found;
  for (const auto& [name, state] : before) {
    const auto now = after.find(name);
    if (now == after.end()) {
      found[name] = "was " + state.kind + ", is gone";
    } else if (now->second != state) {
      found[name] = difference(state, now->second);
    }
  }
  for (const auto& [name, state] : after) {
    if (!before.contains(name)) found[name] = "is new, " + state.kind;
  }
  return found;
}

}  // namespace attune::test
