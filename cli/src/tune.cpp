// `attune tune`: searches configs for problems and stores what it finds.
#include <algorithm>
#include <limits>

#include "interrupt.hpp"
#include "isolated_runner.hpp"
#include "session.hpp"
#include "text.hpp"
#include "tune_progress.hpp"
#include "verb.hpp"

namespace attune::cli {
namespace {

constexpr std::chrono::milliseconds kProblemBudget{10'000};  // where --budget is not given

/// The row that makes tuning a target unnecessary: of this very problem, by a kernel as it is now.
std::optional<ConfigRow> known_row(const Session& session, const Target& target) {
  const RowKey key = row_key(target, session.request(target));
  for (ConfigStore::Hit& hit :
       session.chain().store().find(key, target.op->text(target.problem, true))) {
    const RegisteredKernel* kernel = session.registry().find_kernel(hit.row.kernel);
    if (!hit.bucket && kernel != nullptr && kernel->kernel->version() == hit.row.kernel_version)
      return hit.row;
  }
  return std::nullopt;
}

std::size_t candidate_count(const Session& session, const Target& target) {
  std::size_t count = 0;
  const DeviceInfo& info = target.device->info();
  for (const RegisteredKernel* kernel :
       session.registry().kernels(target.op->name, session.platform(), info.id.backend.view())) {
    const bool oracle = kernel->at.platform.view() == kReferencePlatform;
    if (oracle && session.platform() == kAutoPlatform)
      continue;  // competes only when nothing else does
    if (kernel->kernel->erased_supports(target.problem, info)) {
      count += kernel->kernel->erased_candidates(target.problem, info).size();
    }
  }
  return count;
}

Table dry_run(const Session& session, const std::vector<Target>& targets, bool retune) {
  Table table({"op", "problem", "device", "candidates", "state"});
  for (const Target& target : targets) {
    const bool known = known_row(session, target).has_value();
    table.add({target.op->name, target.text, str(target.device->info().id),
               candidate_count(session, target),
               known && !retune ? Cell("tuned", Tone::kFaint)
                                : Cell(known ? "to tune again" : "to tune")});
  }
  return table;
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

/// The chain stores what was timed, unless it was told to stop before the search had ended.
bool is_stored(const ConfigSelectorChain::TuneReport& report) {
  return report.row.median_us > 0 && (report.result.complete || !interrupted());
}

std::string result_text(const ConfigSelectorChain::TuneReport& report) {
  std::string text = report.result.incumbent_kept ? "kept" : "stored";
  if (!report.result.complete) text += ", budget ended";
  return text;
}

/// Tunes the targets one after the other, and keeps the table of what came of it.
class TuneRun {
 public:
  TuneRun(const Invocation& call, const Session& session)
      : session_(session),
        settings_(tuner_settings(call, session.seed())),
        budget_(call.options.duration("budget")),
        retune_(call.options.flag("retune")),
        begin_(std::chrono::steady_clock::now()) {}

  void tune(const std::vector<Target>& targets, TuneProgress& progress);

  Table take_table() { return std::move(table_); }
  std::size_t tuned() const { return tuned_; }
  std::size_t skipped() const { return skipped_; }
  std::size_t failed() const { return failed_; }
  std::size_t out_of_time() const { return out_of_time_; }

 private:
  std::chrono::milliseconds budget_for_next(std::size_t left) const;
  void tune_one(const Target& target, TuneProgress& progress);
  void add_row(const Target& target, const ConfigRow& row, std::string_view result, Tone tone);

  const Session& session_;
  Tuner::Settings settings_;
  std::optional<std::chrono::milliseconds> budget_;
  bool retune_;
  std::chrono::steady_clock::time_point begin_;
  Table table_{{"op", "problem", "kernel", "config", "median_us", "default_us", "speedup", "tried",
                "refused", "noise", "result"}};
  std::size_t tuned_ = 0;
  std::size_t skipped_ = 0;
  std::size_t failed_ = 0;
  std::size_t out_of_time_ = 0;
};

/// What is left of --budget, shared out among the problems that are left.
std::chrono::milliseconds TuneRun::budget_for_next(std::size_t left) const {
  if (!budget_) return kProblemBudget;
  const auto used = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin_);
  return (*budget_ - used) /
         static_cast<std::chrono::milliseconds::rep>(std::max<std::size_t>(left, 1));
}

void TuneRun::add_row(const Target& target, const ConfigRow& row, std::string_view result,
                      Tone tone) {
  const double speedup = row.median_us > 0 ? row.default_us / row.median_us : 0;
  table_.add({target.op->name, target.text, row.kernel,
              row.kernel.empty() ? Cell() : Cell(config_or_default(row.config)),
              Cell::unless_zero(row.median_us), Cell::unless_zero(row.default_us),
              Cell::unless_zero(speedup), row.candidates_tried, row.candidates_refused,
              row.median_us > 0 ? Cell(to_string(row.noise)) : Cell(), Cell(result, tone)});
}

void TuneRun::tune_one(const Target& target, TuneProgress& progress) {
  try {
    const auto report = session_.chain().tune(target.problem, session_.request(target), settings_);
    if (!is_stored(report)) return;
    ++tuned_;
    add_row(target, report.row, result_text(report), Tone::kGood);
    progress.finished(str(report.row.kernel, ' ', config_or_default(report.row.config), "  ",
                          number_text(report.row.median_us), " us, ",
                          ratio_text(report.row.default_us / report.row.median_us),
                          " over the heuristic"));
  } catch (const CacheError&) {
    throw;  // the next one could not be stored either
  } catch (const Error& error) {
    if (interrupted()) return;
    ++failed_;
    add_row(target, {}, str("failed: ", error.what()), Tone::kBad);
    progress.finished(str("failed: ", error.what()));
  }
}

void TuneRun::tune(const std::vector<Target>& targets, TuneProgress& progress) {
  for (std::size_t i = 0; i < targets.size() && !interrupted(); ++i) {
    progress.begin(i, targets[i].text);
    const std::optional<ConfigRow> known = retune_ ? std::nullopt : known_row(session_, targets[i]);
    if (known) {
      ++skipped_;
      add_row(targets[i], *known, "already tuned", Tone::kFaint);
      continue;
    }
    settings_.budget = budget_for_next(targets.size() - i);
    if (settings_.budget.count() <= 0) {
      ++out_of_time_;
      continue;
    }
    tune_one(targets[i], progress);
  }
}

std::string quoted(const std::string& word) {
  const bool plain = word.find_first_of(" '\"\\$*[]{}()<>|&;`!?~#") == std::string::npos;
  return plain && !word.empty() ? word : "'" + word + "'";
}

std::string resume_line(const Invocation& call, const Session& session) {
  std::string line = "attune tune";
  for (const std::string& word : call.words) line += ' ' + quoted(word);
  if (const auto budget = call.options.text("budget")) line += " --budget " + *budget;
  return line + session.options_text();
}

ExitCode finish(const Invocation& call, const Session& session, TuneRun& run, std::size_t targets) {
  call.print(run.take_table());
  const std::size_t left = targets - run.tuned() - run.skipped() - run.failed();
  call.note(str(run.tuned(), " tuned, ", run.skipped(), " already tuned",
                run.skipped() > 0 ? " (--retune tunes them again)" : "",
                run.failed() > 0 ? str(", ", run.failed(), " failed") : ""));
  if (interrupted()) {
    write_error(str("attune: interrupted; what was finished is stored. Resume: ",
                    resume_line(call, session), '\n'));
    return ExitCode::kInterrupted;
  }
  if (left > 0)
    call.note(
        str("the budget ended before ", left, " of them. Resume: ", resume_line(call, session)));
  return run.failed() > 0 ? ExitCode::kFailure : ExitCode::kOk;
}

ExitCode run(const Invocation& call) {
  if (call.words.empty()) throw UsageError("expected an op and a SPEC");
  if (call.options.flag("config"))
    throw UsageError("--config: an override is what tuning would replace");
  const bool dry = call.options.flag("dry-run");
  const Session session(call, {.writes_database = !dry});
  const std::vector<Target> targets = session.targets(call.words);
  if (dry) {
    call.print(dry_run(session, targets, call.options.flag("retune")));
    return ExitCode::kOk;
  }
  const InterruptGuard guard;
  TuneRun tuning(call, session);
  {
    TuneProgress progress(session.context().events(), targets.size(), call.quiet);
    tuning.tune(targets, progress);
  }
  return finish(call, session, tuning, targets.size());
}

}  // namespace

Verb tune_verb() {
  return {
      .name = "tune",
      .summary = "search the best configs for problems and store them",
      .usage = {"tune OP SPEC... [--budget TIME] [--retune] [--dry-run]"},
      .examples = {"tune recurrent_attention B=1,4 T=512 H=8 D=64 --dry-run",
                   "tune gated_linear_attention T=[512:4096:*2] H=16 D=128 dtype=bf16 --budget 2m",
                   "tune lightning_attention @shapes.jsonl --platform simd"},
      .details =
          "Each candidate is checked against the reference before it is timed. Times are compared "
          "with the "
          "heuristic's choice in the same session, and a stored config is replaced only by one "
          "that is at "
          "least 1.5 % faster. Problems that are tuned already are skipped. --budget is shared "
          "among the "
          "problems that are left; without it each gets 10 s at most.\n"
          "Ctrl-C keeps what is finished, and the same command goes on from there.",
      .options = {{"dry-run", '\0', "", "list the problems and do nothing", false},
                  {"retune", '\0', "", "tune problems that are tuned already, too", false},
                  {"warmup", '\0', "N", "samples discarded, per candidate; default 5", false},
                  {"iters", '\0', "N", "most samples taken, per candidate; default 100", false},
                  {"isolate", '\0', "on|off",
                   "run candidates in a process of their own; default on, off is for debuggers",
                   false},
                  {"timeout", '\0', "TIME",
                   "a candidate that takes longer than this, and than fifty times the default, is "
                   "killed; default 2s",
                   false}},
      .run = run};
}

}  // namespace attune::cli
