#include "database_file.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <attune/core/error.hpp>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMaxFileBytes = off_t{1} << 30;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw CacheError(str("config database ", path, ": ", reason));
}

std::string errno_text(int error) { return std::generic_category().message(error); }

void make_folders(const fs::path& folder, const std::string& path) {
  if (folder.empty() || mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
  if (errno == ENOENT && folder.has_relative_path()) {
    make_folders(folder.parent_path(), path);
    if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
  }
  fail(path, str("cannot make the folder ", folder.string(), ": ", errno_text(errno)));
}

void check_kind(const struct stat& status, const std::string& path) {
  if (S_ISDIR(status.st_mode)) fail(path, "is a folder");
  if (S_ISLNK(status.st_mode)) {
    fail(path, "is a symbolic link, which is not written through; name the file itself");
  }
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  if (status.st_size > kMaxFileBytes) fail(path, "is larger than 1 GiB");
}

/// The path with the links of its folders resolved, since SQLite's NOFOLLOW refuses those as well.
fs::path in_real_folder(const std::string& path) {
  const fs::path given(path);
  const fs::path folder = given.has_parent_path() ? given.parent_path() : fs::path(".");
  make_folders(folder, path);
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) fail(path, str("cannot enter its folder: ", error.message()));
  return real / given.filename();
}

/// Nobody updates such a file in place, and it may stand where even locking it is impossible.
bool never_changes(const fs::path& file, const struct stat& status) {
  struct statvfs system {};
  if (statvfs(file.c_str(), &system) == 0 && (system.f_flag & ST_RDONLY) != 0) return true;
  constexpr mode_t kAnyWrite = S_IWUSR | S_IWGRP | S_IWOTH;
  return (status.st_mode & kAnyWrite) == 0 && access(file.parent_path().c_str(), W_OK) != 0;
}

std::string immutable_uri(const fs::path& file) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string uri = "file:";
  for (const char c : file.native()) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '%' || c == '?' || c == '#') {
      uri += {'%', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

sqlite::Db open_for_writing(const std::string& path) {
  if (path.empty()) fail("\"\"", "has no name");
  const fs::path file = in_real_folder(path);
  // mknod() makes a file without opening it.
  if (mknod(file.c_str(), S_IFREG | 0600, 0) != 0 && errno != EEXIST) {
    const int error = errno;
    if (struct stat status{}; lstat(file.c_str(), &status) != 0) {
      fail(path, str("cannot be made: ", errno_text(error)));
    }
  }
  struct stat status {};
  if (lstat(file.c_str(), &status) != 0) fail(path, errno_text(errno));
  check_kind(status, path);
  sqlite::Db db(file.string(), SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, path);
  if (db.read_only()) fail(path, "cannot be written");
  // EXTRA is FULL, and the folder is synchronised too, so that a lost journal cannot take a commit
  // back.
  db.execute("PRAGMA synchronous=EXTRA");
  return db;
}

sqlite::Db open_for_reading(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) fail(path, "is not there");
  if (error) fail(path, error.message());
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) fail(path, errno_text(errno));
  check_kind(status, path);
  if (!never_changes(file, status)) return {file.string(), SQLITE_OPEN_READONLY, path};
  return {immutable_uri(file), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path};
}

}  // namespace attune
