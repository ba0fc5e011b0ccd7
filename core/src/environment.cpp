#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include <attune/core/environment.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/params.hpp>

extern char** environ;

namespace attune {
namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"ATTUNE_POLICY", "what a miss does: tune (default), db, heuristic, strict or strict-fresh"},
    {"ATTUNE_DB", "the user's config database; default $XDG_DATA_HOME/attune/attune.db"},
    {"ATTUNE_SYSTEM_DB_PATH", "colon-separated databases or folders of them, read only"},
    {"ATTUNE_PLUGINS", "colon-separated plugins that the default context loads"},
    {"ATTUNE_RECORD", "a file that untuned problems are counted in, for attune tune @FILE"},
    {"ATTUNE_EVENTS",
     "a file that first choices, tunings and faults are appended to, as JSON lines"},
    {"ATTUNE_STATS", "a file, or a folder for one a process, of counters in OpenMetrics text"},
    {"ATTUNE_CACHE_DIR",
     "a folder for kernels compiled at run time, or none; default $XDG_CACHE_HOME/attune"},
    {"ATTUNE_CACHE_BYTES", "how large that folder may grow; default 1 GiB"},
    {"ATTUNE_RELOAD_SECONDS", "how often to look for replaced databases; default 0: never"},
    {"ATTUNE_SHARD", "i/n: the part of a list that attune tune --shard auto takes"},
    {"ATTUNE_SHARDS",
     "how many parts there are, where JOB_COMPLETION_INDEX says which one this is"},
    {"ATTUNE_THREADS", "threads of the host that a call takes, at most; default: all its cores"},
    {"ATTUNE_NVTX", "ranges for profilers: off, choices (default under one) or launches"},
    {"ATTUNE_LOG", "least level of log lines: debug, info (default), warning or off"},
    {"ATTUNE_LOG_CMD", "1: log the command that reproduces each call, when it is made"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::optional<std::string> read_environment(std::string_view name) {
  const char* value = secure_getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::vector<UnknownVariable> unknown_environment_variables() {
  std::vector<std::string> known;
  for (const EnvironmentVariable& variable : kVariables) known.emplace_back(variable.name);
  std::vector<UnknownVariable> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t end = text.find('=');
    if (!text.starts_with("ATTUNE_") || end == std::string_view::npos) continue;
    const std::string name(text.substr(0, end));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    unknown.push_back({name, std::string(text.substr(end + 1)), did_you_mean(name, known)});
  }
  return unknown;
}

void warn_about_unknown_environment() {
  for (const UnknownVariable& variable : unknown_environment_variables()) {
    log_once(LogLevel::kWarning, str("environment variable ", variable.name,
                                     " is not one of attune's", variable.suggestion));
  }
  constexpr std::string_view kLevels[] = {"debug", "info", "warning", "off"};
  const std::string level = read_environment("ATTUNE_LOG").value_or("info");
  if (std::ranges::find(kLevels, level) == std::end(kLevels)) {
    log_once(LogLevel::kWarning,
             str("ATTUNE_LOG=", level, ": expected debug, info, warning or off; it is info"));
  }
}

}  // namespace attune
