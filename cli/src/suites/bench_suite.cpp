#include "suites/bench_suite.hpp"

#include <algorithm>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/measure.hpp"

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

void add_op(const CommandContext& command, const Target& target, const MeasureSettings& settings,
            RowResult& result) {
  const Choice choice = command.context().select(target.problem, command.request(target));
  const Cases on = cases_to_rotate(*target.op, target.problem, *target.device, command.seed());
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

RowResult time_row(const CommandContext& command, const SuiteRow& row,
                   const MeasureSettings& settings) {
  RowResult result;
  try {
    for (const std::string_view op : row.ops) {
      for (const Target& target : command.targets(words_of(row, op))) {
        add_op(command, target, settings, result);
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
  if (row.us.goal > 0 && result.median_us <= row.us.goal) return Cell("goal", Tone::kGood);
  if (row.us.must > 0 && result.median_us <= row.us.must) return Cell("must", Tone::kGood);
  return Cell("missed", Tone::kBad);
}

bool says_about(const Suite& suite) {
  return std::ranges::any_of(suite.rows, [](const SuiteRow& row) { return !row.about.empty(); });
}

Table rows_table(const Suite& suite) {
  std::vector<std::string> columns{"op",      "problem",  "median_us", "spread_percent",
                                   "samples", "tb_per_s", "floor_us",  "share_of_floor",
                                   "must_us", "goal_us",  "reached",   "kernel",
                                   "config"};
  if (says_about(suite)) columns.insert(columns.begin(), "about");
  return Table(std::move(columns));
}

void add_row(const Suite& suite, const SuiteRow& row, const RowResult& result, Table& table) {
  const double floor_us = result.bytes / suite.copy_bytes_per_us;
  const auto if_timed = [&](double value) { return result.supported ? Cell(value) : Cell(); };
  constexpr double kPerTera = 1e6;  // of a rate in 1/us
  std::vector<Cell> cells{ops_text(row),
                          row.spec,
                          if_timed(result.median_us),
                          if_timed(100 * result.spread_us / result.median_us),
                          result.supported ? Cell(result.samples) : Cell(),
                          if_timed(result.bytes / result.median_us / kPerTera),
                          if_timed(floor_us),
                          if_timed(floor_us / result.median_us),
                          Cell::unless_zero(row.us.must),
                          Cell::unless_zero(row.us.goal),
                          verdict(row, result),
                          join(result.kernels, " + "),
                          join(result.configs, " + ")};
  if (says_about(suite)) cells.insert(cells.begin(), Cell(row.about));
  table.add(std::move(cells));
}

}  // namespace

ExitCode bench_suite(const Invocation& call, const Suite& suite, bool may_tune) {
  if (call.options.flag("all")) throw UsageError("--all goes with OP SPEC, not with --suite");
  const bool of_the_host = suite.run == nullptr && suite.copy_bytes_per_us == 0;
  if (call.options.flag("threads") && suite.copy_bytes_per_us > 0) {
    throw UsageError(str("--threads goes with what runs on the host, not with ", suite.name));
  }
  if (call.options.flag("problems") && suite.run == nullptr) {
    throw UsageError(str("--problems goes with a suite that draws them, not with ", suite.name));
  }
  if (suite.run != nullptr) return suite.run(call, suite, may_tune);
  if (of_the_host) return bench_host_suite(call, suite, may_tune);
  const std::vector<SuiteRow> rows = rows_with(suite, call.words);
  const CommandContext command(call, {.writes_database = may_tune,
                                      .default_policy = Policy::kDb,
                                      .backend = std::string(suite.backend)});
  command.check_device();
  Table table = rows_table(suite);
  const MeasureSettings settings = measure_settings(call.options);
  const InterruptGuard guard;
  {
    Progress progress(call.quiet);
    for (std::size_t i = 0; i < rows.size() && !interrupted(); ++i) {
      progress.update(
          str('[', i + 1, '/', rows.size(), "] ", ops_text(rows[i]), ' ', rows[i].spec));
      const RowResult result = time_row(command, rows[i], settings);
      if (!result.supported || result.samples > 0) add_row(suite, rows[i], result, table);
    }
  }
  call.print(std::move(table));
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace attune::cli
