// `attune db verify --relaunch`: stored configs, run again on the device they were tuned for.
#include <attune/cache/row_request.hpp>

#include "output/text.hpp"
#include "program/interrupt.hpp"
#include "suites/measure.hpp"
#include "tuning/candidate_check.hpp"
#include "verbs/db/db_verbs.hpp"
#include "verbs/db/machine_rows.hpp"
#include "verbs/db/row_check.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

struct Relaunched {
  CandidateCheck check;
  std::string unchecked = {};  // why there is nothing to check it against
  double median_us = 0;
  double default_us = 0;
};

Choice choice_of(const ErasedKernel& kernel, const ConfigBlob& config) {
  Choice choice;
  choice.kernel = &kernel;
  choice.config = config;
  return choice;
}

Relaunched relaunch(const CommandContext& command, const Target& target, const ConfigRow& row) {
  const ErasedKernel& kernel = *command.registry().find_kernel(row.kernel)->kernel;
  const Choice stored = choice_of(kernel, kernel.parse(parse_params(row.config)));
  Relaunched result;
  try {
    result.check = check_choice(command, target, stored);
  } catch (const Unsupported& error) {
    result.unchecked = str("not checked: ", error.what());
  }
  const Choice by_default =
      choice_of(kernel, kernel.erased_heuristic(target.problem, target.device->info()));
  const Cases cases = cases_to_rotate(*target.op, target.problem, *target.device, command.seed());
  const Launch launches[] = {{cases, stored, *target.device}, {cases, by_default, *target.device}};
  MeasureSettings settings;
  settings.iters = 15;
  settings.budget_us = 1e5;
  settings.stop = interrupted;
  const std::vector<Timing> timings = measure(launches, settings);
  result.median_us = timings[0].median_us;
  result.default_us = timings[1].median_us;
  return result;
}

Cell result_cell(const Relaunched& result) {
  if (!result.unchecked.empty()) return {result.unchecked};
  if (result.check.wrong > 0) return {join(result.check.reasons, "; "), Tone::kBad};
  return {"ok", Tone::kGood};
}

}  // namespace

ExitCode relaunch_rows(const Invocation& call, const CommandContext& command,
                       const std::vector<std::string>& files) {
  Table table({"file", "key", "op", "problem", "kernel", "config", "result", "error", "median_us",
               "kernel_default_us", "speedup", "stored_speedup"});
  RowChecker checker(command.registry());
  const InterruptGuard guard;
  bool all_right = true;
  std::int64_t elsewhere = 0;
  std::int64_t of_other_objectives = 0;
  for (const StoredRow& stored : stored_rows(command, files).rows) {
    const ConfigRow& row = stored.row;
    const Device* device = device_of_class(command.registry(), row.key.device_class);
    if (!objective_of(row.key.platform).empty()) {
      ++of_other_objectives;
      continue;
    }
    if (device == nullptr || checker.check(row).state == RowState::kUnknown) {
      ++elsewhere;
      continue;
    }
    if (interrupted()) return ExitCode::kInterrupted;
    const OpInfo& op = command.op(row.key.op);
    const Target target{&op, op.parse(parse_params(row.key.problem, ' ')), device,
                        problem_text_of(command, row.key)};
    const Relaunched result = relaunch(command, target, row);
    all_right = all_right && result.check.wrong == 0;
    table.add({stored.path, key_id(row.key), row.key.op, target.text, row.kernel,
               config_or_default(row.config), result_cell(result), result.check.worst_error,
               result.median_us, result.default_us, result.default_us / result.median_us,
               row.default_us / row.median_us});
  }
  if (elsewhere > 0)
    call.note(str(count_text(elsewhere, "row is", "rows are"),
                  " of devices or kernels that are not here"));
  if (of_other_objectives > 0)
    call.note(str(count_text(of_other_objectives, "row is", "rows are"),
                  " of another objective than time"));
  call.print(std::move(table));
  return all_right ? ExitCode::kOk : ExitCode::kNo;
}

}  // namespace attune::cli
