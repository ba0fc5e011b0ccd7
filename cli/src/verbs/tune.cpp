// `attune tune`: searches configs for problems and stores what it finds.
#include <algorithm>
#include <limits>

#include "output/progress.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "process/isolated_runner.hpp"
#include "program/interrupt.hpp"
#include "program/verb.hpp"
#include "tuning/stale_targets.hpp"
#include "tuning/tune_plan.hpp"
#include "tuning/tune_progress.hpp"
#include "tuning/tune_run.hpp"

namespace attune::cli {
namespace {

/// Says what would be done, and about how long it would take.
ExitCode print_plan(const Invocation& call, const CommandContext& command,
                    const std::vector<Target>& targets) {
  const bool retune = call.options.flag("retune");
  const auto budget = call.options.duration("budget");
  Table table({"op", "problem", "device", "hits", "candidates", "estimate_s", "state"});
  std::size_t problems = 0;
  std::size_t candidates = 0;
  double seconds = 0;
  const InterruptGuard guard;
  std::optional<Progress> progress(std::in_place, call.quiet);
  for (const Target& target : targets) {
    if (interrupted()) {
      write_error("attune: interrupted\n");
      return ExitCode::kInterrupted;
    }
    progress->update(str('[', table.rows().size() + 1, '/', targets.size(), "] ", target.text,
                         "  counting candidates"));
    const bool known = known_row(command, target).has_value();
    const bool tunes = !known || retune;
    const std::size_t count = candidate_count(command, target);
    const double estimate =
        tunes ? estimated_tuning_s(target, count, budget.value_or(kProblemBudget)) : 0;
    problems += tunes ? 1 : 0;
    candidates += tunes ? count : 0;
    seconds += estimate;
    table.add({target.op->name, target.text, str(target.device->info().id),
               target.hits > 0 ? Cell(target.hits) : Cell(), count, Cell::unless_zero(estimate),
               tunes ? Cell(known ? "to tune again" : "to tune") : Cell("tuned", Tone::kFaint)});
  }
  progress.reset();
  call.print(std::move(table));
  const double most =
      std::chrono::duration<double>(budget.value_or(kProblemBudget * static_cast<int>(problems)))
          .count();
  call.note(str(count_text(problems, "problem"), " to tune, ", count_text(candidates, "candidate"),
                ": about ", elapsed_text(std::min(seconds, most)), ", at most ",
                elapsed_text(most)));
  return ExitCode::kOk;
}

IsolationSettings isolation_settings(const Invocation& call) {
  IsolationSettings settings;
  settings.plugins = call.options.texts("plugin");
  settings.timeout = call.options.duration("timeout").value_or(settings.timeout);
  settings.memory = default_worker_memory();
  settings.stop = interrupted;
  return settings;
}

Tuner::Settings tuner_settings(const Invocation& call, std::uint64_t seed) {
  Tuner::Settings settings;
  constexpr std::int64_t kMost = 1'000'000;
  settings.warmup =
      static_cast<int>(call.options.integer("warmup", 0, kMost).value_or(settings.warmup));
  settings.iters =
      static_cast<int>(call.options.integer("iters", 1, kMost).value_or(settings.iters));
  settings.prepare_budget =
      call.options.duration("prepare-budget").value_or(std::chrono::minutes(2));
  settings.seed = seed;
  settings.stop = interrupted;
  if (call.options.one_of("isolate", {"on", "off"}).value_or("on") == "on") {
    settings.make_runner = [isolation =
                                isolation_settings(call)](const tuning::Workload& workload) {
      return make_isolated_runner(workload, isolation);
    };
  }
  return settings;
}

/// The devices of --gpus: "all" of the accelerators that the first target would be tuned on, or
/// those of the numbers given. Empty without it. Rows are shared by devices of one class only.
std::vector<const Device*> devices_of(const Invocation& call, const CommandContext& command,
                                      const std::vector<Target>& targets) {
  const std::optional<std::string> given = call.options.text("gpus");
  if (!given || targets.empty()) return {};
  if (call.options.flag("device")) throw UsageError("--gpus and --device: expected one of them");
  std::vector<const Device*> devices = command.accelerators_like(*targets[0].device, *given);
  for (const Device* device : devices) {
    const DeviceInfo& info = device->info();
    const DeviceInfo& first = devices[0]->info();
    if (info.device_class == first.device_class) continue;
    throw UsageError(str("--gpus ", *given, ": ", first.id, " is of class ", first.device_class,
                         ", ", info.id, " of ", info.device_class,
                         "; name devices of one class, as in --gpus ", first.id.index));
  }
  return devices;
}

std::string quoted(const std::string& word) {
  const bool plain = word.find_first_of(" '\"\\$*[]{}()<>|&;`!?~#") == std::string::npos;
  return plain && !word.empty() ? word : "'" + word + "'";
}

std::string resume_line(const Invocation& call, const CommandContext& command) {
  std::string line = "attune tune";
  for (const std::string& word : call.words) line += ' ' + quoted(word);
  if (call.options.flag("stale")) line += " --stale";
  for (const char* name : {"budget", "gpus", "isolate", "timeout", "prepare-budget"}) {
    if (const auto value = call.options.text(name)) line += str(" --", name, ' ', *value);
  }
  return line + command.options_text();
}

ExitCode finish(const Invocation& call, const CommandContext& command, const TuneRun& run,
                const std::vector<Target>& targets) {
  call.print(run.table(targets));
  const std::size_t left = targets.size() - run.tuned() - run.skipped() - run.failed();
  call.note(str(run.tuned(), " tuned, ", run.skipped(), " already tuned",
                run.skipped() > 0 ? " (--retune tunes them again)" : "",
                run.failed() > 0 ? str(", ", run.failed(), " failed") : ""));
  if (interrupted()) {
    write_error(str("attune: interrupted; what was finished is stored. Resume: ",
                    resume_line(call, command), '\n'));
    return ExitCode::kInterrupted;
  }
  if (left > 0)
    call.note(str("the budget ended before ", count_text(left, "problem"),
                  ". Resume: ", resume_line(call, command)));
  return run.failed() > 0 ? ExitCode::kFailure : ExitCode::kOk;
}

ExitCode run(const Invocation& call) {
  const bool stale = call.options.flag("stale");
  if (call.words.empty() && !stale) throw UsageError("expected an op and a SPEC");
  if (call.options.flag("config"))
    throw UsageError("--config: an override is what tuning would replace");
  const bool dry = call.options.flag("dry-run");
  const CommandContext command(call, {.writes_database = !dry});
  std::vector<Target> targets =
      stale ? stale_targets(command, call.words) : command.targets(call.words);
  if (stale && targets.empty()) {
    call.note("no row that a device here can use is stale");
    return ExitCode::kOk;
  }
  order_by_cost(targets);
  if (dry) return print_plan(call, command, targets);
  const InterruptGuard guard;
  const std::vector<const Device*> devices = devices_of(call, command, targets);
  TuneRun tuning(command, {.tuner = tuner_settings(call, command.seed()),
                           .budget = call.options.duration("budget"),
                           .retune = call.options.flag("retune")});
  {
    TuneProgress progress(command.context().events(), targets.size(), call.quiet);
    tuning.tune(targets, devices, progress);
  }
  return finish(call, command, tuning, targets);
}

}  // namespace

Verb tune_verb() {
  return {
      .name = "tune",
      .summary = "search the best configs for problems and store them",
      .usage = {"tune OP SPEC... [--budget TIME] [--retune] [--dry-run]",
                "tune --stale [OP SPEC...] [--budget TIME] [--dry-run]"},
      .examples = {"tune recurrent_attention B=1,4 T=512 H=8 D=64 --dry-run",
                   "tune gated_linear_attention T=[512:4096:*2] H=16 D=128 dtype=bf16 --budget 2m",
                   "tune @shapes.jsonl --dry-run", "tune --stale --budget 10m"},
      .details =
          "Each candidate is checked against the reference before it is timed. Times are "
          "compared with the heuristic's choice in the same session, and a stored config is "
          "replaced only by one that is at least 1.5 % faster. Problems that are tuned already "
          "are skipped. --budget is shared among the problems that are left; without it each "
          "gets 10 s at most.\n"
          "@FILE reads problems, one SPEC or JSON object a line. Those of ATTUNE_RECORD (see "
          "'attune record') are tuned on the device they were recorded on, those first that cost "
          "the most: hits times the time of a call.\n"
          "--stale takes the problems of stale rows, measured with another version of their kernel, of "
          "attune or of the driver, of all databases in effect; with OP SPEC, those among them. What is "
          "found goes to the user's database.\n"
          "Ctrl-C keeps what is finished, and the same command goes on from there.",
      .options = {{"dry-run", '\0', "", "list problems, candidates and minutes; do nothing", false},
                  {"retune", '\0', "", "tune problems that are tuned already, too", false},
                  {"stale", '\0', "", "tune the problems whose rows are stale", false},
                  {"gpus", '\0', "LIST",
                   "tune on several accelerators at once, a worker for each: all, or their numbers "
                   "joined by commas",
                   false},
                  {"warmup", '\0', "N", "samples discarded, per candidate; default 5", false},
                  {"iters", '\0', "N", "most samples taken, per candidate; default 100", false},
                  {"isolate", '\0', "on|off",
                   "run candidates in a process of their own; default on, off is for debuggers",
                   false},
                  {"timeout", '\0', "TIME",
                   "a candidate that takes longer than this, and than fifty times the default, is "
                   "killed; default 2s",
                   false},
                  {"prepare-budget", '\0', "TIME",
                   "time for kernels that compile at run time, for each problem and besides the "
                   "budget; default 2m",
                   false}},
      .run = run};
}

}  // namespace attune::cli
