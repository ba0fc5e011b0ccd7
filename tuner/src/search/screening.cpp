// Before the race: each candidate is checked and timed once. What is wrong, fails or is far too
// slow does not race.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/tuner/objective.hpp>

#include "search/search.hpp"

namespace attune::tuning {
namespace {

// Of the budget:
constexpr double kScreeningShare = 0.5;   // for screening
constexpr double kFullCheckShare = 0.25;  // for checks at full size of every candidate
constexpr double kLongRunShare = 0.05;    // a launch that takes this long is timed once
constexpr double kSlowAtOnce = 2.0;       // times slower than the fastest so far: does not race
constexpr int kMostRepeats = 100000;
constexpr int kProbes = 4;
constexpr double kHostSampleUs = 1000;
constexpr double kDeviceSampleUs = 200;

}  // namespace

/// Kernels that compile at run time do so before anything is timed, many candidates at once.
void Search::prepare_listed() {
  std::vector<std::size_t> indices;  // the default and the incumbent come first
  for (std::size_t i = 0; i < candidates_.trials.size(); ++i) {
    const Trial& trial = candidates_.trials[i];
    if (is_open(trial) && trial.candidate.kernel->prepares()) indices.push_back(i);
  }
  prepare(indices);
}

/// Settles those that cannot be prepared, or not in time.
void Search::prepare(const std::vector<std::size_t>& indices) {
  if (indices.empty()) return;
  std::vector<Candidate> candidates;
  for (const std::size_t i : indices) candidates.push_back(candidates_.trials[i].candidate);
  const auto start = settings_.now();
  const auto left = settings_.prepare_budget - preparing_;
  const std::vector<Verdict> verdicts =
      runner_->prepare(candidates, std::chrono::duration_cast<std::chrono::milliseconds>(left));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (!verdicts[i].ok()) settle(indices[i], verdicts[i].outcome, verdicts[i].reason);
  }
  budget_.leave_out_since(start);
  preparing_ += std::chrono::duration_cast<std::chrono::microseconds>(settings_.now() - start);
}

void Search::screen_all() {
  // The default is timed whatever the budget says, and the incumbent unless the search is to stop:
  // one that is cut short must not lose what was known before.
  const auto by_default = static_cast<std::size_t>(candidates_.default_trial);
  if (is_open(candidates_.trials[by_default])) screen(by_default);
  if (const auto incumbent = static_cast<std::size_t>(candidates_.incumbent_trial);
      candidates_.incumbent_trial >= 0 && incumbent != by_default &&
      is_open(candidates_.trials[incumbent]) && device_failure_.empty() && !settings_.stop()) {
    screen(incumbent);
  }
  // Of those that are listed the next, then one of each large space.
  const std::size_t listed = candidates_.trials.size();
  std::size_t next = 0;
  bool any = true;
  while (any && may_go_on()) {
    any = false;
    while (next < listed && !any) any = screen_if_open(next++);
    for (LargeSpace& space : candidates_.spaces) {
      if (may_go_on()) any = screen_proposal(space) || any;
    }
  }
  proposed_all_ = candidates_.spaces.empty() ||
                  (!any && std::ranges::none_of(candidates_.spaces, &LargeSpace::cut_short));
}

bool Search::may_go_on() const {
  return device_failure_.empty() && !budget_.spent(kScreeningShare);
}

/// False when there is nothing to do.
bool Search::screen_if_open(std::size_t index) {
  if (!is_open(candidates_.trials[index]) || is_default_or_incumbent(index)) return false;
  screen(index);
  return true;
}

/// False when the search has no more to propose.
bool Search::screen_proposal(LargeSpace& space) {
  space.cut_short = space.kernel->prepares() && preparing_ >= settings_.prepare_budget;
  if (space.cut_short) return false;
  const std::optional<ConfigBlob> config = space.search.next();
  if (!config) return false;
  const std::size_t index = candidates_.trials.size();
  candidates_.trials.push_back(make_trial(request_, {space.kernel, *config}));
  if (!is_open(candidates_.trials[index])) {
    request_.on_trial(candidates_.trials[index]);
    return true;
  }
  if (space.kernel->prepares()) prepare({index});
  if (is_open(candidates_.trials[index])) screen(index);
  return true;
}

void Search::screen(std::size_t index) {
  const std::size_t before = racers_.size();
  check_and_time(index);
  const Trial& trial = candidates_.trials[index];
  double score = std::numeric_limits<double>::infinity();
  if (racers_.size() > before) score = racers_.back().estimate;
  if (trial.outcome == TrialOutcome::kSlow) score = trial.median_us;
  for (LargeSpace& space : candidates_.spaces) {
    if (space.kernel == trial.candidate.kernel) space.search.learn(trial.candidate.config, score);
  }
}

