#include "record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>

namespace attune::chain {
namespace {

using Json = nlohmann::ordered_json;

constexpr off_t kLarge = off_t{1} << 20;  // rewritten from here on
constexpr off_t kMost = off_t{16} << 20;

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw ExecutionError(str(path, ": ", what, ": ", std::generic_category().message(errno)));
}

class File {
 public:
  File(const std::string& path, int flags)
      : descriptor_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;
  int number() const { return descriptor_; }

 private:
  int descriptor_;
};

/// The file behind `path`, locked. Another process may have put a new one in its place while this
/// one waited; then that one is taken.
File open_locked(const std::string& path) {
  for (;;) {
    File file(path, O_RDWR | O_APPEND | O_CREAT);
    if (file.number() < 0) fail(path, "cannot be opened");
    while (flock(file.number(), LOCK_EX) != 0) {
      if (errno != EINTR) fail(path, "cannot be locked");
    }
    struct stat locked {};
    struct stat now {};
    if (fstat(file.number(), &locked) != 0) fail(path, "cannot be examined");
    if (!S_ISREG(locked.st_mode)) throw ExecutionError(path + ": is not a regular file");
    const bool same =
        stat(path.c_str(), &now) == 0 && now.st_ino == locked.st_ino && now.st_dev == locked.st_dev;
    if (same) return file;
  }
}

off_t size_of(const File& file) {
  struct stat status {};
  return fstat(file.number(), &status) == 0 ? status.st_size : 0;
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string read_all(const File& file) {
  std::string text;
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t count =
        pread(file.number(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

/// Puts a file with the sums in the place of this one, whose lock is held.
void compact(const std::string& path, const File& file) {
  const std::string text = sum_recorded(read_all(file));
  if (text.size() * 2 > static_cast<std::size_t>(size_of(file))) return;  // it is what there is
  const std::string next = str(path, '.', getpid(), ".new");
  const File made(next, O_WRONLY | O_CREAT | O_TRUNC);
  if (made.number() < 0 || !write_all(made.number(), text) || fsync(made.number()) != 0 ||
      rename(next.c_str(), path.c_str()) != 0) {
    unlink(next.c_str());  // the file is large then, and whole
  }
}

/// Whether the file ends within a line, as after a power failure.
bool ends_within_a_line(const File& file, off_t size) {
  char last = '\n';
  return size > 0 && pread(file.number(), &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

std::string sum_recorded(std::string_view text) {
  std::vector<std::pair<Json, std::uint64_t>> problems;
  std::unordered_map<std::string, std::size_t> places;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    Json object = Json::parse(line, nullptr, false);
    if (!object.is_object() || !object["recorded"].is_object()) continue;
    const Json hits = object["recorded"]["hits"];
    if (!hits.is_number_unsigned()) continue;
    object["recorded"].erase("hits");
    const auto [place, is_new] = places.emplace(object.dump(), problems.size());
    if (is_new) problems.emplace_back(std::move(object), 0);
    problems[place->second].second += hits.get<std::uint64_t>();
  }
  std::string sums;
  for (auto& [problem, hits] : problems) {
    problem["recorded"]["hits"] = hits;
    sums += problem.dump() + '\n';
  }
  return sums;
}

bool append_recorded(const std::string& path, std::string_view line) {
  const File file = open_locked(path);
  const off_t before = size_of(file);
  const std::string text = str(ends_within_a_line(file, before) ? "\n" : "", line);
  const off_t after = before + static_cast<off_t>(text.size());
  if (after > kMost) return false;
  if (!write_all(file.number(), text)) {
    const int error = errno;
    // Nobody else writes meanwhile. What cannot be taken back is no line, and is left out.
    if (ftruncate(file.number(), before) != 0) errno = error;
    errno = error;
    fail(path, "cannot be written");
  }
  // At each doubling only, or a file of distinct problems would be summed for every line.
  for (off_t limit = kLarge; limit <= kMost; limit *= 2) {
    if (before < limit && after >= limit) compact(path, file);
  }
  return true;
}

}  // namespace attune::chain
