// `attune db export`: rows as a file for others; with --ship, only those worth shipping.
#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>

#include <attune/cache/suspect_note.hpp>

#include "output/text.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/row_check.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

/// The worst grade of noise that is shipped.
NoiseGrade min_grade(const Invocation& call) {
  const std::string grade = call.options.one_of("min-grade", {"A", "B", "C"}).value_or("B");
  return static_cast<NoiseGrade>(grade[0] - 'A');
}

/// Why a row is not shipped, or "".
std::string why_not_shipped(RowChecker& checker, const ConfigSnapshot& bad, const ConfigRow& row,
                            NoiseGrade worst) {
  if (row.noise > worst) {
    return str("measured in noise: grade ", to_string(row.noise), ", shipped is ", to_string(worst),
               " or better (--min-grade)");
  }
  if (bad.find_quarantine(row.key, row.kernel, row.kernel_version, row.config) != nullptr) {
    return "its config is quarantined";
  }
  const RowVerdict verdict = checker.check(row);
  if (verdict.state == RowState::kGood) return "";
  return str(to_string(verdict.state), ": ", verdict.reason);
}

/// What of `all` is shipped: decisions that hold today, without the trials and pins of those who
/// made them, and the candidates that must not be tried, suspicions left out. Adds a line for each
/// row left behind.
DatabaseContent shipped_part(const CommandContext& command, const DatabaseContent& all,
                             NoiseGrade worst, Table& left_behind) {
  RowChecker checker(command.registry());
  ConfigSnapshot bad;
  bad.quarantine = all.quarantine;
  bad.index();
  DatabaseContent part;
  for (const StoredDecision& decision : all.decisions) {
    const std::string why = why_not_shipped(checker, bad, decision.row, worst);
    if (why.empty()) {
      part.decisions.push_back({decision.row, {}});
      continue;
    }
    left_behind.add({key_id(decision.row.key), decision.row.key.op,
                     problem_text_of(command, decision.row.key), choice_text(decision.row), why});
  }
  std::copy_if(all.quarantine.begin(), all.quarantine.end(), std::back_inserter(part.quarantine),
               [](const QuarantineRow& row) { return !row.reason.starts_with(kSuspect); });
  return part;
}

/// The pins that hold today and name a config that their kernel has.
std::vector<PinRow> shipped_pins(const CommandContext& command, const std::vector<PinRow>& all,
                                 Table& left_behind) {
  RowChecker checker(command.registry());
  const std::int64_t now = std::time(nullptr);
  std::vector<PinRow> pins;
  for (const PinRow& pin : all) {
    const RowVerdict verdict = checker.check(pin);
    const bool over = pin.expires != 0 && pin.expires <= now;
    const std::string why = over ? "a pin that has expired"
                            : verdict.state == RowState::kGood
                                ? ""
                                : str("a pin, ", to_string(verdict.state), ": ", verdict.reason);
    if (why.empty()) {
      pins.push_back(pin);
    } else {
      left_behind.add({key_id(pin.key), pin.key.op, problem_text_of(command, pin.key),
                       str(pin.kernel, ' ', config_or_default(pin.config)), why});
    }
  }
  return pins;
}

DatabaseContent read_all(const Invocation& call, std::span<const std::string> files) {
  DatabaseContent all;
  for (const std::string& path : files) {
    DatabaseContent content = read_database_file(path);
    note_bad_rows(call, path, content);
    all = merge(all, content);
  }
  return all;
}

/// Without --output: the text on standard output.
ExitCode print_rows(const Invocation& call, const DatabaseContent& content) {
  if (call.format != Format::kJsonl && call.format != Format::kCsv) {
    throw UsageError("expected --output FILE, or -o jsonl or csv for standard output");
  }
  std::ostringstream text;
  text.imbue(std::locale::classic());
  write_database_text(
      content, call.format == Format::kCsv ? DatabaseFormat::kCsv : DatabaseFormat::kJsonl, text);
  call.out.write(text.str());
  return ExitCode::kOk;
}

ExitCode ship(const Invocation& call, const CommandContext& command, const DatabaseContent& all,
              const std::string& output) {
  Table left_behind({"key", "op", "problem", "choice", "not_shipped"});
  DatabaseContent part = shipped_part(command, all, min_grade(call), left_behind);
  if (call.options.flag("pins")) part.pins = shipped_pins(command, all.pins, left_behind);
  const std::size_t left = left_behind.rows().size();
  if (!left_behind.empty()) call.print(std::move(left_behind));
  if (part.decisions.empty() && part.pins.empty()) {
    call.note(str("nothing to ship: 0 of ", count_text(all.decisions.size(), "row"),
                  "; no file is written"));
    return ExitCode::kNo;
  }
  write_keeping_history(output, part, true);
  if (!(read_database_file(output) == part)) {
    throw CacheError(str(output, ": does not read back what was written"));
  }
  call.note(str(count_text(part.decisions.size(), "row"),
                part.pins.empty() ? "" : " and " + count_text(part.pins.size(), "pin"), " in ",
                output,
                left > 0 ? str("; ", left, left == 1 ? " is" : " are", " left behind") : ""));
  return ExitCode::kOk;
}

}  // namespace

ExitCode export_rows(const Invocation& call, const CommandContext& command, Words words) {
  std::vector<std::string> files(words.begin(), words.end());
  if (files.empty()) files = {user_database(command)};
  const bool shipping = call.options.flag("ship");
  if (!shipping && call.options.flag("min-grade")) throw UsageError("--min-grade goes with --ship");
  if (!shipping && call.options.flag("pins")) throw UsageError("--pins goes with --ship");
  const bool to_file = shipping || call.options.flag("output");
  const std::string output = to_file ? output_path(call, command, words) : "";
  const DatabaseContent all = read_all(call, files);
  if (!to_file) return print_rows(call, all);
  if (shipping) return ship(call, command, all, output);
  write_keeping_history(output, all, false);
  call.note(str(count_text(all.decisions.size(), "row"), " in ", output));
  return ExitCode::kOk;
}

}  // namespace attune::cli