void Search::check_and_time(std::size_t index) {
  Racer racer;
  racer.trial = index;
  racer.candidate = candidates_.trials[index].candidate;
  bool reducible = true;
  if (!passes_reduced_check(racer, reducible) || !probe(racer)) return;
  if (!reducible) {
    const Racer* by_default = racer_of(candidates_.default_trial);
    if (!check_at_full_size(racer, by_default == nullptr ? nullptr : &by_default->candidate))
      return;
  } else if (is_default_or_incumbent(index) || can_check_all_at_full_size()) {
    if (!check_at_full_size(racer, nullptr)) return;
  }
  if (best_ <= 0 || racer.estimate < best_) best_ = racer.estimate;
  racers_.push_back(std::move(racer));
}

bool Search::passes_reduced_check(const Racer& racer, bool& reducible) {
  const std::optional<Verdict> verdict = runner_->check_reduced(racer.candidate, 0);
  reducible = verdict.has_value();
  if (!reducible) return true;
  candidates_.trials[racer.trial].error = verdict->error;
  if (!verdict->ok()) settle(racer.trial, verdict->outcome, verdict->reason);
  return verdict->ok() && keeps_error(racer.trial);
}

bool Search::keeps_error(std::size_t index) {
  const double error = candidates_.trials[index].error;
  const double most = request_.constraints.error;
  if (error <= most) return true;
  settle(index, TrialOutcome::kUnsupported,
         str("has an error of ", error, ", asked for was at most ", most));
  return false;
}

bool Search::probe(Racer& racer) {
  try {
    choose_repeats(racer);
  } catch (const CandidateFailure& failure) {
    settle(racer.trial, failure.outcome(), failure.what());
    return false;
  }
  if (is_default_or_incumbent(racer.trial) || best_ <= 0 || racer.estimate <= kSlowAtOnce * best_)
    return true;
  Trial& trial = candidates_.trials[racer.trial];
  trial.median_us = racer.estimate;
  trial.samples = 1;
  settle(racer.trial, TrialOutcome::kSlow,
         str("more than ", kSlowAtOnce,
             settings_.objective == nullptr ? " times slower than the fastest before it"
                                            : " times the least before it"));
  return false;
}

void Search::choose_repeats(Racer& racer) {
  double launch_us = std::numeric_limits<double>::infinity();
  const auto time = [&] { launch_us = std::min(launch_us, time_launch(*runner_, racer)); };
  const auto repeats_to_last = [&](double us) {
    const double wanted = std::ceil(us / launch_us);
    return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepeats)));
  };
  const double least_us = min_sample_us();
  time();
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  const bool runs_long = launch_us > kLongRunShare * budget_us;
  // First launches are slow (pages, caches, clocks), and a slow estimate asks for too few repeats:
  // time again with the repeats that the estimate asks for, until it asks for no more.
  for (int i = 0;
       !runs_long && i < kProbes && (i == 0 || repeats_to_last(least_us) > racer.repeats); ++i) {
    racer.repeats = repeats_to_last(least_us);
    time();
  }
  racer.estimate = launch_us;
  if (settings_.objective == nullptr) {
    if (!runs_long) racer.repeats = repeats_to_last(least_us);
    racer.sample_us = launch_us * racer.repeats;
  } else {
    racer.repeats = repeats_to_last(std::max(least_us, settings_.objective->least_sample_us()));
    score(racer);
  }
}

/// By the objective, which may take longer than the launches: it may wait for its counter.
void Search::score(Racer& racer) {
  const auto start = settings_.now();
  const Sample sample = take_sample(*runner_, racer);
  const std::chrono::duration<double, std::micro> took = settings_.now() - start;
  racer.estimate = sample.score;
  racer.sample_us = std::max(sample.us * racer.repeats, took.count());
}

/// Of launches that are timed.
double Search::min_sample_us() const {
  if (settings_.min_sample_us > 0) return settings_.min_sample_us;
  // A host interrupts what it runs, so its samples are longer; a device has a clock of its own.
  const bool on_host = request_.device->info().id.backend == cpu_device().info().id.backend;
  return on_host ? kHostSampleUs : kDeviceSampleUs;
}

bool Search::can_check_all_at_full_size() const {
  if (!candidates_.spaces.empty()) return false;
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  // The first check also makes the memory that results are fetched to: a second one shows more.
  const double count = full_checks_ < 2 ? 2 : static_cast<double>(candidates_.trials.size());
  return full_check_us_ * count <= kFullCheckShare * budget_us;
}

bool Search::check_at_full_size(Racer& racer, const Candidate* like) {
  const auto start = settings_.now();
  const Verdict verdict = runner_->check_at_full_size(racer.candidate, like);
  const double took_us = std::chrono::duration<double, std::micro>(settings_.now() - start).count();
  if (verdict.ok()) {
    full_check_us_ = full_checks_ == 0 ? took_us : std::min(full_check_us_, took_us);
    ++full_checks_;
  }
  racer.checked_at_full_size = true;
  Trial& trial = candidates_.trials[racer.trial];
  trial.error = std::max(trial.error, verdict.error);
  if (!verdict.ok()) settle(racer.trial, verdict.outcome, str("at full size: ", verdict.reason));
  return verdict.ok() && keeps_error(racer.trial);
}

}  // namespace attune::tuning
