#include "search/search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "search/confirmation.hpp"
#include "search/statistics.hpp"

namespace attune::tuning {
namespace {

// Of the budget, for all that comes before the confirmation: at least, and at most.
constexpr double kLeastRaceShare = 0.6;
constexpr double kMostRaceShare = 0.85;

std::string describe(const Candidate& candidate) {
  return str(candidate.kernel->name(), " ", config_text(*candidate.kernel, candidate.config));
}

}  // namespace

Search::Search(const Tuner::Settings& settings, const Tuner::Request& request)
    : settings_(settings),
      request_(request),
      budget_(settings),
      candidates_(collect_candidates(request, settings.seed)) {}

TuneResult Search::run() {
  for (const Trial& trial : candidates_.trials) {
    if (!is_open(trial)) request_.on_trial(trial);
  }
  const auto by_default = static_cast<std::size_t>(candidates_.default_trial);
  const Workload workload{.op = request_.op,
                          .problem = request_.problem,
                          .device = request_.device,
                          .seed = settings_.seed,
                          .oracle = request_.oracle,
                          .default_kernel = candidates_.trials[by_default].candidate.kernel,
                          .objective = settings_.objective.get()};
  runner_ = settings_.make_runner ? settings_.make_runner(workload) : make_local_runner(workload);
  prepare_listed();
  screen_all();
  if (racers_.empty() || !device_failure_.empty()) return finish(device_failure_.empty(), nullptr);

  Race race(*runner_, settings_, budget_, racers_, 0,
            [&](const Racer& racer) { settle_racer(racer); });
  const bool raced_to_the_end = race.run(race_share());
  const Racer* winner = find_winner();
  return finish(raced_to_the_end, device_failure_.empty() ? winner : nullptr);
}

double Search::race_share() const {
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  const double confirming_us = full_check_us_ + confirmation_us(racers_.front());
  return std::clamp(1 - confirming_us / std::max(budget_us, 1.0), kLeastRaceShare, kMostRaceShare);
}

Racer* Search::find_winner() {
  while (Racer* best = best_that_passes()) {
    Racer* chosen = confirm(*best);
    if (chosen->failure.empty()) return chosen;
  }
  return nullptr;
}

Racer* Search::confirm(Racer& best) {
  Racer* chosen = &best;
  for (const std::int64_t trial : {candidates_.default_trial, candidates_.incumbent_trial}) {
    Racer* baseline = racer_of(trial);
    if (baseline == nullptr || baseline == chosen || !baseline->failure.empty()) continue;
    const bool faster = is_faster(*runner_, settings_, budget_, *chosen, *baseline, racers_.front(),
                                  settings_.hysteresis);
    for (const Racer* racer : {chosen, baseline}) {
      if (!racer->failure.empty()) settle_racer(*racer);
    }
    if (!chosen->failure.empty()) break;
    if (!faster) chosen = baseline;
  }
  return chosen;
}

Racer* Search::best_that_passes() {
  std::vector<Racer*> order;
  for (Racer& racer : racers_) {
    if (racer.failure.empty()) order.push_back(&racer);
  }
  const Racer& anchor = racers_.front();
  std::stable_sort(order.begin(), order.end(), [&](const Racer* a, const Racer* b) {
    if (a->racing != b->racing) return a->racing;
    return a->score(anchor) < b->score(anchor);
  });
  for (Racer* racer : order) {
    if (passes_last_check(*racer)) return racer;
    racer->racing = false;
    racer->failure = candidates_.trials[racer->trial].reason;
  }
  return nullptr;
}

bool Search::passes_last_check(Racer& racer) {
  if (settings_.stop() && racer.checked_at_full_size) return true;  // the search is to end now
  const std::optional<Verdict> verdict = runner_->check_reduced(racer.candidate, 1);
  if (verdict && !verdict->ok()) {
    settle(racer.trial, verdict->outcome, str("after the race: ", verdict->reason));
    return false;
  }
  return check_at_full_size(racer, nullptr);
}

void Search::settle(std::size_t index, TrialOutcome outcome, std::string reason) {
  Trial& trial = candidates_.trials[index];
  trial.outcome = outcome;
  trial.reason = std::move(reason);
  if (outcome == TrialOutcome::kNotReached) return;  // it was interrupted, and has no outcome
  if (outcome == TrialOutcome::kWrong || outcome == TrialOutcome::kFailed ||
      outcome == TrialOutcome::kCrashed) {
    if (static_cast<std::int64_t>(index) == candidates_.default_trial) {
      log(LogLevel::kWarning,
          str("the default ", describe(trial.candidate), " is of no use for ", request_.op->name,
              " ", request_.op->text(request_.problem, false), ": ", trial.reason));
    }
    if (const std::string lost = runner_->device_failure(); !lost.empty()) {
      device_failure_ = str("the device failed after ", describe(trial.candidate), ": ", lost);
      log(LogLevel::kWarning, device_failure_);
    }
  }
  request_.on_trial(trial);
}

void Search::settle_racer(const Racer& racer) {
  Trial& trial = candidates_.trials[racer.trial];
  trial.median_us = racer.scores.empty() ? racer.estimate : median(racer.scores);
  trial.samples = std::max<std::int64_t>(1, std::ssize(racer.scores));
  trial.spread = median_deviation(racer.scores) / trial.median_us;
  trial.relative = racer.score(racers_.front());
  if (!racer.failure.empty()) {
    settle(racer.trial, racer.failed_as, racer.failure);
  } else if (!racer.racing) {
    settle(racer.trial, TrialOutcome::kSlow, "");
  } else {
    settle(racer.trial, TrialOutcome::kOk, "");
  }
}

bool Search::is_default_or_incumbent(std::size_t index) const {
  const auto trial = static_cast<std::int64_t>(index);
  return trial == candidates_.default_trial || trial == candidates_.incumbent_trial;
}

Racer* Search::racer_of(std::int64_t trial) {
  for (Racer& racer : racers_) {
    if (static_cast<std::int64_t>(racer.trial) == trial) return &racer;
  }
  return nullptr;
}

TuneResult Search::finish(bool raced_to_the_end, const Racer* winner) {
  TuneResult result;
  result.complete = raced_to_the_end && proposed_all_;
  for (const Racer& racer : racers_) {
    Trial& trial = candidates_.trials[racer.trial];
    if (is_open(trial)) settle_racer(racer);
    if (&racer == winner)
      trial.outcome = TrialOutcome::kOk;  // the default or the incumbent may have left the race
  }
  for (Trial& trial : candidates_.trials) {
    if (!is_open(trial)) continue;
    result.complete = false;
    trial.reason = device_failure_.empty() ? "the budget ended first" : device_failure_;
    request_.on_trial(trial);
  }
  result.default_trial = candidates_.default_trial;
  const std::int64_t incumbent = candidates_.incumbent_trial;
  if (winner != nullptr) result.winner = static_cast<std::int64_t>(winner->trial);
  if (incumbent >= 0 && device_failure_.empty() &&
      candidates_.trials[static_cast<std::size_t>(incumbent)].outcome ==
          TrialOutcome::kNotReached) {
    result.winner = incumbent;  // it was not measured, so nothing is known to be better
  }
  result.incumbent_kept = incumbent >= 0 && result.winner == incumbent;
  if (!racers_.empty()) result.noise = noise_grade(racers_.front().scores);
  result.elapsed = budget_.elapsed();
  result.preparing = preparing_;
  result.trials = std::move(candidates_.trials);
  return result;
}

}  // namespace attune::tuning
