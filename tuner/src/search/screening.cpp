#include <algorithm>
#include <cmath>
#include <utility>

#include <attune/core/error.hpp>

#include "search/search.hpp"

namespace attune::tuning {
namespace {

constexpr double kAdmitShare = 0.5;  // of the budget, for admitting candidates to the race
constexpr double kFullCheckShare =
    0.25;  // of the budget, for checking each of them at full size before it
constexpr double kSlowAtOnce = 2.0;  // times slower than the fastest so far: not worth a race
constexpr double kLongRunShare =
    0.05;  // of the budget: a launch that takes this long is probed once
constexpr int kMostRepeats = 100000;
constexpr int kProbes = 4;
constexpr double kHostSampleUs = 1000;
constexpr double kDeviceSampleUs = 200;

}  // namespace

void Session::admit_all() {
  std::vector<std::size_t> order{static_cast<std::size_t>(candidates_.default_trial)};
  if (candidates_.incumbent_trial >= 0)
    order.push_back(static_cast<std::size_t>(candidates_.incumbent_trial));
  for (std::size_t i = 0; i < candidates_.trials.size(); ++i) order.push_back(i);
  for (const std::size_t index : order) {
    if (!is_open(candidates_.trials[index]) ||
        racer_of(static_cast<std::int64_t>(index)) != nullptr)
      continue;
    if (!device_failure_.empty()) return;
    // The default is measured whatever the budget says, and the incumbent unless somebody is
    // waiting: a search that was cut short must not lose what was known before.
    const bool is_default = static_cast<std::int64_t>(index) == candidates_.default_trial;
    const bool out_of_time = is_protected(index) ? settings_.stop() : budget_.spent(kAdmitShare);
    if (is_default || !out_of_time) admit(index);
  }
}

void Session::admit(std::size_t index) {
  Racer racer;
  racer.trial = index;
  racer.candidate = candidates_.trials[index].candidate;
  bool reducible = true;
  if (!is_right_when_reduced(racer, reducible) || !probe(racer)) return;
  if (!reducible) {
    const Racer* standard = racer_of(candidates_.default_trial);
    if (!check_at_full_size(racer, standard == nullptr ? nullptr : &standard->candidate)) return;
  } else if (is_protected(index) || can_check_all_at_full_size()) {
    if (!check_at_full_size(racer, nullptr)) return;
  }
  if (fastest_us_ <= 0 || racer.estimate_us < fastest_us_) fastest_us_ = racer.estimate_us;
  racers_.push_back(std::move(racer));
}

bool Session::is_right_when_reduced(const Racer& racer, bool& reducible) {
  const std::optional<Verdict> verdict = runner_->check_reduced(racer.candidate, 0);
  reducible = verdict.has_value();
  if (!reducible) return true;
  candidates_.trials[racer.trial].error = verdict->error;
  if (!verdict->ok()) settle(racer.trial, verdict->outcome, verdict->reason);
  return verdict->ok();
}

bool Session::probe(Racer& racer) {
  try {
    measure_repeats(racer);
  } catch (const CandidateFailure& failure) {
    settle(racer.trial, failure.outcome(), failure.what());
    return false;
  }
  if (is_protected(racer.trial) || fastest_us_ <= 0 ||
      racer.estimate_us <= kSlowAtOnce * fastest_us_)
    return true;
  Trial& trial = candidates_.trials[racer.trial];
  trial.median_us = racer.estimate_us;
  trial.samples = 1;
  settle(racer.trial, TrialOutcome::kSlow,
         str("more than ", kSlowAtOnce, " times slower than the fastest before it"));
  return false;
}

void Session::measure_repeats(Racer& racer) {
  const double least_us = min_sample_us();
  const auto repeats = [&] {
    const double wanted = std::ceil(least_us / racer.estimate_us);
    return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepeats)));
  };
  racer.estimate_us = sample_us(*runner_, racer);
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  if (racer.estimate_us > kLongRunShare * budget_us) return;
  // The first launches are slow (pages, caches, clocks): repeat until the estimate no longer falls
  // short of the repeats that were made for it.
  for (int i = 0; i < kProbes && (i == 0 || repeats() > racer.repeats); ++i) {
    racer.repeats = repeats();
    racer.estimate_us = std::min(racer.estimate_us, sample_us(*runner_, racer));
  }
  racer.repeats = repeats();
}

double Session::min_sample_us() const {
  if (settings_.min_sample_us > 0) return settings_.min_sample_us;
  // A host interrupts what it runs; a device is timed by its own clock.
  const bool on_host = request_.device->info().id.backend == cpu_device().info().id.backend;
  return on_host ? kHostSampleUs : kDeviceSampleUs;
}

bool Session::can_check_all_at_full_size() const {
  const double budget_us = std::chrono::duration<double, std::micro>(settings_.budget).count();
  return full_check_us_ * static_cast<double>(candidates_.trials.size()) <=
         kFullCheckShare * budget_us;
}

bool Session::check_at_full_size(Racer& racer, const Candidate* like) {
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
