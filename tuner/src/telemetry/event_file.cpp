#include "telemetry/event_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "recording/shared_file.hpp"

namespace attune::telemetry {
namespace {

using Json = nlohmann::ordered_json;
using chain::SharedFile;

constexpr off_t kMostBytes = off_t{8} << 20;
constexpr std::size_t kMostTold = 100'000;  // then what was told may be told again
constexpr std::size_t kLongestText = 2048;
constexpr std::chrono::seconds kPatience{1};
constexpr std::chrono::seconds kTryAgainAfter{10};
constexpr std::string_view kLineBegins = "{\"time\":\"";

/// "2026-11-23T09:49:01.123Z".
std::string time_text() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char seconds[32];
  const std::size_t length = std::strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
  char millis[8];
  std::snprintf(millis, sizeof millis, ".%03dZ", static_cast<int>(now.tv_nsec / 1'000'000));
  return std::string(seconds, length) + millis;
}

void add(Json& line, const char* name, std::string_view text) {
  if (!text.empty()) line[name] = text.substr(0, kLongestText);
}

template <class Number>
void add_unless_zero(Json& line, const char* name, Number number) {
  if (number != 0) line[name] = number;
}

std::string line_of(const Event& event, std::uint64_t lost) {
  Json line;
  line["time"] = time_text();
  line["pid"] = getpid();
  line["event"] = event.kind == EventKind::kTrial ? "fault" : to_string(event.kind);
  add(line, "op", event.op);
  add(line, "problem", event.problem);
  add(line, "device_class", event.device_class);
  if (event.kind == EventKind::kSelected || event.kind == EventKind::kLaunchFailed) {
    line["tier"] = to_string(event.tier);
  }
  add(line, "kernel", event.kernel);
  add_unless_zero(line, "version", event.version);
  add(line, "config", event.config);
  add_unless_zero(line, "candidates", event.candidates);
  add(line, "objective", event.objective);
  const bool is_time = event.objective.empty();
  add_unless_zero(line, is_time ? "median_us" : "score", event.median_us);
  add_unless_zero(line, "prepare_us", event.prepare_us);
  add_unless_zero(line, is_time ? "default_us" : "default_score", event.default_us);
  add(line, "reason", event.reason);
  add_unless_zero(line, "lost", lost);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

bool is_event_file(const SharedFile& file) {
  return file.size() == 0 || file.read(0, kLineBegins.size()) == kLineBegins;
}

/// Makes room for a new file. The caller holds the lock of the full one; who waits for it finds
/// that it is not at its path any more.
void set_aside(const std::string& path) {
  std::error_code error;
  const std::string target = std::filesystem::canonical(path, error).string();
  if (error) throw FileError(str(path, ": cannot be set aside: ", error.message()));
  const std::string older = target + ".1";
  struct stat status {};
  if (lstat(older.c_str(), &status) == 0 &&
      (!S_ISREG(status.st_mode) || !is_event_file(SharedFile(older, FileLinks::kRefuse)))) {
    throw FileError(str(older, ": is there and is no file of events; it is left as it is, and ",
                        path, " is full"));
  }
  if (rename(target.c_str(), older.c_str()) != 0) {
    throw FileError(str(path, ": cannot be set aside: ", std::generic_category().message(errno)));
  }
}

}  // namespace

void append_event(const std::string& path, std::string_view line) {
  SharedFile file = chain::open_locked(path, kPatience);
  if (!is_event_file(file)) {
    throw FileError(path +
                    ": is there and is no file of events, whose lines are JSON objects that begin "
                    "with a \"time\"; it is left as it is: remove it, or name another file");
  }
  const off_t size = file.size();
  if (size > 0 && size + static_cast<off_t>(line.size()) > kMostBytes) {
    set_aside(path);
    chain::open_locked(path, kPatience).append(line);
    return;
  }
  const bool ends_within_a_line = size > 0 && file.read(size - 1, 1) != "\n";
  file.append(str(ends_within_a_line ? "\n" : "", line));
}

EventFile::EventFile(EventBus& events, std::string path)
    : path_(std::move(path)),
      subscription_(events.subscribe([this](const Event& event) { on_event(event); },
                                     EventBus::MemoryHits::kLeftOut)) {}

/// Whether the same was told before: a call with an override, say, is decided each time.
bool EventFile::is_repeated(const Event& event) {
  const bool may_repeat = event.kind == EventKind::kSelected ||
                          event.kind == EventKind::kTuneSkipped ||
                          event.kind == EventKind::kDatabase;
  if (!may_repeat) return false;
  // Of a choice, the reason may hold times and counts.
  const bool is_choice = event.kind == EventKind::kSelected;
  const std::uint64_t id = std::hash<std::string>()(
      str(to_string(event.kind), '\n', event.op, '\n', event.problem, '\n', event.device_class,
          '\n', to_string(event.tier), '\n', event.kernel, '\n', event.config, '\n',
          is_choice ? "" : event.reason));
  if (told_.size() >= kMostTold) told_.clear();
  return !told_.insert(id).second;
}

void EventFile::on_event(const Event& event) {
  if (event.kind == EventKind::kTrial && !event.fault) return;
  if (!is_repeated(event)) write(event);
}

void EventFile::write(const Event& event) {
  if (Clock::now() < not_before_) {
    ++lost_;
    return;
  }
  try {
    append_event(path_, line_of(event, lost_));
    lost_ = 0;
  } catch (const FileError& error) {
    ++lost_;
    not_before_ = Clock::now() + kTryAgainAfter;
    log_once(LogLevel::kWarning,
             str("ATTUNE_EVENTS: ", error.what(), "; events are lost until it can be written"));
  }
}

}  // namespace attune::telemetry
