// `attune doctor`: what attune sees of the machine, its databases and its settings, and what is
// wrong with them.
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <attune/core/environment.hpp>
#include <attune/core/params.hpp>
#include <attune/core/version.hpp>
#include <attune/framework.hpp>
#include <attune/tuner/recording.hpp>

#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "process/child_process.hpp"
#include "program/commit.hpp"
#include "program/verb.hpp"
#include "verbs/db/machine_rows.hpp"

namespace attune::cli {
namespace {

/// The findings, one row each.
class Report {
 public:
  void ok(std::string_view item, std::string_view detail) { add("ok", Tone::kGood, item, detail); }
  void info(std::string_view item, std::string_view detail) {
    add("info", Tone::kFaint, item, detail);
  }
  void warn(std::string_view item, std::string_view detail) {
    ++warnings_;
    add("warn", Tone::kBad, item, detail);
  }

  /// Something that was asked for does not work at all.
  void fail(std::string_view item, std::string_view detail) {
    ++failures_;
    add("fail", Tone::kBad, item, detail);
  }

  Table take_table() { return std::move(table_); }
  std::size_t warnings() const { return warnings_; }
  std::size_t failures() const { return failures_; }

 private:
  void add(std::string_view status, Tone tone, std::string_view item, std::string_view detail) {
    table_.add({Cell(status, tone), item, detail});
  }

  Table table_{{"status", "item", "detail"}};
  std::size_t warnings_ = 0;
  std::size_t failures_ = 0;
};

std::string size_text(std::int64_t bytes) {
  constexpr std::int64_t kKi = 1024;
  if (bytes >= 4 * kKi * kKi * kKi) return str(bytes / (kKi * kKi * kKi), " GiB");
  if (bytes >= 4 * kKi * kKi) return str(bytes / (kKi * kKi), " MiB");
  return str(bytes / kKi, " KiB");
}

void report_build(const Registry& registry, Report& report) {
#ifdef NDEBUG
  constexpr std::string_view kBuild = "release";
#else
  constexpr std::string_view kBuild = "debug";
#endif
  std::string detail = str(kVersion);
  if (!kCommit.empty()) detail += str(" (commit ", kCommit, ')');
  detail += str(", ", kBuild, " build, compiler ", __VERSION__);
  for (const std::string& build : registry.builds()) detail += ", " + build;
  report.ok("attune", detail);
#ifndef NDEBUG
  report.info("build", "a debug build: times mean little");
#endif
}

void report_device(const CommandContext& command, const Device& device, Report& report) {
  const DeviceInfo& info = device.info();
  std::string detail = str(info.name, ", ", info.arch, ", ", count_text(info.cores, "core"));
  if (info.l2_bytes > 0) detail += ", L2 " + size_text(info.l2_bytes);
  if (info.l3_bytes > 0) detail += ", L3 " + size_text(info.l3_bytes);
  if (info.memory_bytes > 0) detail += ", memory " + size_text(info.memory_bytes);
  if (!info.driver.empty()) detail += ", " + info.driver;
  report.ok(str(info.id), detail);
  if (!info.features.empty()) report.info(str(info.id), "features " + join(info.features, " "));
  report.info(str(info.id), "class " + info.device_class);

  std::map<std::string, std::size_t> kernels;  // by platform
  for (const OpInfo* op : command.registry().ops()) {
    if (op->kernel_op != op->name) continue;  // an alias has the other's kernels
    for (const RegisteredKernel* kernel :
         command.registry().kernels(op->name, kAutoPlatform, info.id.backend.view())) {
      ++kernels[std::string(kernel->at.platform.view())];
    }
  }
  std::vector<std::string> counts;
  for (const auto& [platform, count] : kernels) counts.push_back(str(platform, ' ', count));
  if (counts.empty()) {
    report.warn(str(info.id), "no kernels run on it; give them by --plugin, or see 'attune ops'");
  } else {
    report.ok(str(info.id), "kernels: " + join(counts, ", "));
  }
}

/// Whether the file's folder, or the nearest one that exists, is on a network: rollback journals
/// need its locks.
bool on_network(std::filesystem::path path) {
  constexpr std::array<long, 4> kNetworks{0x6969, 0x517B, 0xFE534D42,
                                          static_cast<long>(0xFF534D42)};  // NFS, SMB
  struct statfs about {};
  while (::statfs(path.c_str(), &about) != 0) {
    if (!path.has_relative_path()) return false;
    path = path.parent_path();
  }
  return std::find(kNetworks.begin(), kNetworks.end(), static_cast<long>(about.f_type)) !=
         kNetworks.end();
}

/// Whether a tuning could write it: the file, and its folder, which its journal is made in. Doctor
/// itself opens it for reading.
bool may_be_written(const std::filesystem::path& file) {
  return ::access(file.c_str(), W_OK) == 0 && ::access(file.parent_path().c_str(), W_OK) == 0;
}

/// "12 rows: 9 for this machine, ...".
std::string rows_text(const CommandContext& command, const ConfigStore::FileStatus& file) {
  try {
    MachineRows rows;
    RowChecker checker(command.registry());
    for (const ConfigRow& row :
         ConfigDatabase(file.path, ConfigDatabase::Mode::kReadOnly).read().rows) {
      rows.count(command.registry(), checker, row);
    }
    return rows.text();
  } catch (const CacheError&) {  // as while somebody writes to it
    return count_text(file.rows, "row");
  }
}

void report_database(const CommandContext& command, const ConfigStore::FileStatus& file,
                     Report& report) {
  const std::string item = str("database (", to_string(file.layer), ")");
  const std::string detail = file.path + (file.reason.empty() ? "" : ": " + file.reason);
  if (file.used && file.bad_rows > 0) {
    report.warn(item, str(detail, "; ", rows_text(command, file), "; ",
                          count_text(file.bad_rows, "damaged row"),
                          " left out: 'attune db verify' tells more, 'attune db gc' removes ",
                          file.bad_rows == 1 ? "it" : "them"));
  } else if (file.used) {
    report.ok(item, str(detail, "; ", rows_text(command, file)));
  } else if (file.path.empty()) {
    report.warn(item, file.reason + "; what is tuned is kept until the process ends");
  } else if (!is_there(file.path)) {
    report.info(item, file.path + ": not there yet, the first tuning makes it");
  } else {
    report.fail(item, detail);
  }
  if (file.used && file.layer == Layer::kUser && !may_be_written(file.path)) {
    report.warn(item,
                "cannot be written: what is tuned is kept until the process ends; name "
                "another by --db or ATTUNE_DB");
  }
  if (file.layer == Layer::kUser && on_network(file.path)) {
    report.warn(item,
                "is on a network file system: good to read, but tune with --db on a local disk");
  }
}

/// What a full disk would do to a tuning is better known before it.
void report_room(const std::string& database, Report& report) {
  constexpr std::uintmax_t kLittle = std::uintmax_t{64} << 20;
  std::filesystem::path folder = std::filesystem::path(database).parent_path();
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= kLittle) return;
  report.warn("disk",
              str(folder.string(), " has ", size_text(static_cast<std::int64_t>(space.available)),
                  " left; make room before tuning"));
}

/// Whether `attune tune` can run candidates in a process of their own.
void report_worker(const Invocation& call, Report& report) {
  std::vector<std::string> arguments{"worker"};
  for (const std::string& plugin : call.options.texts("plugin")) {
    arguments.insert(arguments.end(), {"--plugin", plugin});
  }
  try {
    ChildProcess worker(arguments);
    worker.send("{}");  // any answer will do
    std::string answer;
    const auto deadline = LineReader::Clock::now() + std::chrono::seconds(60);
    if (worker.receive(answer, deadline, [] { return false; }) == LineReader::Result::kLine) {
      report.ok("worker", "answers: 'attune tune' runs candidates in a process of their own");
      return;
    }
    throw ExecutionError(worker.end());
  } catch (const Error& error) {
    report.fail("worker", str(error.what(), "; 'attune tune --isolate off' does without"));
  }
}

/// What a program meets that reads its settings from the environment; this one reads fewer.
void report_settings(Report& report) {
  try {
    make_framework_context({.database = "", .record = "", .events = "", .stats = ""});
  } catch (const InvalidArgument& error) {
    report.fail("settings", error.what());
  }
  const auto recording = read_environment("ATTUNE_RECORD");
  try {
    if (recording) check_recording(*recording);
  } catch (const FileError& error) {
    report.warn("ATTUNE_RECORD", str(error.what(), "; nothing is recorded"));
  }
}

void report_environment(Report& report) {
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (const auto value = read_environment(variable.name)) report.info(variable.name, *value);
  }
  for (const UnknownVariable& variable : unknown_environment_variables()) {
    report.warn(variable.name, str("set, but not one of attune's variables", variable.suggestion));
  }
}

