// The race: interleaved rounds in random order, with an anchor that is measured in all of them.
//
// A sample counts relative to the anchor's in its block of a round, so that a clock that drifts
// moves all alike. Losers leave as soon as it is clear that they are slower.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

namespace attune::tuning {

/// The time that one tuning may take. Nothing that has begun is interrupted.
class Budget {
 public:
  explicit Budget(const Tuner::Settings& settings) : settings_(&settings), start_(settings.now()) {}

  /// Whether `share` of the budget is spent, or somebody wants the tuning to stop.
  bool spent(double share) const { return settings_->stop() || remaining_us(share) <= 0; }
  double remaining_us(double share) const;
  std::chrono::microseconds elapsed() const;

 private:
  const Tuner::Settings* settings_;
  std::chrono::steady_clock::time_point start_;
};

/// A candidate that is right, with its samples.
struct Racer {
  std::size_t trial = 0;
  Candidate candidate;
  int repeats = 1;               // launches a sample
  double estimate_us = 0;        // of a launch, before the race
  std::vector<double> us;        // of a launch, by sample
  std::vector<double> relative;  // the same over the anchor's, by round
  bool racing = true;
  bool checked_at_full_size = false;
  std::string failure;  // why it failed while it was timed
  TrialOutcome failed_as = TrialOutcome::kFailed;

  /// Median relative to the anchor; by the estimates when the race did not get to a sample.
  double score(const Racer& anchor) const;
};

/// One sample: microseconds of a launch, over the racer's repeats. Throws CandidateFailure.
double sample_us(CandidateRunner& runner, const Racer& racer);

/// The same; false, with the racer's failure noted, when it fails.
bool try_sample(CandidateRunner& runner, Racer& racer, double& us);

class Race {
 public:
  using Dropped = std::function<void(const Racer&)>;

  /// `racers` outlive the race; `anchor` is one of them. `dropped` is told of each that leaves.
  Race(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
       std::vector<Racer>& racers, std::size_t anchor, Dropped dropped);

  /// Races until the best is clear, each has its samples, or `share` of the budget is spent: then
  /// false.
  bool run(double share);

 private:
  void thin_out(double share);
  void warm_up(double share);
  bool measure_alone(double share);  // nobody to race against: only how fast, and how quiet
  bool run_round(double share);
  bool run_block(const std::vector<Racer*>& block, double share);
  bool take_sample(Racer& racer, double& us);
  Racer& leader();
  void drop_losers();
  bool decided();
  void drop(Racer& racer);
  std::vector<Racer*> racing_besides_anchor();

  CandidateRunner& runner_;
  const Tuner::Settings& settings_;
  const Budget& budget_;
  std::vector<Racer>& racers_;
  Racer& anchor_;
  Dropped dropped_;
  std::mt19937_64 random_;
  int rounds_ = 0;
  bool all_race_ = true;  // nobody was left out for want of time
};

}  // namespace attune::tuning
