#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <attune/core/output_file.hpp>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".attune-tmp";
constexpr std::size_t kHeadBytes = 4096;

/// The devices that take bytes and do nothing with them, and the one that is always full.
bool swallows_bytes(const struct stat& status) {
  if (!S_ISCHR(status.st_mode) || major(status.st_rdev) != 1) return false;
  constexpr unsigned kMinors[] = {3, 5, 7};  // null, zero, full: devices.txt of Linux
  return std::find(std::begin(kMinors), std::end(kMinors), minor(status.st_rdev)) !=
         std::end(kMinors);
}

fs::path folder_of(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder;
}

/// What the temporaries of a target begin with; names may have 255 bytes.
std::string temporary_stem(const std::string& target) {
  constexpr std::size_t kMost = 200;
  return fs::path(target).filename().string().substr(0, kMost) + '.';
}

/// Whether a name is a temporary's of the stem: "<stem><pid>.<n>.attune-tmp".
bool is_temporary(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(stem.size());
  if (name.size() <= kSuffix.size()) return false;
  name.remove_suffix(kSuffix.size());
  return name.find_first_not_of("0123456789.") == std::string_view::npos &&
         std::count(name.begin(), name.end(), '.') == 1;
}

void lock(int descriptor) {
  // A file system without locks has nobody who would remove the file meanwhile, either.
  while (flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
}

/// A file that has no name any more was taken for a dead writer's, before it could be locked.
bool has_a_name(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

}  // namespace

bool is_standard_stream(const struct stat& status) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open {};
    if (fstat(stream, &open) == 0 && open.st_dev == status.st_dev && open.st_ino == status.st_ino) {
      return true;
    }
  }
  return false;
}

OutputFile::OutputFile(const std::string& path, const Kind& kind) : path_(path), target_(path) {
  look_at_target(kind);
  if (descriptor_ < 0) make_temporary();
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputFile::fail(std::string_view what, int error) const {
  throw FileError(str(path_, ": ", what, ": ", std::generic_category().message(error)));
}

void OutputFile::look_at_target(const Kind& kind) {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) {
    if (errno != ENOENT) fail("cannot be written", errno);
    if (lstat(path_.c_str(), &status) == 0) {
      throw FileError(str(path_, ": is a symbolic link that leads nowhere"));
    }
    if (path_.empty() || path_.back() == '/') fail("cannot be written", ENOENT);
    return;
  }
  if (swallows_bytes(status)) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail("cannot be written", errno);
    return;
  }
  if (!S_ISREG(status.st_mode)) {
    throw FileError(str(path_, ": is ", kind_of_file(status.st_mode), ", and is left as it is"));
  }
  if (is_standard_stream(status)) {
    throw FileError(str(path_, ": is where standard output or standard error goes"));
  }
  std::error_code error;
  target_ = fs::canonical(path_, error).string();
  if (error) fail("cannot be written", error.value());
  if (status.st_size > 0 && !kind.is_ours(InputFile(target_).head(kHeadBytes))) {
    throw FileError(str(path_, ": is there and is no ", kind.name,
                        "; it is left as it is: remove it, or name another file"));
  }
  if (!kind.even_read_only && faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) {
    fail("may not be written", errno);
  }
  exists_ = true;
  owner_ = status.st_uid;
  group_ = status.st_gid;
  mode_ = status.st_mode & 07777U;
}

void OutputFile::make_temporary() {
  static std::atomic<unsigned> count = 0;
  remove_temporaries_of_the_dead();
  // A new file's mode is the system's to make of the umask; one that has a mode of its own keeps
  // to its owner until it is in place.
  const mode_t mode = exists_ ? 0600 : 0666;
  const std::string stem = (folder_of(target_) / temporary_stem(target_)).string();
  for (;;) {
    temporary_ = str(stem, getpid(), '.', ++count, kSuffix);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) {
      temporary_.clear();
      fail("cannot be made", errno);
    }
    lock(descriptor_);
    if (has_a_name(descriptor_)) break;
    close(descriptor_);
  }
  if (!exists_) return;
  struct stat made {};
  const bool same_owner = fstat(descriptor_, &made) == 0 && made.st_uid == owner_;
  if (same_owner && made.st_gid == group_) return;
  if (fchown(descriptor_, owner_, group_) != 0) {
    const int why = errno;
    unlink(std::exchange(temporary_, {}).c_str());
    close(std::exchange(descriptor_, -1));
    fail("belongs to somebody else and could not be given back to them", why);
  }
}

void OutputFile::remove_temporaries_of_the_dead() const {
  const fs::path folder = folder_of(target_);
  const std::string stem = temporary_stem(target_);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary(entry->path().filename().native(), stem)) continue;
    const int file =
        open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file < 0) continue;
    struct stat status {};
    const bool is_dead = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                         status.st_uid == geteuid() && flock(file, LOCK_EX | LOCK_NB) == 0;
    if (is_dead) unlink(entry->path().c_str());
    close(file);
  }
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot be written", errno);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void OutputFile::commit() {
  if (temporary_.empty()) return;
  if (mode_ != 0 && fchmod(descriptor_, mode_) != 0) fail("cannot be given its mode", errno);
  if (fsync(descriptor_) != 0) fail("cannot be written", errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot be replaced", errno);
  temporary_.clear();
  // Without this a power failure could bring the old file back, which is whole as well.
  const int folder = open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

}  // namespace attune
