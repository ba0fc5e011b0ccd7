// `attune db show`: a stored decision with all the evidence for it.
#include <algorithm>
#include <set>

#include <attune/cache/row_request.hpp>

#include "output/text.hpp"
#include "program/verb.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

constexpr std::size_t kShortestKey = 4;
constexpr std::size_t kShown = 40;  // candidates of a decision, the fastest first

/// The rows whose key begins with `prefix`. Throws UsageError when that could be several.
std::vector<StoredRow> rows_by_key(const CommandContext& command, const std::string& prefix,
                                   std::span<const std::string> files) {
  if (prefix.size() < kShortestKey ||
      prefix.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw UsageError(str("'", prefix, "' is neither an op nor a key: expected at least ",
                         kShortestKey, " hexadecimal digits, as 'attune db ls' prints them"));
  }
  std::vector<StoredRow> found;
  std::set<std::string> keys;
  for (StoredRow& stored : stored_rows(command, files).rows) {
    const std::string key = key_id(stored.row.key);
    if (!key.starts_with(prefix)) continue;
    keys.insert(key);
    found.push_back(std::move(stored));
  }
  if (keys.size() > 1) {
    throw UsageError(
        str("'", prefix, "' is the beginning of ", keys.size(), " keys; give more digits"));
  }
  return found;
}

std::vector<StoredRow> rows_by_problem(const CommandContext& command,
                                       std::span<const std::string> words) {
  std::set<RowKey> wanted;
  for (const Target& target : command.targets(words)) wanted.insert(row_key(command, target));
  std::vector<StoredRow> rows = stored_rows(command, {}).rows;
  std::erase_if(rows, [&](const StoredRow& stored) { return !wanted.contains(stored.row.key); });
  return rows;
}

void add_decision(const CommandContext& command, const StoredRow& stored, Table& table) {
  const ConfigRow& row = stored.row;
  const std::string_view objective = objective_of(row.key.platform);
  table.add({key_id(row.key),
             row.key.op,
             problem_text_of(command, row.key),
             row.key.problem,
             row.key.device_class,
             row.device_name,
             row.key.platform,
             row.kernel,
             row.kernel_version,
             config_or_default(row.config),
             objective.empty() ? "time" : objective,
             microseconds(row.key, row.median_us),
             microseconds(row.key, row.default_us),
             objective.empty() ? Cell() : Cell(row.median_us),
             objective.empty() ? Cell() : Cell(row.default_us),
             row.default_us / row.median_us,
             row.default_config,
             row.spread * 100,
             row.samples,
             row.error,
             row.candidates_tried,
             row.candidates_refused,
             to_string(row.noise),
             row.library_version,
             row.toolkit.empty() ? Cell() : Cell(row.toolkit),
             date_text(row.created),
             to_string(stored.layer),
             stored.path});
}

}  // namespace

ExitCode show_rows(const Invocation& call, const CommandContext& command, Words words) {
  if (words.empty()) throw UsageError("show: expected a key, or an op and a SPEC");
  const bool by_problem = command.registry().find_op(words[0]) != nullptr || words.size() > 1;
  const bool by_key = words[0].size() >= kShortestKey &&
                      words[0].find_first_not_of("0123456789abcdef") == std::string::npos;
  const std::vector<StoredRow> rows = by_problem && !by_key
                                          ? rows_by_problem(command, words)
                                          : rows_by_key(command, words[0], words.subspan(1));
  Table decisions(
      {"key",        "op",      "problem",        "fields",  "device_class",   "device",
       "platform",   "kernel",  "kernel_version", "config",  "objective",      "median_us",
       "default_us", "score",   "default_score",  "speedup", "default_config", "spread_percent",
       "samples",    "error",   "tried",          "refused", "noise",          "library_version",
       "toolkit",    "created", "layer",          "file"});
  Table trials(
      {"key", "kernel", "config", "outcome", "median_us", "score", "samples", "error", "reason"});
  Evidence evidence;
  std::size_t left_out = 0;
  for (const StoredRow& stored : rows) {
    add_decision(command, stored, decisions);
    std::vector<TrialRow> all = evidence.trials_of(stored);
    if (call.for_people() && !call.verbose && all.size() > kShown) {
      left_out += all.size() - kShown;
      all.resize(kShown);
    }
    for (const TrialRow& trial : all) {
      trials.add(
          {key_id(trial.key), trial.kernel, config_or_default(trial.config), trial.outcome,
           microseconds(trial.key, trial.median_us),
           objective_of(trial.key.platform).empty() ? Cell() : Cell::unless_zero(trial.median_us),
           trial.samples, trial.error, trial.reason.empty() ? Cell() : Cell(trial.reason)});
    }
  }
  if (rows.empty()) {
    call.note("nothing is stored for that; 'attune db ls' lists what is");
    return ExitCode::kNo;
  }
  call.print(Document{{.name = "decision", .table = std::move(decisions), .record = true},
                      {.name = "trials", .table = std::move(trials)}});
  if (left_out > 0) call.note(str("and ", left_out, " more candidates; -v lists them"));
  evidence.note_damage(call);
  return ExitCode::kOk;
}

}  // namespace attune::cli
