#include "database/process_identity.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>

#include <attune/core/error.hpp>
#include <attune/core/this_machine.hpp>

namespace attune {
namespace {

struct ProcessStat {
  char state = '?';
  std::int64_t started = 0;
};

/// Fields 3 and 22 of /proc/<pid>/stat, proc(5). Field 2, the command, may hold spaces and
/// parentheses.
ProcessStat read_stat(std::int64_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t command_end = line.rfind(')');
  if (command_end == std::string::npos) return {};
  std::istringstream fields(line.substr(command_end + 1));
  fields.imbue(std::locale::classic());
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.started;
  return fields ? stat : ProcessStat{};
}

std::string this_boot() {
  const std::string boot = boot_id();
  std::error_code error;
  const auto pids = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  if (boot.empty() || error) return {};
  return str(boot, " ", pids.string());
}

}  // namespace

ProcessIdentity this_process() {
  const std::int64_t pid = getpid();
  return {pid, read_stat(pid).started, this_boot()};
}

bool may_be_a_process(std::int64_t pid) {
  return pid > 0 && pid <= std::numeric_limits<pid_t>::max();
}

bool has_ended(const ProcessIdentity& process) {
  if (!may_be_a_process(process.pid)) return false;
  if (process.boot.empty() || process.boot != this_boot()) return false;
  if (kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return true;
  const ProcessStat now = read_stat(process.pid);
  if (now.started == 0) return false;
  return now.state == 'Z' || now.state == 'X' || now.started != process.started;
}

}  // namespace attune
