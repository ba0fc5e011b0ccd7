#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include <attune/cache/suspect_note.hpp>
#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

#include "process_identity.hpp"

namespace attune {
namespace {

constexpr std::string_view kInfix = ".running.";
constexpr std::string_view kTitle = "attune running 1";

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// The note of a process: its title, then one value a line. No value holds a line feed.
struct Note {
  ProcessIdentity process;
  std::string host;
  AtRisk at_risk = AtRisk::kProcess;
  QuarantineRow candidate;
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

std::optional<Note> read_note(const std::filesystem::path& path) {
  constexpr std::size_t kLines = 12;
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < kLines && std::getline(file, line);) lines.push_back(line);
  std::int64_t at_risk = 0;
  Note note;
  if (lines.size() != kLines || lines[0] != kTitle || !parse_integer(lines[1], note.process.pid) ||
      !parse_integer(lines[2], note.process.started) || !parse_integer(lines[5], at_risk) ||
      !parse_integer(lines[9], note.candidate.kernel_version)) {
    return std::nullopt;
  }
  note.process.boot = lines[3];
  note.host = lines[4];
  note.at_risk = static_cast<AtRisk>(at_risk);
  note.candidate.op = lines[6];
  note.candidate.device_class = lines[7];
  note.candidate.kernel = lines[8];
  note.candidate.config = lines[10];
  note.candidate.problem = lines[11];
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
    return note.candidate.kernel.empty() ? "" : str(kSuspect, "the machine went down while it ran");
  }
  if (!has_ended(note.process)) return std::nullopt;
  if (note.at_risk == AtRisk::kMachine || note.candidate.kernel.empty()) return "";
  return str(kSuspect, "its process ended while it ran: a crash, or somebody killed it");
}

}  // namespace

SuspectNote::SuspectNote(const std::string& path, AtRisk at_risk) : at_risk_(at_risk) {
  static std::atomic<int> count = 0;
  if (path.empty()) return;
  owner_ = text_of(this_process(), at_risk);
  file_ = str(path, kInfix, getpid(), '.', count++);
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
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

void SuspectNote::write(std::string_view text) {
  // What cannot be noted is not: tuning goes on without.
  if (descriptor_ < 0) return;
  const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), 0);
  if (::ftruncate(descriptor_, std::max<ssize_t>(written, 0)) != 0) return;
}

void take_suspects(const std::string& path,
                   const std::function<void(const QuarantineRow&)>& blame) {
  const std::filesystem::path database(path);
  const std::string begin = str(database.filename().string(), kInfix);
  std::error_code error;
  const std::filesystem::path folder =
      database.has_parent_path() ? database.parent_path() : std::filesystem::path(".");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(begin)) continue;
    std::optional<Note> note = read_note(entry.path());
    if (!note) continue;
    const std::optional<std::string> reason = suspicion(*note);
    if (!reason) continue;
    if (!reason->empty()) {
      note->candidate.reason = *reason;
      note->candidate.created = std::time(nullptr);
      blame(note->candidate);
    }
    std::filesystem::remove(entry.path(), error);
  }
}

}  // namespace attune
