#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/environment.hpp>
#include <attune/core/input_file.hpp>
#include <attune/core/log.hpp>
#include <attune/core/output_file.hpp>
#include <attune/core/params.hpp>

#include "xdg_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "attune artifact 1\n";
constexpr std::string_view kSuffix = ".artifact";
constexpr std::uint64_t kDefaultBytes = std::uint64_t{1} << 30U;
constexpr std::uint64_t kMostOfAFile = std::uint64_t{1} << 32U;
constexpr double kKeptShare = 0.9;  // of the bound, once it was passed

std::string hash_text(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

/// "attune artifact 1\n<checksum> <bytes of the key>\n<key><bytes>"; the checksum is of the last
/// two.
std::string file_text(std::string_view key, std::string_view bytes) {
  std::string body(key);
  body += bytes;
  return str(kMagic, hash_text(body), ' ', key.size(), '\n') + body;
}

/// The bytes of a file that is whole and has this key.
std::optional<std::string> bytes_of(std::string_view text, std::string_view key) {
  if (!text.starts_with(kMagic)) return std::nullopt;
  text.remove_prefix(kMagic.size());
  const std::size_t space = text.find(' ');
  const std::size_t line = text.find('\n');
  if (space == std::string_view::npos || line == std::string_view::npos || line < space) {
    return std::nullopt;
  }
  const std::string_view sum = text.substr(0, space);
  if (text.substr(space + 1, line - space - 1) != std::to_string(key.size())) return std::nullopt;
  const std::string_view body = text.substr(line + 1);
  if (!body.starts_with(key) || hash_text(body) != sum) return std::nullopt;
  return std::string(body.substr(key.size()));
}

bool is_artifact(std::string_view head) { return head.starts_with(kMagic); }

struct KeptFile {
  fs::path path;
  std::uint64_t bytes = 0;
  fs::file_time_type used;
};

std::vector<KeptFile> kept_files(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // another process may remove files meanwhile
    if (entry->path().extension() != kSuffix || !entry->is_regular_file(gone)) continue;
    const KeptFile file{entry->path(), entry->file_size(gone), entry->last_write_time(gone)};
    if (!gone) files.push_back(file);
  }
  return files;
}

}  // namespace

std::string ArtifactCache::path_of(std::string_view key) const {
  const std::string name = hash_text(key);
  return (fs::path(folder_) / name.substr(0, 2) / (name + std::string(kSuffix))).string();
}

std::optional<std::string> ArtifactCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string path = path_of(key);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    const InputFile file(path);
    // What is found here is run: nobody else may have put it there.
    if (file.owner() != geteuid() && file.owner() != 0) return std::nullopt;
    std::optional<std::string> bytes = bytes_of(file.text(kMostOfAFile), key);
    if (bytes) {
      fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // used now
      return bytes;
    }
    log(LogLevel::kInfo, str(path, ": is damaged and is made anew"));
  } catch (const FileError&) {
    return std::nullopt;  // removed meanwhile, or not to be read
  }
  fs::remove(path, error);
  return std::nullopt;
}

bool ArtifactCache::try_to_keep(std::string_view key, std::string_view bytes) const {
  if (folder_.empty() || bytes.size() > most_bytes_) return false;
  const std::string path = path_of(key);
  try {
    const fs::path folder = fs::path(path).parent_path();
    const bool is_new = fs::create_directories(folder);
    if (is_new) fs::permissions(folder_, fs::perms::owner_all);  // what is here is run
    OutputFile file(path, {.name = "artifact of attune", .is_ours = is_artifact});
    file.write(file_text(key, bytes));
    file.commit();
    remove_oldest();
    return true;
  } catch (const std::exception& error) {
    if (!told_.exchange(true)) {
      log(LogLevel::kWarning,
          str("compiled kernels are not kept for the next process: ", error.what()));
    }
    return false;
  }
}

void ArtifactCache::remove_oldest() const {
  std::vector<KeptFile> files = kept_files(folder_);
  std::uint64_t bytes = 0;
  for (const KeptFile& file : files) bytes += file.bytes;
  if (bytes <= most_bytes_) return;
  std::sort(files.begin(), files.end(),
            [](const KeptFile& a, const KeptFile& b) { return a.used < b.used; });
  for (const KeptFile& file : files) {
    if (static_cast<double>(bytes) <= kKeptShare * static_cast<double>(most_bytes_)) return;
    std::error_code error;
    fs::remove(file.path, error);
    bytes -= file.bytes;
  }
}

const ArtifactCache& default_artifact_cache() {
  static const ArtifactCache cache = [] {
    std::string folder = read_environment("ATTUNE_CACHE_DIR").value_or(user_cache_folder());
    if (folder == "none") folder.clear();
    std::uint64_t bytes = kDefaultBytes;
    if (const auto given = read_environment("ATTUNE_CACHE_BYTES")) {
      const char* end = given->data() + given->size();
      const auto [at, error] = std::from_chars(given->data(), end, bytes);
      if (error != std::errc() || at != end) {
        log_once(LogLevel::kWarning, str("ATTUNE_CACHE_BYTES='", *given,
                                         "': expected a number of bytes; 1 GiB is used"));
        bytes = kDefaultBytes;
      }
    }
    return ArtifactCache(std::move(folder), bytes);
  }();
  return cache;
}

}  // namespace attune
