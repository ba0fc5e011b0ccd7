// One tuning, from candidates to winner.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

#include "search/candidates.hpp"
#include "search/race.hpp"

namespace attune::tuning {

class Session {
 public:
  /// Both outlive the session. Throws Unsupported when no kernel takes the problem.
  Session(const Tuner::Settings& settings, const Tuner::Request& request);

  /// Throws what making the problem's tensors throws.
  TuneResult run();

 private:
  // session_admit.cpp: from candidates to racers
  void admit_all();
  void admit(std::size_t index);
  bool is_right_when_reduced(const Racer& racer, bool& reducible);
  bool probe(Racer& racer);
  void measure_repeats(Racer& racer);
  double min_sample_us() const;
  bool check_at_full_size(Racer& racer, const Candidate* like);
  bool can_check_all_at_full_size() const;

  // session.cpp: from racers to a winner
  double race_share() const;
  Racer* choose_winner();
  Racer* hold_against_what_is_known(Racer& best);
  Racer* best_right_racer();
  bool stands_a_last_check(Racer& racer);
  void settle(std::size_t index, TrialOutcome outcome, std::string reason);
  void settle_racer(const Racer& racer);
  bool is_protected(std::size_t index) const;
  Racer* racer_of(std::int64_t trial);
  TuneResult finish(bool raced_to_the_end, const Racer* winner);

  const Tuner::Settings& settings_;
  const Tuner::Request& request_;
  Budget budget_;
  Candidates candidates_;
  std::unique_ptr<CandidateRunner> runner_;
  std::vector<Racer> racers_;   // the anchor first
  double fastest_us_ = 0;       // the fastest racer's estimate
  double full_check_us_ = 0;    // what checking the first one at full size took
  std::string device_failure_;  // why nothing more can be tried
};

}  // namespace attune::tuning
