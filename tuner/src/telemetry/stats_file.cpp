#include "telemetry/stats_file.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/output_file.hpp>
#include <attune/core/params.hpp>
#include <attune/core/this_machine.hpp>

namespace attune::telemetry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".prom";

constexpr OutputFile::Kind kStatsFiles{
    .name = "file of attune's counters",
    .is_ours = [](std::string_view head) { return head.starts_with("# HELP attune_"); }};

std::string beginning_of_names() {
  const std::string host = host_name();
  return str("attune-", host.empty() ? "localhost" : host, '-');
}

bool has_ended(std::int64_t process) {
  return kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

/// Removes what processes of this host left that ended without removing it.
void remove_those_of_the_dead(const fs::path& folder) {
  const std::string begins = beginning_of_names();
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(begins) || !name.ends_with(kEnding)) continue;
    const std::string_view number =
        std::string_view(name).substr(begins.size(), name.size() - begins.size() - kEnding.size());
    std::int64_t process = 0;
    if (!parse_integer(number, process) || process <= 0 || !has_ended(process)) continue;
    std::error_code ignored;
    fs::remove(entry->path(), ignored);
  }
}

}  // namespace

StatsFile::StatsFile(const std::string& path, std::chrono::milliseconds interval,
                     std::function<std::string()> text)
    : text_(std::move(text)) {
  std::error_code error;
  const fs::path full = fs::absolute(path, error);  // the current folder may change later
  path_ = error ? path : full.string();
  in_folder_ = fs::is_directory(path_, error);
  if (in_folder_) {
    remove_those_of_the_dead(path_);
    path_ = (fs::path(path_) / str(beginning_of_names(), getpid(), kEnding)).string();
  }
  write();
  try {
    task_.emplace(
        interval, [this] { write(); }, [this] { end(); });
  } catch (const std::system_error& why) {
    log_once(LogLevel::kWarning, str("ATTUNE_STATS: no thread could be started for ", path_, ": ",
                                     why.what(), "; it is not written again"));
  }
}

void StatsFile::write() const {
  try {
    OutputFile file(path_, kStatsFiles);
    if (in_folder_) file.set_mode(0644);  // scrapers run as somebody else
    file.write(text_());
    file.commit();
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("ATTUNE_STATS: ", error.what()));
  }
}

void StatsFile::end() const {
  if (in_folder_) {
    unlink(path_.c_str());
  } else {
    write();
  }
}

}  // namespace attune::telemetry
