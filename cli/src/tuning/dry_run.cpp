#include "tuning/dry_run.hpp"

#include <algorithm>
#include <optional>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "program/interrupt.hpp"
#include "tuning/shard.hpp"
#include "tuning/tune_plan.hpp"
#include "tuning/tune_run.hpp"

namespace attune::cli {
namespace {

/// What tuning some problems comes to.
struct Estimate {
  std::size_t problems = 0;
  std::size_t candidates = 0;
  double seconds = 0;
};

/// Adds a row a target, each behind the cells of `begin`. Nothing when somebody interrupts.
std::optional<Estimate> add_targets(const Invocation& call, const CommandContext& command,
                                    const std::vector<Target>& targets,
                                    const std::vector<Cell>& begin, Progress& progress,
                                    Table& table) {
  const bool retune = call.options.flag("retune");
  const auto budget = call.options.duration("budget");
  Estimate sum;
  for (const Target& target : targets) {
    if (interrupted()) return std::nullopt;
    progress.update(str('[', table.rows().size() + 1, "] ", target.text, "  counting candidates"));
    const bool known = known_row(command, target).has_value();
    const bool tunes = !known || retune;
    const std::size_t count = candidate_count(command, target);
    const double estimate =
        tunes ? estimated_tuning_s(target, count, budget.value_or(kProblemBudget)) : 0;
    sum.problems += tunes ? 1 : 0;
    sum.candidates += tunes ? count : 0;
    sum.seconds += estimate;
    std::vector<Cell> row = begin;
    for (Cell cell :
         {Cell(target.op->name), Cell(target.text), Cell(str(target.device->info().id)),
          target.hits > 0 ? Cell(target.hits) : Cell(), Cell(count), Cell::unless_zero(estimate),
          tunes ? Cell(known ? "to tune again" : "to tune") : Cell("tuned", Tone::kFaint)}) {
      row.push_back(std::move(cell));
    }
    table.add(std::move(row));
  }
  return sum;
}

ExitCode say_interrupted() {
  write_error("attune: interrupted\n");
  return ExitCode::kInterrupted;
}

}  // namespace

ExitCode print_plan(const Invocation& call, const CommandContext& command,
                    const std::vector<Target>& targets) {
  const auto budget = call.options.duration("budget");
  Table table({"op", "problem", "device", "hits", "candidates", "estimate_s", "state"});
  const InterruptGuard guard;
  std::optional<Progress> progress(std::in_place, call.quiet);
  const auto sum = add_targets(call, command, targets, {}, *progress, table);
  progress.reset();
  if (!sum) return say_interrupted();
  call.print(std::move(table));
  const double most = std::chrono::duration<double>(
                          budget.value_or(kProblemBudget * static_cast<int>(sum->problems)))
                          .count();
  call.note(str(count_text(sum->problems, "problem"), " to tune, ",
                count_text(sum->candidates, "candidate"), ": about ",
                elapsed_text(std::min(sum->seconds, most)), ", at most ", elapsed_text(most)));
  return ExitCode::kOk;
}

ExitCode print_shards(const Invocation& call, const CommandContext& command,
                      std::vector<ListedProblem> problems, int shards) {
  const std::vector<int> part_of = shards_of(command, problems, shards);
  std::vector<std::vector<ListedProblem>> parts(static_cast<std::size_t>(shards));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    parts[static_cast<std::size_t>(part_of[i])].push_back(std::move(problems[i]));
  }
  Table table({"shard", "op", "problem", "device", "hits", "candidates", "estimate_s", "state"});
  Table sums({"shard", "problems", "to_tune", "candidates", "estimate_s"});
  const InterruptGuard guard;
  std::optional<Progress> progress(std::in_place, call.quiet);
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<Target> targets =
        command.targets(std::move(parts[static_cast<std::size_t>(shard)]));
    order_by_cost(targets);
    const auto sum = add_targets(call, command, targets, {shard}, *progress, table);
    if (!sum) {
      progress.reset();
      return say_interrupted();
    }
    sums.add({shard, targets.size(), sum->problems, sum->candidates, sum->seconds});
  }
  progress.reset();
  call.print(Document{{.name = "problems", .table = std::move(table)},
                      {.name = "shards", .table = std::move(sums)}});
  return ExitCode::kOk;
}

}  // namespace attune::cli
