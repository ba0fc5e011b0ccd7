// Whole files: reading any format, and replacing a file at once.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0644;  // less what the process's umask takes away

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw CacheError(str(path, ": ", what, ": ", std::generic_category().message(error)));
}

/// A name beside a file that is removed again unless the file took its place.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path), temporary_(str(path, ".", getpid(), ".new")) {
    std::error_code ignored;
    fs::remove(temporary_, ignored);  // of a process with this id that was killed
  }
  ~NewFile() {
    if (placed_) return;
    std::error_code ignored;
    fs::remove(temporary_, ignored);
    fs::remove(temporary_ + "-journal", ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& temporary() const { return temporary_; }

  void put_in_place(bool read_only) {
    struct stat status {};
    if (stat(temporary_.c_str(), &status) != 0) fail(path_, "cannot be made", errno);
    if (read_only && chmod(temporary_.c_str(), status.st_mode & 0444U) != 0) {
      fail(path_, "cannot be made read-only", errno);
    }
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "cannot be made", errno);
    placed_ = true;
    const std::string folder = fs::path(path_).parent_path().string();
    const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
    if (descriptor < 0) return;
    fsync(descriptor);  // or a power failure could bring the old file back: no harm in that
    close(descriptor);
  }

 private:
  std::string path_;
  std::string temporary_;
  bool placed_ = false;
};

void write_all(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (file < 0) fail(path, "cannot be made", errno);
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0) {
      error = errno == EINTR ? 0 : errno;
    } else {
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  if (error == 0 && fsync(file) != 0) error = errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (error != 0) fail(path, "cannot be written", error);
}

}  // namespace

DatabaseFormat database_format_of(const std::string& path) {
  if (path.ends_with(".jsonl")) return DatabaseFormat::kJsonl;
  return path.ends_with(".csv") ? DatabaseFormat::kCsv : DatabaseFormat::kDatabase;
}

DatabaseContent read_database_file(const std::string& path) {
  const DatabaseFormat format = database_format_of(path);
  if (format == DatabaseFormat::kDatabase) {
    return ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).content();
  }
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    throw CacheError(str(path, ": is not a regular file"));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw CacheError(str(path, ": cannot be opened"));
  return read_database_text(file, format, path);
}

void write_database_file(const std::string& path, DatabaseContent content, bool read_only) {
  content.sort();
  const DatabaseFormat format = database_format_of(path);
  NewFile file(path);
  if (format == DatabaseFormat::kDatabase) {
    // Made here, or it would be for its owner alone.
    if (mknod(file.temporary().c_str(), S_IFREG | kMode, 0) != 0) {
      fail(path, "cannot be made", errno);
    }
    ConfigDatabase(file.temporary(), ConfigDatabase::Mode::kReadWrite)
        .edit([&](DatabaseContent& all) { all = std::move(content); });
  } else {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    write_database_text(content, format, text);
    write_all(file.temporary(), text.str());
  }
  file.put_in_place(read_only);
}

}  // namespace attune
