// `attune db stats`: what each database holds, by op and device class.
#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"

namespace attune::cli {
namespace {

struct Count {
  std::int64_t rows = 0, noisy = 0, stale = 0, unknown = 0, invalid = 0, trials = 0;
  double log_speedup = 0;
  double best = 0;
};

using Group = std::tuple<std::string, std::string, std::string>;  // op, device class, platform

std::map<Group, Count> count_rows(const DatabaseContent& content, RowChecker& checker) {
  std::map<Group, Count> counts;
  for (const StoredDecision& decision : content.decisions) {
    const ConfigRow& row = decision.row;
    Count& count = counts[{row.key.op, row.key.device_class, row.key.platform}];
    const double speedup = row.default_us / row.median_us;
    const RowState state = checker.check(row).state;
    ++count.rows;
    count.noisy += row.noise == NoiseGrade::kC ? 1 : 0;
    count.stale += state == RowState::kStale ? 1 : 0;
    count.unknown += state == RowState::kUnknown ? 1 : 0;
    count.invalid += state == RowState::kInvalid ? 1 : 0;
    count.trials += std::ssize(decision.trials);
    count.log_speedup += std::log(speedup);
    count.best = std::max(count.best, speedup);
  }
  return counts;
}

}  // namespace

ExitCode print_stats(const Invocation& call, const CommandContext& command, Words words) {
  Table decisions({"file", "op", "device_class", "platform", "decisions", "speedup_mean",
                   "speedup_most", "noisy", "stale", "unknown", "invalid", "trials"});
  Table files({"file", "bytes", "decisions", "pins", "quarantine", "damaged"});
  RowChecker checker(command.registry());
  for (const std::string& path : files_or_those_in_effect(command, words)) {
    const DatabaseContent content = read_database_file(path);
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    files.add({path, error ? Cell() : Cell(bytes), content.decisions.size(), content.pins.size(),
               content.quarantine.size(), content.bad_rows});
    for (const auto& [group, count] : count_rows(content, checker)) {
      const auto& [op, device_class, platform] = group;
      decisions.add({path, op, device_class, platform, count.rows,
                     std::exp(count.log_speedup / static_cast<double>(count.rows)), count.best,
                     count.noisy, count.stale, count.unknown, count.invalid, count.trials});
    }
  }
  if (files.empty()) call.note("there is no database yet");
  call.print(Document{{.name = "files", .table = std::move(files)},
                      {.name = "decisions", .table = std::move(decisions)}});
  return ExitCode::kOk;
}

}  // namespace attune::cli
