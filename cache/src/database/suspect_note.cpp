#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <attune/cache/suspect_note.hpp>
#include <attune/core/input_file.hpp>
#include <attune/core/log.hpp>
#include <attune/core/params.hpp>
#include <attune/core/this_machine.hpp>

#include "database/process_identity.hpp"
#include "rows/row_tables.hpp"

namespace attune {
namespace {

constexpr std::string_view kInfix = ".running.";
constexpr std::string_view kTitle = "attune running 1";
constexpr std::uint64_t kMostNoteBytes = 16384;  // twice the longest
constexpr int kMostNotes = 1000;                 // that are read at once

/// The note of a process: its title, then one value a line. No value holds a line feed.
struct Note {
  ProcessIdentity process;
  std::string host;
  AtRisk at_risk = AtRisk::kProcess;
  std::optional<QuarantineRow> candidate;  // nothing: nothing was running
};

std::string text_of(const ProcessIdentity& process, AtRisk at_risk) {
  return str(kTitle, '\n', process.pid, '\n', process.started, '\n', process.boot, '\n',
             host_name(), '\n', static_cast<int>(at_risk), '\n');
}

/// An empty row says that nothing is running.
std::string text_of(const QuarantineRow& row) {
  return str(row.op, '\n', row.device_class, '\n', row.kernel, '\n', row.kernel_version, '\n',
             row.config, '\n', row.problem, '\n');
}

/// The lines of what may be a note, printable text. Throws FileError.
std::vector<std::string> read_lines(const InputFile& file) {
  constexpr std::size_t kLines = 12;  // a killed process may have left more below them
  const std::string text = file.text(kMostNoteBytes);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; lines.size() < kLines;) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) throw FileError(file.path() + ": has too few lines");
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
    const std::string problem = violation(attune::text("line", 0, kMostNoteBytes), lines.back());
    if (!problem.empty()) throw FileError(str(file.path(), ": ", problem));
  }
  return lines;
}

/// Throws FileError for a file that is no note, or that names what could not be stored.
Note read_note(const InputFile& file) {
  std::vector<std::string> lines = read_lines(file);
  Note note;
  std::int64_t at_risk = 0;
  std::int64_t version = 0;
  if (lines[0] != kTitle || !parse_integer(lines[1], note.process.pid) ||
      !parse_integer(lines[2], note.process.started) || !parse_integer(lines[5], at_risk) ||
      !parse_integer(lines[9], version) || !may_be_a_process(note.process.pid) || at_risk < 0 ||
      at_risk > static_cast<std::int64_t>(AtRisk::kMachine)) {
    throw FileError(file.path() + ": is no note of a process");
  }
  note.process.boot = lines[3];
  note.host = lines[4];
  note.at_risk = static_cast<AtRisk>(at_risk);
  constexpr std::string_view kNothing[] = {"", "", "", "0", "", ""};
  if (std::equal(lines.begin() + 6, lines.end(), std::begin(kNothing))) return note;
  std::string problem;
  note.candidate = from_cells<QuarantineRow>(
      {lines[6], lines[7], lines[8], version, lines[10], lines[11], std::string(), std::int64_t{0}},
      problem);
  if (!note.candidate) throw FileError(str(file.path(), ": ", problem));
  return note;
}

/// The boot of an identity, without its pid namespace.
std::string_view boot_of(const ProcessIdentity& process) {
  return std::string_view(process.boot).substr(0, process.boot.find(' '));
}

bool machine_went_down(const Note& note) {
  const ProcessIdentity us = this_process();
  return !note.process.boot.empty() && !us.boot.empty() && note.host == host_name() &&
         boot_of(note.process) != boot_of(us);
}

/// Why the candidate of a note is a suspect; "" when it is not, and nothing while it may still run.
std::optional<std::string> suspicion(const Note& note) {
  if (machine_went_down(note)) {
    return note.candidate ? str(kSuspect, "the machine went down while it ran") : "";
  }
  if (!has_ended(note.process)) return std::nullopt;
  if (note.at_risk == AtRisk::kMachine || !note.candidate) return "";
  return str(kSuspect, "its process ended while it ran: a crash, or somebody killed it");
}

