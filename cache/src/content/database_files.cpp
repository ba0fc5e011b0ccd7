// Whole files: reading any format, and making a file hold other content.
//
// A database that may be written is changed by a transaction in it: programs that have it open go
// on with it, and SQLite itself deals with a journal beside it. With a new file in its place, they
// would write to a file without a name, and leave their journal to the new one. Texts, and
// databases that are read-only, are replaced.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <istream>
#include <sstream>
#include <system_error>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>
#include <attune/core/output_file.hpp>

#include "content/content.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw CacheError(str(path, ": ", what, ": ", std::generic_category().message(error)));
}

/// The first line that is neither empty nor a comment.
std::string_view first_line(std::string_view text) {
  for (;;) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.empty() && line != "\r" && !line.starts_with('#')) return line;
    if (line.size() == text.size()) return {};
    text.remove_prefix(line.size() + 1);
  }
}

constexpr OutputFile::Kind kJsonlFiles{
    .name = "JSONL file of a config database",
    .is_ours = [](std::string_view head) { return first_line(head).starts_with("{\"table\":"); }};

constexpr OutputFile::Kind kCsvFiles{
    .name = "CSV file of a config database",
    .is_ours = [](std::string_view head) { return head.starts_with("table,"); }};

constexpr OutputFile::Kind kDatabases{
    .name = "config database",
    .is_ours =
        [](std::string_view head) {
          constexpr std::string_view kId = "ATUN";  // ConfigDatabase::kApplicationId
          return head.starts_with(std::string_view("SQLite format 3\0", 16)) &&
                 head.substr(std::min<std::size_t>(head.size(), 68)).starts_with(kId);
        },
    .even_read_only = true};

void put_in_place(const std::string& path, const OutputFile::Kind& kind, std::string_view bytes) {
  try {
    OutputFile file(path, kind);
    file.write(bytes);
    file.commit();
  } catch (const FileError& error) {
    throw CacheError(error.what());
  }
}

void write_text(const std::string& path, DatabaseFormat format, const DatabaseContent& content) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  write_database_text(content, format, text);
  put_in_place(path, format == DatabaseFormat::kJsonl ? kJsonlFiles : kCsvFiles, text.view());
}

/// A journal beside the file would be taken for the new file's, so there must be none.
void replace_read_only(const std::string& file, const DatabaseContent& content) {
  for (const char* suffix : {"-journal", "-wal"}) {
    if (is_there(file + suffix)) {
      throw CacheError(str(file, ": ", file, suffix,
                           " lies beside it, of a writer that was interrupted; make the file "
                           "writable and write to it once"));
    }
  }
  put_in_place(file, kDatabases, image_of(content));
}

/// Where a path leads, links followed.
std::string target_of(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target.string();
}

void write_database(const std::string& file, const DatabaseContent& content, bool read_only) {
  constexpr mode_t kAnyWrite = S_IWUSR | S_IWGRP | S_IWOTH;
  struct stat status {};
  const bool there = lstat(file.c_str(), &status) == 0;
  if (there && is_standard_stream(status)) {
    throw CacheError(str(file, ": is where standard output or standard error goes"));
  }
  if (there && S_ISREG(status.st_mode) && (status.st_mode & kAnyWrite) == 0) {
    return replace_read_only(file, content);
  }
  // Made here, with the usual mode: ConfigDatabase would make it for its owner alone.
  if (!there && mknod(file.c_str(), S_IFREG | 0666, 0) != 0) fail(file, "cannot be made", errno);
  try {
    ConfigDatabase(file, ConfigDatabase::Mode::kReadWrite)
        .edit([&](DatabaseContent& all) { all = content; }, ConfigDatabase::BadRows::kRemove);
  } catch (...) {
    if (!there && stat(file.c_str(), &status) == 0 && status.st_size == 0) unlink(file.c_str());
    throw;
  }
  if (!read_only) return;
  if (stat(file.c_str(), &status) != 0 || chmod(file.c_str(), status.st_mode & 0444U) != 0) {
    fail(file, "cannot be made read-only", errno);
  }
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
  try {
    InputFile file(path);
    std::istream text(&file);
    return read_database_text(text, format, path);
  } catch (const FileError& error) {
    throw CacheError(error.what());
  }
}

void write_database_file(const std::string& path, DatabaseContent content, bool read_only) {
  content.sort();
  const DatabaseFormat format = database_format_of(path);
  if (format != DatabaseFormat::kDatabase) return write_text(path, format, content);
  write_database(target_of(path), content, read_only);
}

}  // namespace attune
