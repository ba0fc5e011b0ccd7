// `attune db stats`: what each database holds, by op and device class, and what all cover together.
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

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

/// What the rows of many files cover together: for each class of devices, how many of the problems
/// that any class has rows for.
class Coverage {
 public:
  void add(const std::string& file, const RowKey& key, RowState state) {
    const Of of{key.op, key.platform};
    problems_[of].insert(key.problem);
    Rows& rows = by_class_[{key.device_class, of}];
    rows.files.insert(file);
    rows.problems.insert(key.problem);
    rows.stale += state == RowState::kStale ? 1 : 0;
  }

  bool has_several_classes() const {
    return !by_class_.empty() && by_class_.begin()->first.first != by_class_.rbegin()->first.first;
  }

  Table table() const {
    Table table(
        {"device_class", "op", "platform", "files", "problems", "of", "coverage_percent", "stale"});
    for (const auto& [at, rows] : by_class_) {
      const auto& [device_class, of] = at;
      const std::size_t all = problems_.at(of).size();
      const double share =
          100.0 * static_cast<double>(rows.problems.size()) / static_cast<double>(all);
      table.add({device_class, of.first, of.second, rows.files.size(), rows.problems.size(), all,
                 share, rows.stale});
    }
    return table;
  }

 private:
  using Of = std::pair<std::string, std::string>;  // op, platform
  struct Rows {
    std::set<std::string> files, problems;
    std::int64_t stale = 0;
  };
  std::map<Of, std::set<std::string>> problems_;
  std::map<std::pair<std::string, Of>, Rows> by_class_;
};

}  // namespace

ExitCode print_stats(const Invocation& call, const CommandContext& command, Words words) {
  Table decisions({"file", "op", "device_class", "platform", "decisions", "speedup_mean",
                   "speedup_most", "noisy", "stale", "unknown", "invalid", "trials"});
  Table files({"file", "bytes", "decisions", "pins", "quarantine", "damaged"});
  RowChecker checker(command.registry());
  Coverage coverage;
  for (const std::string& path : files_or_those_in_effect(command, words)) {
    const DatabaseContent content = read_database_file(path);
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    files.add({path, error ? Cell() : Cell(bytes), content.decisions.size(), content.pins.size(),
               content.quarantine.size(), content.bad_rows});
    for (const StoredDecision& decision : content.decisions) {
      coverage.add(path, decision.row.key, checker.check(decision.row).state);
    }
    for (const auto& [group, count] : count_rows(content, checker)) {
      const auto& [op, device_class, platform] = group;
      decisions.add({path, op, device_class, platform, count.rows,
                     std::exp(count.log_speedup / static_cast<double>(count.rows)), count.best,
                     count.noisy, count.stale, count.unknown, count.invalid, count.trials});
    }
  }
  if (files.empty()) call.note("there is no database yet");
  Document document{{.name = "files", .table = std::move(files)},
                    {.name = "decisions", .table = std::move(decisions)}};
  if (words.size() > 1 || coverage.has_several_classes()) {
    document.push_back({.name = "coverage", .table = coverage.table()});
  }
  call.print(document);
  return ExitCode::kOk;
}

}  // namespace attune::cli