/// Whether the device that was asked for is there.
bool report_wanted_device(const CommandContext& command, const Invocation& call, Report& report) {
  if (!call.options.flag("backend")) return true;
  try {
    command.check_device();
    return true;
  } catch (const Unavailable& error) {
    report.fail("backend", error.what());
    return false;
  }
}

ExitCode run(const Invocation& call) {
  if (!call.words.empty()) throw UsageError(str("'", call.words[0], "': expected no arguments"));
  const CommandContext command(call, {});
  Report report;
  report_build(command.registry(), report);
  for (const Device* device : command.registry().devices()) report_device(command, *device, report);
  for (const std::string& backend : command.registry().backends()) {
    const std::string why = command.registry().why_no_devices(backend);
    if (!why.empty()) report.info(backend, "none: " + why);
  }
  const bool there = report_wanted_device(command, call, report);
  for (const ConfigStore::FileStatus& file : command.chain().store().status())
    report_database(command, file, report);
  report_room(command.chain().store().settings().user_path, report);
  report_worker(call, report);
  report.info("policy", command.policy_name());
  report_settings(report);
  report_environment(report);
  call.print(report.take_table());
  const bool well = report.warnings() + report.failures() == 0;
  if (!well) {
    call.note(str(count_text(report.failures(), "failure"), ", ",
                  count_text(report.warnings(), "warning"),
                  "; paste 'attune doctor -o json' into bug reports"));
  }
  if (!there) return ExitCode::kUnavailable;
  return well ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace

Verb doctor_verb() {
  return {.name = "doctor",
          .summary = "report devices, databases and settings, and what is wrong with them",
          .usage = {"doctor"},
          .examples = {"doctor", "doctor --backend gpu", "doctor -o json"},
          .details =
              "ok, info, warn (works, but) and fail (does not work), each with what to do. Exit "
              "status 1 when there are warnings or failures, 3 when the --backend that was asked "
              "for is not there. Of each database it says how many "
              "rows are for the devices of this machine, how many of those are stale, and how many "
              "are for others. Paste 'attune doctor -o md' into bug reports.",
          .options = {},
          .run = run};
}

}  // namespace attune::cli
