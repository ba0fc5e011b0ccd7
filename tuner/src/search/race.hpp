// The race (Maron and Moore, "Hoeffding Races", 1994): candidates are timed in rounds, and each
// leaves as soon as it is clear that it is slower than the best.
//
// Rounds are interleaved, in random order, and the anchor is timed in every block of a round: a
// sample counts relative to its block's anchor, so that a drifting clock moves all alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

namespace attune::tuning {

/// The time that one search may take. What has begun is not interrupted.
class Budget {
 public:
  explicit Budget(const Tuner::Settings& settings) : settings_(&settings), start_(settings.now()) {}

  /// Whether `share` of the budget is spent, or the search is to stop.
  bool spent(double share) const { return settings_->stop() || remaining_us(share) <= 0; }
  double remaining_us(double share) const;
  std::chrono::microseconds elapsed() const;

  /// What has passed since `start` has a budget of its own, and is no part of this one.
  void leave_out_since(std::chrono::steady_clock::time_point start) {
    left_out_ += settings_->now() - start;
  }

 private:
  const Tuner::Settings* settings_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::duration left_out_{0};
};

/// A candidate in the race, with its samples.
struct Racer {
  std::size_t trial = 0;
  Candidate candidate;
  int repeats = 1;               // launches a sample
  double sample_us = 0;          // that a sample takes: what planning goes by
  double estimate = 0;           // of a launch's score, before the race
  std::vector<double> scores;    // of a launch, by sample: its microseconds where time is minimised
  std::vector<double> relative;  // the same over the anchor's, by round
  bool racing = true;
  bool checked_at_full_size = false;
  std::string failure;  // why it failed while it was timed
  TrialOutcome failed_as = TrialOutcome::kFailed;

  /// Median score relative to the anchor; that of the estimates when there is no sample.
  double score(const Racer& anchor) const;
};

/// Microseconds of a launch, over the racer's repeats. Throws CandidateFailure.
double time_launch(CandidateRunner& runner, const Racer& racer);
/// One sample: the same and the score of a launch. Throws CandidateFailure.
Sample take_sample(CandidateRunner& runner, const Racer& racer);

/// Samples of some of the racers, one behind the other: of the first at least, and of none behind
/// one that fails, where the failure is noted. Their scores.
std::vector<double> sample_some(CandidateRunner& runner, std::span<Racer* const> racers);

class Race {
 public:
  using Dropped = std::function<void(const Racer&)>;

  /// `racers` outlive the race; `anchor` is one of them. `dropped` is told of each that leaves.
  Race(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
       std::vector<Racer>& racers, std::size_t anchor, Dropped dropped);

  /// Races until the best is clear or each has its samples. False when `share` of the budget was
  /// spent before that.
  bool run(double share);

 private:
  void drop_for_lack_of_time(double share);
  void warm_up(double share);
  bool time_anchor_alone(double share);
  bool run_round(double share);
  bool run_block(const std::vector<Racer*>& block, double share);
  bool sample_each(std::span<Racer* const> racers, double share,
                   const std::function<void(Racer&, double score)>& take);
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
  bool all_race_ = true;  // there was time for all of them
};

}  // namespace attune::tuning
