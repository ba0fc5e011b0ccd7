#include "database/open_file.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include <attune/cache/config_database.hpp>
#include <attune/core/error.hpp>
#include <attune/core/input_file.hpp>
#include <attune/core/log.hpp>

#include "database/rollback_journal.hpp"

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
  if (!S_ISREG(status.st_mode)) {
    fail(path, str("is not a regular file but ", kind_of_file(status.st_mode)));
  }
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

/// A file that nobody may write is not updated in place; it may be where it cannot even be locked.
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

sqlite::Db open_immutable(const fs::path& file, const std::string& path) {
  return {immutable_uri(file), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path};
}

bool has_bytes(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && status.st_size > 0;
}

/// What a file's header says (sqlite.org/fileformat2.html, 1.3), and what lies beside the file.
struct FileState {
  FileState(sqlite::Db& db, const fs::path& file)
      : header(db.header()),
        journal(has_bytes(file.string() + "-journal")),
        log(has_bytes(file.string() + "-wal")) {}

  std::int64_t integer(std::size_t at) const {
    return static_cast<std::int32_t>(integer_at(header, at));
  }
  bool blank() const { return header.find_first_not_of('\0') == std::string::npos; }
  bool is_sqlite() const { return header.starts_with(std::string("SQLite format 3\0", 16)); }
  bool in_wal_mode() const { return header[18] == 2 || header[19] == 2; }
  std::int64_t user_version() const { return integer(60); }
  std::int64_t application_id() const { return integer(68); }

  std::string header;
  bool journal;
  bool log;
};

/// Whether the journal beside the file is of another one. While the file is written its journal
/// comes and goes, so what is read of both counts only where the journal was the same all along.
bool has_foreign_journal(sqlite::Db& db, const std::string& journal) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    struct stat before {};
    struct stat after {};
    if (stat(journal.c_str(), &before) != 0) return false;
    try {
      if (may_be_journal_of(journal, db.header())) return false;
    } catch (const FileError&) {
      return false;  // SQLite cannot read it, either
    }
    if (stat(journal.c_str(), &after) == 0 && before.st_ino == after.st_ino &&
        before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
        before.st_mtim.tv_nsec == after.st_mtim.tv_nsec) {
      return true;
    }
  }
  return false;
}

/// Refuses what is not attune's while SQLite has not yet rolled a journal into it, and a journal
/// that cannot be the file's. A blank header is that of a new file, or of one whose first write was
/// interrupted; SQLite knows what to do with it.
void check_before_use(sqlite::Db& db, const FileState& state, const fs::path& file,
                      const std::string& path) {
  if (state.blank()) return;
  if (!state.is_sqlite()) fail(path, "not a SQLite database");
  const bool unclaimed = state.application_id() == 0 && state.user_version() == 0 &&
                         !state.journal && !state.log && !state.in_wal_mode();
  if (state.application_id() != ConfigDatabase::kApplicationId && !unclaimed) {
    fail(path, str("is a SQLite database, but not one of attune's (application id ",
                   state.application_id(), ")"));
  }
  if (state.log && !state.in_wal_mode()) {
    fail(path,
         str("a write-ahead log that is not its own lies beside it; move ", path, "-wal away"));
  }
  if (state.journal && has_foreign_journal(db, file.string() + "-journal")) {
    fail(path, str("a journal of another file lies beside it, which SQLite would undo in this one; "
                   "move ",
                   path, "-journal away"));
  }
}

}  // namespace

bool is_there(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

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
  check_before_use(db, FileState(db, file), file, path);
  // EXTRA is FULL, and the folder is synchronised too, so that a lost journal cannot take a commit
  // back.
  db.execute("PRAGMA synchronous=EXTRA");
  return db;
}

// The mode is a property of the file. SQLite's busy timeout is not for changing it.
void use_rollback_journal(sqlite::Db& db) {
  const auto deadline = std::chrono::steady_clock::now() + sqlite::kBusyTimeout;
  for (;;) {
    try {
      sqlite::Statement pragma(db, "PRAGMA journal_mode=DELETE");
      if (pragma.step() && pragma.text(0) == "delete") return;
      fail(db.path(), "does not take a rollback journal");
    } catch (const sqlite::Failure& failure) {
      const bool busy = failure.primary_code() == SQLITE_BUSY;
      if (!busy || std::chrono::steady_clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

sqlite::Db open_for_reading(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) fail(path, "is not there");
  if (error) fail(path, error.message());
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) fail(path, errno_text(errno));
  check_kind(status, path);
  const bool immutable = never_changes(file, status);
  sqlite::Db db = immutable ? open_immutable(file, path)
                            : sqlite::Db(file.string(), SQLITE_OPEN_READONLY, path);
  const FileState state(db, file);
  check_before_use(db, state, file, path);
  if (state.log) {
    fail(path, str("its last changes are still in the write-ahead log ", path,
                   "-wal, which only a writer can take up ('attune db ls --db FILE')"));
  }
  if (immutable && state.journal) {
    fail(path, str("a writer was interrupted, and what it had begun cannot be undone where ", path,
                   "-journal and the file may not be written"));
  }
  // Reading in that mode would leave a log and its index behind. Nobody else is: there is no log.
  if (!immutable && state.in_wal_mode()) return open_immutable(file, path);
  return db;
}

void recover(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (!has_bytes(path + "-journal") && !has_bytes(path + "-wal")) return;
  try {
    sqlite::Db db = open_for_writing(path);
    const bool newer = db.integer("PRAGMA user_version") > ConfigDatabase::kSchemaVersion;
    if (!newer) use_rollback_journal(db);
  } catch (const CacheError& error) {
    log(LogLevel::kDebug, str("not recovered: ", error.what()));
  }
}

}  // namespace attune
