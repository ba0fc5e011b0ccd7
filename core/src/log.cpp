#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <attune/core/environment.hpp>
#include <attune/core/log.hpp>

namespace attune {
namespace {

struct LogState {
  std::mutex mutex;
  LogSink sink;
  std::set<std::string, std::less<>> said;
};

LogState& state() {
  static auto* const kept =
      new LogState();  // never destroyed: destructors of other statics may log
  return *kept;
}

LogLevel level_from_environment() {
  const std::string text = read_environment("ATTUNE_LOG").value_or("info");
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warning") return LogLevel::kWarning;
  return text == "off" ? LogLevel::kOff : LogLevel::kInfo;
}

std::atomic<LogLevel>& least_level() {
  static std::atomic<LogLevel> level = level_from_environment();
  return level;
}

void write_to_stderr(LogLevel level, std::string_view message) {
  std::string line = level == LogLevel::kWarning ? "attune: warning: " : "attune: ";
  line += message;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

LogLevel log_level() { return least_level().load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { least_level().store(level, std::memory_order_relaxed); }

void log(LogLevel level, std::string_view message) {
  if (level < log_level()) return;
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, message);
  } else {
    write_to_stderr(level, message);
  }
}

void log_once(LogLevel level, std::string_view message) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().said.emplace(message).second) return;
  }
  log(level, message);
}

}  // namespace attune
