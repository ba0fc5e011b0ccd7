// `attune bench --suite serve`: the steps of a serving engine, each beside what it is made of or
// what it replaces, timed in turns with it.
#include <algorithm>
#include <iterator>
#include <optional>
#include <sstream>

#include <attune/core/parallel_for.hpp>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/interrupt.hpp"
#include "suites/host_ceilings.hpp"
#include "suites/measure.hpp"
#include "suites/serve_suite.hpp"
#include "suites/suite_bounds.hpp"

namespace attune::cli {
namespace {

/// A step on the chosen kernel, with what it is timed on.
struct BoundStep {
  BoundStep(const CommandContext& command, const ServingStep& step, const LayerSizes& layer,
            const Device& device)
      : op(&command.op(step.op())),
        cases(cases_to_rotate(*op, device, case_maker(step, layer, *op, device))),
        choice(command.context().select(problem(), command.request(*op, device))) {}

  ProblemRef problem() const { return cases.front()->problem(); }
  double bytes() const { return op->bytes(problem()); }

  const OpInfo* op;
  Cases cases;
  Choice choice;
};

struct RowResult {
  std::string problem, kernel, config;
  Timing timing;
  double bytes = 0;
  std::optional<double> beside_us = {};
};

class ServingBench {
 public:
  ServingBench(const CommandContext& command, const Invocation& call, const Suite& suite)
      : command_(command),
        device_(command.device_for(command.op("recurrent_decode"))),
        on_host_(device_.info().id == cpu_device().info().id),
        bytes_per_us_(on_host_ ? host_copy_bytes_per_us(usable_cores())
                               : gpu_copy_bytes_per_us(device_.info())),
        settings_(measure_settings(call.options)),
        rows_(serving_rows(on_host_)) {
    std::erase_if(rows_, [&](const ServingRow& row) { return !has_words(row, call.words); });
    if (rows_.empty()) {
      throw UsageError(str("--suite ", suite.name, ": no row has '", join(call.words, " "),
                           "' among its words, such as decode, tokens, mixed, slots, snapshots"));
    }
  }

  Table run(Progress& progress) const {
    Table table({"about", "problem", "median_us", "spread_percent", "samples", "gb_per_s",
                 "floor_us", "share_of_floor", "beside", "beside_us", "ratio", "must_share",
                 "must_ratio", "reached", "kernel", "config"});
    for (std::size_t i = 0; i < rows_.size() && !interrupted(); ++i) {
      progress.update(str('[', i + 1, '/', rows_.size(), "] ", rows_[i].about));
      const std::optional<RowResult> result = time_row(rows_[i]);
      if (!result || result->timing.samples > 0) add_row(rows_[i], result, table);
    }
    return table;
  }

 private:
  static bool has_words(const ServingRow& row, const std::vector<std::string>& wanted) {
    std::istringstream text(row.about);
    const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
    return std::ranges::all_of(wanted, [&](const std::string& word) {
      return std::ranges::find(words, word) != words.end();
    });
  }

  /// Nothing where no kernel takes the step.
  std::optional<RowResult> time_row(const ServingRow& row) const {
    const LayerSizes layer = serving_layer(on_host_);
    std::vector<BoundStep> steps;
    steps.reserve(1 + row.parts.size());
    try {
      steps.emplace_back(command_, row.step, layer, device_);
    } catch (const Unsupported&) {  // `attune explain` says why
      return std::nullopt;
    }
    bool has_parts = !row.parts.empty();
    try {
      for (const ServingStep& part : row.parts) steps.emplace_back(command_, part, layer, device_);
    } catch (const Unsupported&) {
      has_parts = false;
      steps.erase(steps.begin() + 1, steps.end());
    }
    std::vector<Launch> launches;
    for (const BoundStep& step : steps) launches.emplace_back(step.cases, step.choice, device_);
    const std::vector<Timing> timings = measure(launches, settings_);

    const BoundStep& own = steps.front();
    RowResult result{.problem = str(own.op->name, ' ', short_text(*own.op, own.problem())),
                     .kernel = std::string(own.choice.kernel->name()),
                     .config = config_text(*own.choice.kernel, own.choice.config),
                     .timing = timings.front(),
                     .bytes = own.bytes()};
    if (!has_parts) return result;
    double beside_us = row.plus_bytes ? own.bytes() / bytes_per_us_ : 0;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      beside_us += timings[i].median_us;
      if (row.plus_bytes) beside_us -= steps[i].bytes() / bytes_per_us_;
    }
    result.beside_us = beside_us;
    return result;
  }

  void add_row(const ServingRow& row, const std::optional<RowResult>& timed, Table& table) const {
    if (!timed) {
      const Cell none;
      table.add({row.about, none, none, none, none, none, none, none, row.beside, none, none, none,
                 none, Cell("unsupported", Tone::kBad), none, none});
      return;
    }
    const RowResult& result = *timed;
    const double us = result.timing.median_us, floor_us = result.bytes / bytes_per_us_;
    const bool has_ratio = result.beside_us.has_value();
    const double ratio = has_ratio ? us / *result.beside_us : 0;
    const bool is_held = !on_host_;
    const std::vector<Reading> readings{
        {"share_of_floor", is_held ? row.share : Bound{}, Reading::Sense::kAtLeast, floor_us / us},
        {"ratio", is_held && has_ratio ? row.ratio : Bound{}, Reading::Sense::kAtMost, ratio}};
    constexpr double kPerGiga = 1e3;  // of a rate in 1/us
    table.add({row.about, result.problem, us, 100 * result.timing.spread, result.timing.samples,
               result.bytes / us / kPerGiga, floor_us, floor_us / us, row.beside,
               has_ratio ? Cell(*result.beside_us) : Cell(), has_ratio ? Cell(ratio) : Cell(),
               Cell::unless_zero(readings[0].bound.must), Cell::unless_zero(readings[1].bound.must),
               verdict(readings), result.kernel, result.config});
  }

  const CommandContext& command_;
  const Device& device_;
  bool on_host_;
  double bytes_per_us_;
  MeasureSettings settings_;
  std::vector<ServingRow> rows_;
};

ExitCode bench_serve(const Invocation& call, const Suite& suite, bool may_tune) {
  if (call.options.flag("problems")) {
    throw UsageError(str("--problems goes with a suite that draws them, not with ", suite.name));
  }
  const CommandContext command(call, {.writes_database = may_tune, .default_policy = Policy::kDb});
  const InterruptGuard guard;
  std::optional<Table> table;
  {
    Progress progress(call.quiet);
    table = ServingBench(command, call, suite).run(progress);
  }
  call.print(std::move(*table));
  return interrupted() ? ExitCode::kInterrupted : ExitCode::kOk;
}

}  // namespace

Suite serve_suite() {
  return {.name = "serve",
          .backend = "",
          .copy_bytes_per_us = kH200CopyBytesPerUs,
          .rows = {},
          .run = bench_serve};
}

}  // namespace attune::cli