std::filesystem::path folder_of(const std::filesystem::path& database) {
  return database.has_parent_path() ? database.parent_path() : ".";
}

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOfHosts =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The machine's name as a part of a file's: several machines may share the folder, and their
/// processes the numbers.
std::string host_in_names() {
  std::string name = host_name();
  for (char& c : name) {
    if (kOfHosts.find(c) == std::string_view::npos) c = '_';
  }
  return name.empty() ? "_" : name;
}

/// Takes what stands before the next dot.
std::string_view take_part(std::string_view& name) {
  const std::string_view part = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.size(), part.size() + 1));
  return part;
}

bool is_of(std::string_view part, std::string_view characters) {
  return !part.empty() && part.find_first_not_of(characters) == std::string_view::npos;
}

/// "<database>.running.<host>.<pid>.<n>"; what attune 0.1 wrote has no host. Files of other
/// names are neither read nor reported.
bool is_note_of(const std::filesystem::path& database, const std::filesystem::path& file) {
  const std::string begin = str(database.filename().string(), kInfix);
  const std::string name = file.filename().string();
  if (!name.starts_with(begin)) return false;
  std::string_view rest = std::string_view(name).substr(begin.size());
  if (std::count(rest.begin(), rest.end(), '.') == 2 && !is_of(take_part(rest), kOfHosts)) {
    return false;
  }
  return is_of(take_part(rest), kDigits) && is_of(take_part(rest), kDigits) && rest.empty();
}

/// Whether a note's writer may decide what the database quarantines: this user, or its owner.
bool is_trusted(uid_t writer, const std::string& database) {
  struct stat status {};
  return writer == geteuid() || (stat(database.c_str(), &status) == 0 && status.st_uid == writer);
}

/// Throws FileError for a file that is no note, or belongs to another user.
void take_note(const std::string& database, const std::string& path,
               const std::function<void(const QuarantineRow&)>& blame) {
  const InputFile file(path, FileLinks::kRefuse);
  if (!is_trusted(file.owner(), database)) throw FileError(path + ": belongs to somebody else");
  Note note = read_note(file);
  const std::optional<std::string> reason = suspicion(note);
  if (!reason) return;
  if (!reason->empty()) {
    note.candidate->reason = *reason;
    note.candidate->created = std::time(nullptr);
    blame(*note.candidate);
  }
  ::unlink(path.c_str());
}

}  // namespace

SuspectNote::SuspectNote(const std::string& path, AtRisk at_risk) : at_risk_(at_risk) {
  static std::atomic<unsigned> count = 0;
  constexpr int kTries = 100;
  if (path.empty()) return;
  owner_ = text_of(this_process(), at_risk);
  for (int i = 0; i < kTries && descriptor_ < 0; ++i) {
    // A file of that name is another program's, or was left by a process of the same number.
    file_ = str(path, kInfix, host_in_names(), '.', getpid(), '.', count++);
    descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor_ < 0 && errno != EEXIST) return;
  }
  clear();
}

SuspectNote::~SuspectNote() {
  if (descriptor_ < 0) return;
  ::unlink(file_.c_str());
  ::close(descriptor_);
}

void SuspectNote::runs(const QuarantineRow& candidate) {
  write(owner_ + text_of(candidate));
  if (at_risk_ == AtRisk::kMachine && descriptor_ >= 0) static_cast<void>(::fdatasync(descriptor_));
}

void SuspectNote::clear() { write(owner_ + text_of(QuarantineRow())); }

/// A file that keeps its size costs the disk no entry in its journal, for which processes would wait
/// for one another. What a longer note has left below is not read.
void SuspectNote::write(std::string text) {
  constexpr std::size_t kUsualBytes = 4096;
  // Tuning goes on without a note where none can be written.
  if (descriptor_ < 0) return;
  if (text.size() < kUsualBytes) text.resize(kUsualBytes, '\n');
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), 0);
}

void take_suspects(const std::string& path,
                   const std::function<void(const QuarantineRow&)>& blame) {
  std::error_code error;
  int notes = 0;
  for (std::filesystem::directory_iterator entry(folder_of(path), error), end;
       !error && entry != end && notes < kMostNotes; entry.increment(error)) {
    if (!is_note_of(path, entry->path())) continue;
    ++notes;
    try {
      take_note(path, entry->path(), blame);
    } catch (const FileError& problem) {
      log_once(LogLevel::kDebug, str(problem.what(), "; it is left as it is"));
    }
  }
}

}  // namespace attune
