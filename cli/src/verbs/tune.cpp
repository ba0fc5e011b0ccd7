// `attune tune`: searches configs for problems and stores what it finds.
#include <algorithm>
#include <filesystem>

#include <attune/cache/config_database.hpp>

#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "process/isolated_runner.hpp"
#include "program/interrupt.hpp"
#include "program/verb.hpp"
#include "tuning/dry_run.hpp"
#include "tuning/shard.hpp"
#include "tuning/stale_targets.hpp"
#include "tuning/tune_plan.hpp"
#include "tuning/tune_progress.hpp"
#include "tuning/tune_run.hpp"
#include "verbs/db/db_verbs.hpp"

namespace attune::cli {
namespace {

IsolationSettings isolation_settings(const Invocation& call) {
  IsolationSettings settings;
  settings.plugins = call.options.texts("plugin");
  settings.timeout = call.options.duration("timeout").value_or(settings.timeout);
  settings.memory = default_worker_memory();
  settings.stop = interrupted;
  settings.idle = std::make_shared<IdleWorkers>();
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

/// --gpus local: the only accelerator that this process sees, else the one with the number that the
/// launcher gave it among those of its machine.
std::vector<const Device*> local_device(const CommandContext& command, const Device& like) {
  const std::vector<const Device*> all = command.accelerators_like(like, "local");
  if (all.size() == 1) return all;
  const std::optional<int> rank = local_rank(process_environment());
  if (!rank) {
    throw UsageError(str("--gpus local: there are ", all.size(),
                         " devices, and no launcher says which number this process has on its "
                         "machine; expected a number, or all"));
  }
  return command.accelerators_like(like, str(*rank));
}

/// The devices of --gpus: "all" of the accelerators that the first target would be tuned on, the
/// launcher's choice, or those of the numbers given. Empty without it. Rows are shared by devices
/// of one class only.
std::vector<const Device*> devices_of(const Invocation& call, const CommandContext& command,
                                      const std::vector<Target>& targets) {
  const std::optional<std::string> given = call.options.text("gpus");
  if (!given || targets.empty()) return {};
  if (call.options.flag("device")) throw UsageError("--gpus and --device: expected one of them");
  const Device& first_target = *targets[0].device;
  std::vector<const Device*> devices = *given == "local"
                                           ? local_device(command, first_target)
                                           : command.accelerators_like(first_target, *given);
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

/// Throws Unavailable where --objective cannot be measured.
void check_objective(const CommandContext& command, const std::vector<Target>& targets) {
  if (command.objective() == nullptr) return;
  for (const Target& target : targets) {
    const std::string why = command.objective()->why_unavailable(*target.device);
    if (!why.empty())
      throw Unavailable(str("--objective ", command.objective()->name(), ": ", why));
  }
}

/// Where there is something to tune, makes the user's database if it is not there. Throws
/// CacheError when it cannot be written: after an hour of tuning would be late to find that out.
void check_database(const CommandContext& command, const std::vector<Target>& targets,
                    bool retune) {
  const bool is_done = !retune && std::ranges::all_of(targets, [&](const Target& target) {
    return known_row(command, target).has_value();
  });
  if (is_done) return;
  const ConfigDatabase writable(user_database(command), ConfigDatabase::Mode::kReadWrite);
}

std::string quoted(const std::string& word) {
  const bool plain = word.find_first_of(" '\"\\$*[]{}()<>|&;`!?~#") == std::string::npos;
  return plain && !word.empty() ? word : "'" + word + "'";
}

std::string resume_line(const Invocation& call, const CommandContext& command) {
  std::string line = "attune tune";
  for (const std::string& word : call.words) line += ' ' + quoted(word);
  if (call.options.flag("stale")) line += " --stale";
  for (const char* name :
       {"shard", "db-dir", "budget", "gpus", "isolate", "timeout", "prepare-budget"}) {
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

/// --shard, which no other choice of problems goes with.
std::optional<Shard> shard_of(const Invocation& call) {
  const auto text = call.options.text("shard");
  if (!text) return std::nullopt;
  if (call.options.flag("stale"))
    throw UsageError("--shard and --stale: the split is of a list, not of what a database holds");
  return read_shard("--shard", *text, process_environment());
}

/// --db-dir: a database for each shard. Several machines never write to one file.
std::optional<std::string> database_of(const Invocation& call, const std::optional<Shard>& shard) {
  const auto folder = call.options.text("db-dir");
  if (!folder) return std::nullopt;
  if (!shard) throw UsageError("--db-dir: expected --shard as well");
  if (call.options.flag("db")) throw UsageError("--db-dir and --db: expected one of them");
  if (folder->empty()) throw UsageError("--db-dir: expected a folder");
  return (std::filesystem::path(*folder) / shard_file_name(*shard)).string();
}

/// Those of the problems that are the shard's.
std::vector<ListedProblem> part_of(const Invocation& call, const CommandContext& command,
                                   const Shard& shard, std::vector<ListedProblem> problems) {
  const std::vector<int> parts = shards_of(command, problems, shard.count);
  const std::size_t all = problems.size();
  std::vector<ListedProblem> ours;
  for (std::size_t i = 0; i < all; ++i) {
    if (parts[i] == shard.index) ours.push_back(std::move(problems[i]));
  }
  call.note(str(shard_text(shard), ": ", ours.size(), " of ", count_text(all, "line")));
  return ours;
}

ExitCode print_all_shards(const Invocation& call, const CommandContext& command) {
  const auto shards = call.options.integer("shards", 1, kMostShards);
  if (!call.options.flag("dry-run") || call.options.flag("shard") || call.options.flag("stale"))
    throw UsageError("--shards: lists what every shard has, with --dry-run; --shard i/n tunes one");
  return print_shards(call, command, command.listed(call.words), static_cast<int>(*shards));
}

ExitCode run(const Invocation& call) {
  const bool stale = call.options.flag("stale");
  if (call.words.empty() && !stale) throw UsageError("expected an op and a SPEC");
  if (call.options.flag("config"))
    throw UsageError("--config: an override is what tuning would replace");
  if (call.options.flag("workspace-limit")) {
    throw UsageError(
        "--workspace-limit: it bounds what is picked, and no tuning; --max-workspace tunes under a "
        "bound");
  }
  const bool dry = call.options.flag("dry-run");
  const std::optional<Shard> shard = shard_of(call);
  const CommandContext command(call,
                               {.writes_database = !dry, .database = database_of(call, shard)});
  command.check_device();
  if (call.options.flag("shards")) return print_all_shards(call, command);
  std::vector<Target> targets;
  if (stale) {
    targets = stale_targets(command, call.words);
  } else {
    std::vector<ListedProblem> problems = command.listed(call.words);
    if (shard) problems = part_of(call, command, *shard, std::move(problems));
    targets = command.targets(std::move(problems));
  }
  if (stale && targets.empty()) {
    call.note("no row that a device here can use is stale");
    return ExitCode::kOk;
  }
  check_objective(command, targets);
  order_by_cost(targets);
  if (dry) return print_plan(call, command, targets);
  const bool retune = call.options.flag("retune");
  check_database(command, targets, retune);
  const InterruptGuard guard;
  const std::vector<const Device*> devices = devices_of(call, command, targets);
  TuneRun tuning(command, {.tuner = tuner_settings(call, command.seed()),
                           .budget = call.options.duration("budget"),
                           .retune = retune});
  {
    TuneProgress progress(command.context().events(), targets.size(), command.unit(), call.quiet);
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
                "tune @FILE --shard I/N|auto [--db-dir FOLDER] [--gpus all|local|LIST]",
                "tune @FILE --shards N --dry-run",
                "tune --stale [OP SPEC...] [--budget TIME] [--dry-run]"},
      .examples = {"tune recurrent_attention B=1,4 T=512 H=8 D=64 --dry-run",
                   "tune gated_linear_attention T=[512:4096:*2] H=16 D=128 dtype=bf16 --budget 2m",
                   "tune @shapes.jsonl --dry-run",
                   "tune @shapes.jsonl --shard auto --gpus local --db-dir parts",
                   "tune --stale --budget 10m"},
      .details =
          "Each candidate is checked against the reference before it is timed. Times are "
          "compared with the heuristic's choice in the same session, and a stored config is "
          "replaced only by one that is at least 1.5 % faster. Problems that are tuned already "
          "are skipped. --budget is shared among the problems that are left; without it each "
          "gets 10 s at most.\n"
          "@FILE reads problems, one SPEC or JSON object a line. Those of ATTUNE_RECORD (see "
          "'attune record') are tuned on the device they were recorded on, those first that cost "
          "the most: hits times the time of a call.\n"
          "--objective energy minimises the energy of an NVIDIA GPU in place of the time, and "
          "--max-workspace and --max-error bound what may win; what is found is stored under them, "
          "and found by calls that ask for the same. --threads tunes for a number of threads, as "
          "taskset would.\n"
          "--stale takes the problems of stale rows, measured with another version of their kernel, of "
          "attune or of the driver, of all databases in effect; with OP SPEC, those among them. What is "
          "found goes to the user's database.\n"
          "--shard I/N tunes part I of 0 to N - 1, for many processes or machines: who has which problem "
          "follows from the list and N alone, and what is tuned already is skipped afterwards. auto "
          "takes I and N from Slurm, Open MPI, PMI, Flux, torchrun or Kubernetes (see docs/scale.md). "
          "Each part needs a database of its own: --db-dir names them 003-of-016.db. 'attune db merge' "
          "joins them, and 'attune db verify --covers' says what is missing.\n"
          "Ctrl-C keeps what is finished, and the same command goes on from there.",
      .options =
          {{"dry-run", '\0', "", "list problems, candidates and minutes; do nothing", false},
           {"retune", '\0', "", "tune problems that are tuned already, too", false},
           {"stale", '\0', "", "tune the problems whose rows are stale", false},
           {"gpus", '\0', "LIST",
            "tune on several accelerators at once, a worker for each: all, or their numbers "
            "joined by commas; local: on the one that the launcher gave this process",
            false},
           {"shard", '\0', "I/N", "tune part I of 0 to N - 1, or auto: the launcher's", false},
           {"shards", '\0', "N", "with --dry-run: list what each of N parts has", false},
           {"db-dir", '\0', "FOLDER", "with --shard: a database for each part, in FOLDER", false},
           {"warmup", '\0', "N", "samples discarded, per candidate; default 5", false},
           {"iters", '\0', "N", "most samples taken, per candidate; default 100", false},
           {"isolate", '\0', "on|off",
            "run candidates in a process of their own; default on, off is for debuggers", false},
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
