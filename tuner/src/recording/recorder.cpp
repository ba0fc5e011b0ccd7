#include "recording/recorder.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "recording/record_file.hpp"

namespace attune::chain {
namespace {

constexpr std::size_t kMostProblems = 10'000;

/// The words of a key that are in use.
std::string_view bytes_of(const SelectionKey& key) {
  const std::size_t used = offsetof(SelectionKey, problem) + offsetof(FieldValues, values) +
                           key.problem.count * sizeof(std::int64_t);
  return {reinterpret_cast<const char*>(&key), used};  // any object is bytes
}

/// A record up to its count, which is the last value.
std::string line_of(const RecordedCall& call) {
  nlohmann::ordered_json object;
  object["op"] = call.op;
  for (const Param& param : parse_params(call.problem, ' ')) {
    std::int64_t number = 0;
    if (parse_integer(param.value, number)) {
      object[param.name] = number;
    } else {
      object[param.name] = param.value;
    }
  }
  object["recorded"] = {
      {"device_class", call.device_class}, {"platform", call.platform}, {"answer", call.answer}};
  std::string line = object.dump();
  line.resize(line.size() - 2);
  return line + ",\"hits\":";
}

}  // namespace

Recorder::Recorder(std::string path)
    : path_(std::move(path)), process_(getpid()), exit_hook_([this] { flush(); }) {}

Recorder::~Recorder() { flush(); }

void Recorder::start_anew_after_fork() {
  const pid_t now = getpid();
  if (now == process_) return;
  process_ = now;
  for (auto& [key, entry] : entries_) entry.hits = entry.written = 0;  // the parent writes its own
}

void Recorder::write(Entry& entry) {
  if (failed_ || entry.hits == entry.written) return;
  try {
    if (append_recorded(path_, str(entry.line, entry.hits - entry.written, "}}\n"))) {
      entry.written = entry.hits;
      return;
    }
    log_once(LogLevel::kWarning, str("recording ends: ", path_, " holds 16 MiB"));
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("recording ends: ", error.what()));
  }
  failed_ = true;
}

void Recorder::add(Entry& entry) {
  ++entry.hits;
  const bool doubled = (entry.hits & (entry.hits - 1)) == 0;
  if (doubled) write(entry);
}

void Recorder::count(const SelectionKey& key, FunctionRef<RecordedCall()> describe) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    start_anew_after_fork();
    auto found = entries_.find(bytes_of(key));
    if (found == entries_.end()) {
      if (entries_.size() >= kMostProblems) {
        if (!full_) {
          log(LogLevel::kWarning, str(kMostProblems,
                                      " problems are recorded in this process; "
                                      "further ones are left out"));
        }
        full_ = true;
        return;
      }
      Entry entry;
      entry.line = line_of(describe());
      found = entries_.emplace(bytes_of(key), std::move(entry)).first;
    }
    add(found->second);
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("a problem could not be recorded: ", error.what()));
  }
}

void Recorder::count_again(const SelectionKey& key) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    start_anew_after_fork();
    if (const auto found = entries_.find(bytes_of(key)); found != entries_.end()) {
      add(found->second);
    }
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("a problem could not be recorded: ", error.what()));
  }
}

void Recorder::flush() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    start_anew_after_fork();
    for (auto& [key, entry] : entries_) write(entry);
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("problems could not be recorded: ", error.what()));
  }
}

}  // namespace attune::chain
