// `attune db history` and `attune db use`: what a database held before, and going back to it.
#include "verbs/db/history.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <attune/core/params.hpp>

#include "output/outputs.hpp"
#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".db";
constexpr std::int64_t kMostKept = 16;

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw CacheError(str(path, ": ", what, ": ", std::generic_category().message(error)));
}

/// The number of a generation's file, or 0.
std::int64_t number_of(const fs::path& path) {
  const std::string name = path.filename().string();
  std::int64_t number = 0;
  if (!name.ends_with(kEnding) ||
      !parse_integer(std::string_view(name).substr(0, name.size() - kEnding.size()), number)) {
    return 0;
  }
  return std::max<std::int64_t>(number, 0);
}

/// Rows alone: what was left out when it was read is no part of it.
bool same_rows(DatabaseContent a, DatabaseContent b) {
  a.sort();
  b.sort();
  return a == b;
}

/// The generations' numbers and paths, in order.
std::vector<std::pair<std::int64_t, std::string>> files_of(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const std::int64_t number = number_of(entry->path()); number > 0) {
      files.emplace_back(number, entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The file that is meant: named, or the user's.
std::string file_of(const CommandContext& command, Words words) {
  return words.empty() ? user_database(command) : words[0];
}

const History::Generation* find_equal(const std::vector<History::Generation>& generations,
                                      const DatabaseContent& content) {
  // The newest of equal ones, though there should be one only.
  for (std::size_t i = generations.size(); i-- > 0;) {
    const History::Generation& generation = generations[i];
    if (generation.damage.empty() && same_rows(generation.content, content)) return &generation;
  }
  return nullptr;
}

void add_generation(const History::Generation& generation, bool in_use, Table& table) {
  const DatabaseContent& content = generation.content;
  const bool readable = generation.damage.empty();
  table.add({generation.number,
             in_use      ? Cell("in use", Tone::kGood)
             : !readable ? Cell(generation.damage, Tone::kBad)
                         : Cell(),
             date_text(generation.saved), readable ? Cell(content.decisions.size()) : Cell(),
             readable ? Cell(content.pins.size()) : Cell(),
             readable ? Cell(content.quarantine.size()) : Cell(), generation.path});
}

/// The content that `use` is to put in place: of a generation's number, or of a file.
DatabaseContent wanted_content(const History& history, const std::string& word) {
  std::int64_t number = 0;
  if (!parse_integer(word, number)) return sound_content(word);
  for (const auto& [known, path] : files_of(history.folder())) {
    if (known == number) return sound_content(path);
  }
  throw UsageError(str("use: there is no generation ", number, " in ", history.folder(),
                       "; 'attune db history' lists them"));
}

}  // namespace

DatabaseContent sound_content(const std::string& path) {
  DatabaseContent content = read_database_file(path);
  if (content.bad_rows == 0) return content;
  throw CacheError(str(path, ": ", count_text(content.bad_rows, "damaged row"), ": ",
                       content.bad_reasons.at(0), "; 'attune db export' saves what is sound"));
}

History::History(std::string file) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);  // the file that is meant, links followed
  folder_ = (error ? std::move(file) : target.string()) + ".history";
}

bool History::exists() const {
  std::error_code error;
  return fs::is_directory(folder_, error);
}

std::vector<History::Generation> History::generations() const {
  std::vector<Generation> all;
  for (auto& [number, path] : files_of(folder_)) {
    Generation generation;
    generation.number = number;
    generation.path = path;
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) generation.saved = status.st_mtime;
    try {
      generation.content = sound_content(path);
    } catch (const CacheError& error) {
      generation.damage = error.what();
    }
    all.push_back(std::move(generation));
  }
  return all;
}

std::int64_t History::keep(const DatabaseContent& content) const {
  if (mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST) {
    fail(folder_, "cannot be made", errno);
  }
  const std::vector<Generation> known = generations();
  if (const Generation* same = find_equal(known, content)) return same->number;
  for (std::int64_t number = known.empty() ? 1 : known.back().number + 1;; ++number) {
    const std::string path = (fs::path(folder_) / str(number, kEnding)).string();
    // Whoever makes the name has the number, of all who do this at once.
    const int made = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (made < 0 && errno == EEXIST) continue;
    if (made < 0) fail(path, "cannot be made", errno);
    close(made);
    try {
      write_database_file(path, content, true);
    } catch (...) {
      unlink(path.c_str());
      throw;
    }
    return number;
  }
}

void History::prune(std::size_t count, std::int64_t in_use) const {
  const auto files = files_of(folder_);
  std::size_t left = files.size();
  for (const auto& [number, path] : files) {
    if (left <= count) return;
    if (number == in_use) continue;
    if (unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, "cannot be removed", errno);
    --left;
  }
}

void write_keeping_history(const std::string& path, const DatabaseContent& content,
                           bool read_only) {
  const History history(path);
  if (!history.exists()) return write_database_file(path, content, read_only);
  if (is_there(path)) {
    const DatabaseContent before = read_database_file(path);
    if (before.bad_rows == 0) history.keep(before);
  }
  const std::int64_t number = history.keep(content);
  write_database_file(path, content, read_only);
  history.prune(kMostKept, number);
}

ExitCode print_history(const Invocation& call, const CommandContext& command, Words words) {
  if (words.size() > 1) throw UsageError("history: expected one database");
  const std::string file = file_of(command, words);
  const History history(file);
  const std::vector<History::Generation> generations = history.generations();
  const bool there = is_there(file);
  const DatabaseContent content = there ? read_database_file(file) : DatabaseContent();
  const History::Generation* in_use = there ? find_equal(generations, content) : nullptr;
  Table table({"generation", "state", "saved", "decisions", "pins", "quarantine", "file"});
  for (const History::Generation& generation : generations) {
    add_generation(generation, &generation == in_use, table);
  }
  if (there && in_use == nullptr) {
    table.add({Cell(), Cell("in use, not kept", Tone::kPlain), Cell(), content.decisions.size(),
               content.pins.size(), content.quarantine.size(), file});
  }
  if (table.empty()) call.note(str(file, ": is not there, and has no history"));
  const bool none = table.empty();
  call.print(std::move(table));
  return none ? ExitCode::kNo : ExitCode::kOk;
}

ExitCode use_content(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty() || words.size() > 2) {
    throw UsageError("use: expected a generation or a file, and the database that is to hold it");
  }
  const std::string file = file_of(command, words.subspan(1));
  if (database_format_of(file) != DatabaseFormat::kDatabase) {
    throw UsageError(str("use: ", file, ": expected a database, not its text"));
  }
  if (words[0] == file || (is_there(words[0]) && is_there(file) && same_file(words[0], file))) {
    throw UsageError(str("use: ", file, " is what it already holds"));
  }
  const auto keep =
      static_cast<std::size_t>(call.options.integer("keep", 1, 1'000'000).value_or(kMostKept));
  const History history(file);
  const DatabaseContent wanted = wanted_content(history, words[0]);
  // What is there is kept before anything is changed, what is put there before it is in place: at
  // no moment is a content lost.
  std::int64_t before = 0;
  if (is_there(file)) before = history.keep(sound_content(file));
  const std::int64_t number = history.keep(wanted);
  if (number != before) write_database_file(file, wanted);
  history.prune(keep, number);
  call.note(str(file, " holds generation ", number, ": ",
                count_text(wanted.decisions.size(), "row"), ", ",
                count_text(wanted.pins.size(), "pin"),
                before == 0 || before == number
                    ? ""
                    : str("; 'attune db use ", before, ' ', file, "' goes back")));
  return ExitCode::kOk;
}

}  // namespace attune::cli
