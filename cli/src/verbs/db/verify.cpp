// `attune db verify`: structure, checksums, and whether each config is valid for its kernel.
#include <optional>

#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

/// What is known of one file.
struct Report {
  Verification file;
  std::int64_t stale = 0, unknown = 0, invalid = 0;
  std::vector<std::string> problems;  // one line each
};

/// A text has neither a structure nor checksums: it can be read, or not.
Verification verify_text(const std::string& path) {
  Verification found;
  found.rows = std::ssize(read_database_file(path).decisions);
  found.schema_version = ConfigDatabase::kSchemaVersion;
  found.readable = true;
  return found;
}

Verification verify_file(const std::string& path) {
  try {
    if (database_format_of(path) != DatabaseFormat::kDatabase) return verify_text(path);
    return ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).verify();
  } catch (const CacheError& error) {
    Verification verification;
    verification.error = error.what();
    return verification;
  }
}

void check_row(const CommandContext& command, const RowKey& key, const RowVerdict& verdict,
               Report& report) {
  if (verdict.state == RowState::kGood) return;
  if (verdict.state == RowState::kStale) ++report.stale;
  if (verdict.state == RowState::kUnknown) ++report.unknown;
  if (verdict.state == RowState::kInvalid) ++report.invalid;
  report.problems.push_back(str(key_id(key), ' ', key.op, ' ', problem_text_of(command, key), ": ",
                                to_string(verdict.state), ": ", verdict.reason));
}

Report inspect(const CommandContext& command, RowChecker& checker, const std::string& path) {
  Report report;
  report.file = verify_file(path);
  report.problems = report.file.problems;
  if (!report.file.readable) return report;
  const DatabaseContent content = read_database_file(path);
  for (const StoredDecision& decision : content.decisions) {
    check_row(command, decision.row.key, checker.check(decision.row), report);
  }
  for (const PinRow& pin : content.pins) check_row(command, pin.key, checker.check(pin), report);
  return report;
}

enum class Result { kOk, kStale, kInvalid, kDamaged, kUnreadable };

Result result_of(const Report& report, bool strict) {
  if (!report.file.readable) return Result::kUnreadable;
  if (!report.file.ok()) return Result::kDamaged;
  if (report.invalid > 0) return Result::kInvalid;
  return strict && report.stale + report.unknown > 0 ? Result::kStale : Result::kOk;
}

Cell result_cell(Result result) {
  switch (result) {
    case Result::kOk:
      return {"ok", Tone::kGood};
    case Result::kStale:
      return {"stale", Tone::kBad};
    case Result::kInvalid:
      return {"invalid", Tone::kBad};
    case Result::kDamaged:
      return {"damaged", Tone::kBad};
    case Result::kUnreadable:
      return {"unreadable", Tone::kBad};
  }
  return {};
}

void add_report(const std::string& path, const Report& report, Result result, Table& table) {
  if (result == Result::kUnreadable) {
    table.add({path, result_cell(result), Cell(), Cell(), Cell(), Cell(), Cell(), Cell(),
               report.file.error});
    return;
  }
  constexpr std::size_t kMostShown = 5;
  std::vector<std::string> shown = report.problems;
  if (shown.size() > kMostShown) {
    shown.resize(kMostShown);
    shown.push_back(str("and ", report.problems.size() - kMostShown, " more"));
  }
  table.add({path, result_cell(result), report.file.rows, report.file.bad_rows, report.stale,
             report.unknown, report.invalid, report.file.schema_version,
             shown.empty() ? Cell() : Cell(join(shown, "; "))});
}

}  // namespace

ExitCode verify_files(const Invocation& call, const CommandContext& command, Words words) {
  if (call.options.flag("covers")) return verify_coverage(call, command, words);
  for (const char* name : {"shards", "device-class"}) {
    if (call.options.flag(name)) throw UsageError(str("--", name, " goes with --covers"));
  }
  const bool strict = call.options.flag("strict");
  Table table(
      {"file", "result", "rows", "bad_rows", "stale", "unknown", "invalid", "schema", "detail"});
  RowChecker checker(command.registry());
  const std::vector<std::string> files = files_or_those_in_effect(command, words);
  Result worst = Result::kOk;
  for (const std::string& path : files) {
    const Report report = inspect(command, checker, path);
    const Result result = result_of(report, strict);
    worst = std::max(worst, result);
    add_report(path, report, result, table);
  }
  if (table.empty()) call.note("there is no database yet");
  if (worst == Result::kOk && call.options.flag("relaunch")) {
    return relaunch_rows(call, command, files);
  }
  call.print(std::move(table));
  if (worst == Result::kUnreadable) return ExitCode::kDatabase;
  return worst == Result::kOk ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace attune::cli
