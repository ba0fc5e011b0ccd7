#include "chain/tuning.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/profiler.hpp>
#include <attune/core/version.hpp>
#include <attune/tuner/objective.hpp>

#include "measuring/suspect_runner.hpp"

namespace attune::chain {
namespace {

std::string params_text(const Candidate& candidate) {
  return to_text(candidate.kernel->params(candidate.config));
}

void emit_trial(State& state, Call& call, const Trial& trial) {
  const std::string config = config_text(*trial.candidate.kernel, trial.candidate.config);
  const std::string reason =
      str(to_string(trial.outcome), trial.reason.empty() ? "" : ": ", trial.reason);
  Event event = call.event(EventKind::kTrial, Tier::kAutotune);
  event.kernel = trial.candidate.kernel->name();
  event.version = trial.candidate.kernel->version();
  event.config = config;
  event.reason = reason;
  event.median_us = trial.median_us;
  event.objective = objective_name(state.settings.tuner);
  event.fault = trial.outcome == TrialOutcome::kWrong || trial.outcome == TrialOutcome::kFailed ||
                trial.outcome == TrialOutcome::kCrashed;
  state.events.emit(event);
}

void emit_started(State& state, Call& call, const std::vector<const RegisteredKernel*>& kernels) {
  if (!state.events.active()) return;
  Event event = call.event(EventKind::kTuneStarted, Tier::kAutotune);
  for (const RegisteredKernel* entry : kernels) {
    event.candidates +=
        static_cast<std::int64_t>(entry->kernel->candidate_count(call.problem, call.info()).count);
  }
  state.events.emit(event);
}

void emit_finished(State& state, Call& call, const Tuned& tuned) {
  if (!state.events.active()) return;
  Event event = call.event(EventKind::kTuneFinished, Tier::kAutotune);
  event.candidates = std::ssize(tuned.result.trials);
  event.prepare_us = static_cast<double>(tuned.result.preparing.count());
  event.objective = objective_name(state.settings.tuner);
  event.reason = !tuned.choice                 ? "no candidate is of use"
                 : tuned.result.incumbent_kept ? "nothing beats what was stored"
                 : tuned.result.complete       ? "complete"
                                               : "the budget ended first";
  if (tuned.choice) {
    event.kernel = tuned.row.kernel;
    event.version = tuned.choice->kernel->version();
    event.config = tuned.row.config;
    event.median_us = tuned.row.median_us;
    event.default_us = tuned.row.default_us;
  }
  state.events.emit(event);
}

bool is_refused(TrialOutcome outcome) {
  return outcome == TrialOutcome::kUnsupported || outcome == TrialOutcome::kQuarantined ||
         outcome == TrialOutcome::kWrong || outcome == TrialOutcome::kFailed ||
         outcome == TrialOutcome::kCrashed;
}

/// Whether a candidate must not be tried again. One that threw must not if it ran in a process of
/// its own: in this one, the program may have lacked memory for other reasons.
bool is_bad(TrialOutcome outcome, bool isolated) {
  return outcome == TrialOutcome::kWrong || outcome == TrialOutcome::kCrashed ||
         (outcome == TrialOutcome::kFailed && isolated);
}

/// Why it must not. A lack of memory may pass: that reason expires, as a suspicion does.
std::string quarantine_reason(const Trial& trial) {
  const bool lacked_memory = trial.outcome == TrialOutcome::kFailed &&
                             trial.reason.find(tuning::kOutOfMemory) != std::string::npos;
  return str(lacked_memory ? kSuspect : "", to_string(trial.outcome), ": ", trial.reason);
}

ConfigRow make_row(Call& call, const TuneResult& result, std::int64_t now) {
  const Trial& winner = result.trials[static_cast<std::size_t>(result.winner)];
  const Trial& by_default = result.trials[static_cast<std::size_t>(result.default_trial)];
  ConfigRow row;
  row.key = call.row_key();
  row.bucket = call.bucket();
  row.kernel = winner.candidate.kernel->name();
  row.kernel_version = winner.candidate.kernel->version();
  row.config = params_text(winner.candidate);
  // By the ratio that the race found: between the two medians the clock may have drifted. A default
  // that is of no use was not timed; then the row says the winner's time for both.
  const bool paired = by_default.median_us > 0 && winner.relative > 0;
  row.default_us = by_default.median_us > 0 ? by_default.median_us : winner.median_us;
  row.median_us = paired ? winner.relative * by_default.median_us : winner.median_us;
  constexpr double kLeast = 1e-6;  // that a row holds; a score may be 0
  row.median_us = std::max(row.median_us, kLeast);
  row.default_us = std::max(row.default_us, kLeast);
  row.default_config = describe(by_default.candidate);
  row.spread = winner.spread;
  row.samples = winner.samples;
  row.error = winner.error;
  for (const Trial& trial : result.trials) {
    if (is_refused(trial.outcome)) {
      ++row.candidates_refused;
    } else if (trial.outcome != TrialOutcome::kNotReached) {
      ++row.candidates_tried;
    }
  }
  row.noise = result.noise;
  row.library_version = ATTUNE_VERSION;
  row.toolkit = call.info().driver;
  row.device_name = call.info().name;
  row.created = now;
  return row;
}

/// The trials that are stored: of those that ran the fastest, and of those that did not or are of
/// no use the first, so that a search of any length leaves some megabytes at most. The row of the
/// decision says how many there were.
std::vector<const Trial*> worth_storing(const TuneResult& result) {
  constexpr std::size_t kMostTimed = 2000;
  constexpr std::size_t kMostRefused = 200;
  std::vector<const Trial*> timed;
  std::vector<const Trial*> refused;
  for (const Trial& trial : result.trials) {
    if (trial.outcome == TrialOutcome::kNotReached) continue;
    (is_refused(trial.outcome) ? refused : timed).push_back(&trial);
  }
  if (timed.size() > kMostTimed) {
    // Those that raced to the end first: times of a single sample may be lucky ones.
    std::stable_sort(timed.begin(), timed.end(), [](const Trial* a, const Trial* b) {
      return std::pair(a->outcome, a->median_us) < std::pair(b->outcome, b->median_us);
    });
    timed.resize(kMostTimed);
  }
  if (refused.size() > kMostRefused) refused.resize(kMostRefused);
  timed.insert(timed.end(), refused.begin(), refused.end());
  return timed;
}

std::vector<TrialRow> make_trial_rows(Call& call, const TuneResult& result, std::int64_t now) {
  std::vector<TrialRow> rows;
  for (const Trial* trial : worth_storing(result)) {
    TrialRow row;
    row.key = call.row_key();
    row.kernel = trial->candidate.kernel->name();
    row.config = params_text(trial->candidate);
    row.outcome = to_string(trial->outcome);
    row.reason = trial->reason;
    row.median_us = trial->median_us;
    row.samples = trial->samples;
    row.error = trial->error;
    row.created = now;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Says so where the author's reference kernel lacks what a problem needs: its results are then
/// those that the default's kernel has (tuning::Oracle).
void warn_of_declining_oracle(const Call& call, const RegisteredKernel* oracle) {
  if (oracle == nullptr) return;
  const AnyProblem reduced = call.op.reduced(call.problem);
  const Support support =
      oracle->kernel->erased_supports(reduced, oracle_device(*oracle, call.device()).info());
  if (support) return;
  log_once(LogLevel::kWarning, str(oracle->kernel->name(), " declines ", call.op.name, " ",
                                   call.op.text(reduced, false), ": ", support.reason(),
                                   "; candidates are checked against the default's results"));
}

Tuner::Request make_request(State& state, Call& call, const Candidate& incumbent, bool isolated) {
  Tuner::Request request;
  request.op = &call.op;
  request.problem = call.problem;
  request.device = &call.device();
  request.kernels = competitors(state, call);
  if (request.kernels.empty()) throw Unsupported(why_unsupported(state, call));
  request.oracle = find_oracle(state.registry, call.op.name, call.device());
  warn_of_declining_oracle(call, request.oracle);
  request.incumbent = incumbent;
  request.constraints = call.request.constraints;
  request.neighbours = [&state, &call] { return nearest_configs(state, call); };
  if (call.policy.use_databases) {
    request.refuse = [&](const Candidate& candidate) {
      return state.store()
          .quarantined(call.row_key(), std::string(candidate.kernel->name()),
                       candidate.kernel->version(), params_text(candidate))
          .value_or("");
    };
  }
  request.on_trial = [&state, &call, isolated](const Trial& trial) {
    if (is_bad(trial.outcome, isolated) && call.policy.persist_autotune) {
      quarantine(state, call.row_key(), trial.candidate, quarantine_reason(trial));
    }
    if (state.events.active()) emit_trial(state, call, trial);
  };
  return request;
}

QuarantineRow quarantine_row(const RowKey& key, const Candidate& candidate) {
  QuarantineRow row;
  row.op = key.op;
  row.device_class = key.device_class;
  row.kernel = candidate.kernel->name();
  row.kernel_version = candidate.kernel->version();
  row.config = params_text(candidate);
  row.problem = key.problem;
  return row;
}

/// The settings' runner, or one in this process, that leaves notes beside the user's database.
auto with_notes(State& state, Call& call, const Tuner::Settings& settings) {
  return [&state, &call, make = settings.make_runner](const tuning::Workload& workload) {
    const AtRisk at_risk = make ? AtRisk::kMachine : AtRisk::kProcess;
    return tuning::make_suspect_runner(
        make ? make(workload) : tuning::make_local_runner(workload), workload,
        state.store().note_suspects(at_risk),
        [&call](const Candidate& candidate) { return quarantine_row(call.row_key(), candidate); });
  };
}

}  // namespace

std::string Tuned::failures() const {
  constexpr std::size_t kMost = 4;
  std::string text;
  std::size_t count = 0;
  for (const Trial& trial : result.trials) {
    if (!is_refused(trial.outcome) || ++count > kMost) continue;
    text +=
        str("\n  ", describe(trial.candidate), ": ", to_string(trial.outcome), ": ", trial.reason);
  }
  if (count > kMost) text += str("\n  and ", count_text(count - kMost, "more candidate"));
  return text;
}

void quarantine(State& state, const RowKey& key, const Candidate& candidate,
                const std::string& reason) {
  QuarantineRow row = quarantine_row(key, candidate);
  row.reason = reason;
  row.created = std::time(nullptr);
  state.store().quarantine(row);
}

Tuned run_tuning(State& state, Call& call, const Tuner::Settings& settings,
                 const Candidate& incumbent) {
  if (const Objective* objective = state.settings.tuner.objective.get(); objective != nullptr) {
    if (const std::string why = objective->why_unavailable(call.device()); !why.empty()) {
      throw Unavailable(str("objective ", objective->name(), ": ", why));
    }
  }
  const Tuner::Request request =
      make_request(state, call, incumbent, settings.make_runner != nullptr);
  emit_started(state, call, request.kernels);
  ++state.counters.tunings;
  Tuned tuned;
  bool stopped = false;
  Tuner::Settings with_stop = settings;  // that says so ever after
  with_stop.objective = state.settings.tuner.objective;
  with_stop.stop = [&] { return stopped = stopped || settings.stop(); };
  if (call.policy.persist_autotune) with_stop.make_runner = with_notes(state, call, settings);
  const ProfilerRange range(ProfilerRanges::kChoices,
                            [&] { return str("attune: tune ", call.describe()); });
  const auto begin = std::chrono::steady_clock::now();
  tuned.result = Tuner(with_stop).tune(request);
  const auto taken = std::chrono::steady_clock::now() - begin;
  state.counters.tuning_us += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
  tuned.stopped = stopped && !tuned.result.complete;
  const std::int64_t now = std::time(nullptr);
  tuned.trials = make_trial_rows(call, tuned.result, now);
  if (tuned.result.winner >= 0) {
    const Candidate& winner =
        tuned.result.trials[static_cast<std::size_t>(tuned.result.winner)].candidate;
    tuned.choice = Choice{winner.kernel, winner.config, Tier::kAutotune, Tier::kAutotune, false};
    tuned.row = make_row(call, tuned.result, now);
  }
  emit_finished(state, call, tuned);
  return tuned;
}

std::string publish(State& state, const Tuned& tuned) {
  return state.store().put(tuned.row, tuned.trials);
}

}  // namespace attune::chain
