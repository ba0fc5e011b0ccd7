#include "bench_suite.hpp"

#include <algorithm>

#include "interrupt.hpp"
#include "measure.hpp"
#include "progress.hpp"
#include "session.hpp"
#include "text.hpp"

namespace attune::cli {
namespace {

/// The ops of a row, timed one after the other.
struct RowResult {
  double median_us = 0;  // of all of them
  double spread_us = 0;
  std::int64_t samples = 0;  // of the one with the fewest
  double bytes = 0;
  std::vector<std::string> kernels, configs;
  bool supported = true;
};

std::vector<std::string> words_of(const SuiteRow& row, std::string_view op) {
  std::vector<std::string> words{std::string(op)};
  for (const Param& field : parse_params(row.spec, ' ')) {
    words.push_back(str(field.name, '=', field.value));
  }
  return words;
}

std::string ops_text(const SuiteRow& row) {
  return join(std::vector<std::string>(row.ops.begin(), row.ops.end()), " + ");
}

bool has_words(const SuiteRow& row, const std::vector<std::string>& wanted) {
  std::vector<std::string> words = words_of(row, row.ops.front());
  words.insert(words.end(), row.ops.begin(), row.ops.end());
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

std::vector<SuiteRow> chosen_rows(const Suite& suite, const std::vector<std::string>& words) {
  std::vector<SuiteRow> rows = suite.rows;
  std::erase_if(rows, [&](const SuiteRow& row) { return !has_words(row, words); });
  if (rows.empty()) {
    throw UsageError(str("--suite ", suite.name, ": no row has '", join(words, " "),
                         "' among its ops and fields"));
  }
  return rows;
}

void add_op(const Session& session, const Target& target, const MeasureSettings& settings,
            RowResult& result) {
  const Choice choice = session.context().select(target.problem, session.request(target));
  const Cases on = cases_to_rotate(*target.op, target.problem, *target.device, session.seed());
  const Launch launches[] = {Launch(on, choice, *target.device)};
  const Timing timing = measure(launches, settings).front();
  const bool first = result.kernels.empty();
  result.median_us += timing.median_us;
  result.spread_us += timing.spread * timing.median_us;
  result.samples = first ? timing.samples : std::min(result.samples, timing.samples);
  result.bytes += target.op->bytes(target.problem);
  result.kernels.emplace_back(choice.kernel->name());
  result.configs.push_back(config_text(*choice.kernel, choice.config));
}

RowResult time_row(const Session& session, const SuiteRow& row, const MeasureSettings& settings) {
  RowResult result;
  try {
    for (const std::string_view op : row.ops) {
      for (const Target& target : session.targets(words_of(row, op))) {
        add_op(session, target, settings, result);
      }
    }
  } catch (const Unsupported&) {  // `attune explain` says why
    result = {};
    result.supported = false;
  }
  return result;
}

Cell verdict(const SuiteRow& row, const RowResult& result) {
  if (!result.supported) return Cell("unsupported", Tone::kBad);
  if (row.goal_us > 0 && result.median_us <= row.goal_us) return Cell("goal", Tone::kGood);
  if (row.must_us > 0 && result.median_us <= row.must_us) return Cell("must", Tone::kGood);
  return Cell("missed", Tone::kBad);
}

void add_row(const Suite& suite, const SuiteRow& row, const RowResult& result, Table& table) {
  const double floor_us = result.bytes / suite.copy_bytes_per_us;
  const auto if_timed = [&](double value) { return result.supported ? Cell(value) : Cell(); };
  constexpr double kPerTera = 1e6;  // of a rate in 1/us
  table.add({ops_text(row), row.spec, if_timed(result.median_us),
             if_timed(100 * result.spread_us / result.median_us),
             result.supported ? Cell(result.samples) : Cell(),
             if_timed(result.bytes / result.median_us / kPerTera), if_timed(floor_us),
             if_timed(floor_us / result.median_us), Cell::unless_zero(row.must_us),
             Cell::unless_zero(row.goal_us), verdict(row, result), join(result.kernels, " + "),
             join(result.configs, " + ")});
}

}  // namespace

ExitCode bench_suite(const Invocation& call, const Suite& suite, bool may_tune) {
  if (call.options.flag("all")) throw UsageError("--all goes with OP SPEC, not with --suite");
  const std::vector<SuiteRow> rows = chosen_rows(suite, call.words);
  const Session session(call, {.writes_database = may_tune,
                               .default_policy = Policy::kDb,
                               .backend = std::string(suite.backend)});
  session.check_device();
  Table table({"op", "problem", "median_us", "spread_percent", "samples", "tb_per_s", "floor_us",
               "share_of_floor", "must_us", "goal_us", "reached", "kernel", "config"});
  const MeasureSettings settings = measure_settings(call.options);
  const InterruptGuard guard;
  {
    Progress progress(call.quiet);
    for (std::size_t i = 0; i < rows.size() && !interrupted(); ++i) {
      progress.update(
          str('[', i + 1, '/', rows.size(), "] ", ops_text(rows[i]), ' ', rows[i].spec));
      const RowResult result = time_row(session, rows[i], settings);
      if (!result.supported || result.samples > 0) add_row(suite, rows[i], result, table);
    }
  }
  call.print(std::move(table));
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace attune::cli
