// Before the race: each candidate is checked and timed once. What is wrong, fails or is far too
// slow does not race.
#include <algorithm>
#include <cmath>
#include <utility>

#include <attune/core/error.hpp>

#include "search/search.hpp"

namespace attune::tuning {
namespace {

// Of the budget:
constexpr double kScreeningShare = 0.5;  // for screening
constexpr double kFullCheckShare =
    0.25;                               // every candidate is checked at full size if this is enough
constexpr double kLongRunShare = 0.05;  // a launch that takes this long is timed once
constexpr double kSlowAtOnce = 2.0;     // times slower than the fastest so far: does not race
constexpr int kMostRepeats = 100000;
constexpr int kProbes = 4;
constexpr double kHostSampleUs = 1000;
constexpr double kDeviceSampleUs = 200;

}  // namespace

void Search::screen_all() {
  std::vector<std::size_t> order{static_cast<std::size_t>(candidates_.default_trial)};
  if (candidates_.incumbent_trial >= 0)
    order.push_back(static_cast<std::size_t>(candidates_.incumbent_trial));
  for (std::size_t i = 0; i < candidates_.trials.size(); ++i) order.push_back(i);
  for (const std::size_t index : order) {
    if (!is_open(candidates_.trials[index]) ||
        racer_of(static_cast<std::int64_t>(index)) != nullptr)
      continue;
    if (!device_failure_.empty()) return;
    // The default is timed whatever the budget says, and the incumbent unless the search is to
    // stop: one that is cut short must not lose what was known before.
    const bool is_default = static_cast<std::int64_t>(index) == candidates_.default_trial;
    const bool out_of_time =
        is_default_or_incumbent(index) ? settings_.stop() : budget_.spent(kScreeningShare);
    if (is_default || !out_of_time) screen(index);
  }
}

void Search::screen(std::size_t index) {
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
  if (fastest_us_ <= 0 || racer.estimate_us < fastest_us_) fastest_us_ = racer.estimate_us;
  racers_.push_back(std::move(racer));
}

bool Search::passes_reduced_check(const Racer& racer, bool& reducible) {
  const std::optional<Verdict> verdict = runner_->check_reduced(racer.candidate, 0);
  reducible = verdict.has_value();
  if (!reducible) return true;
  candidates_.trials[racer.trial].error = verdict->error;
  if (!verdict->ok()) settle(racer.trial, verdict->outcome, verdict->reason);
  return verdict->ok();
}

bool Search::probe(Racer& racer) {
  try {
    choose_repeats(racer);
  } catch (const CandidateFailure& failure) {
    settle(racer.trial, failure.outcome(), failure.what());
    return false;
  }
  if (is_default_or_incumbent(racer.trial) || fastest_us_ <= 0 ||
      racer.estimate_us <= kSlowAtOnce * fastest_us_)
    return true;
  Trial& trial = candidates_.trials[racer.trial];
  trial.median_us = racer.estimate_us;
  trial.samples = 1;
  settle(racer.trial, TrialOutcome::kSlow,
         str("more than ", kSlowAtOnce, " times slower than the fastest before it"));
  return false;
}

void Search::choose_repeats(Racer& racer) {
  const double least_us = min_sample_us();
  const auto repeats = [&] {
    const double wanted = std::ceil(least_us / racer.estimate_us);
    return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepeats)));
  };
  racer.estimate_us = sample_us(*runner_, racer);
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  if (racer.estimate_us > kLongRunShare * budget_us) return;
  // First launches are slow (pages, caches, clocks), and a slow estimate asks for too few repeats:
  // time again with the repeats that the estimate asks for, until it asks for no more.
  for (int i = 0; i < kProbes && (i == 0 || repeats() > racer.repeats); ++i) {
    racer.repeats = repeats();
    racer.estimate_us = std::min(racer.estimate_us, sample_us(*runner_, racer));
  }
  racer.repeats = repeats();
}

double Search::min_sample_us() const {
  if (settings_.min_sample_us > 0) return settings_.min_sample_us;
  // A host interrupts what it runs, so its samples are longer; a device has a clock of its own.
  const bool on_host = request_.device->info().id.backend == cpu_device().info().id.backend;
  return on_host ? kHostSampleUs : kDeviceSampleUs;
}

bool Search::can_check_all_at_full_size() const {
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  return full_check_us_ * static_cast<double>(candidates_.trials.size()) <=
         kFullCheckShare * budget_us;
}

bool Search::check_at_full_size(Racer& racer, const Candidate* like) {
  const auto start = settings_.now();
  const Verdict verdict = runner_->check_at_full_size(racer.candidate, like);
  if (full_check_us_ <= 0) {
    full_check_us_ = std::chrono::duration<double, std::micro>(settings_.now() - start).count();
  }
  racer.checked_at_full_size = true;
  Trial& trial = candidates_.trials[racer.trial];
  trial.error = std::max(trial.error, verdict.error);
  if (!verdict.ok()) settle(racer.trial, verdict.outcome, str("at full size: ", verdict.reason));
  return verdict.ok();
}

}  // namespace attune::tuning
