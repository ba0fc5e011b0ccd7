// One search: from the candidates for a problem to the one that is chosen. tuner.hpp says how.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <attune/tuner/candidate_runner.hpp>

#include "search/race.hpp"
#include "search/space_search.hpp"

namespace attune::tuning {

/// A kernel with more candidates than can be raced.
struct LargeSpace {
  const ErasedKernel* kernel;
  SpaceSearch search;
  bool cut_short = false;  // the budget for preparing ended before the search did
};

struct Candidates {
  /// The default, the incumbent, then the others, taken from the kernels in turn: all of a kernel
  /// with few of them. Of one with a large space, its heuristic's and those that other problems
  /// were tuned to; what its search proposes is appended.
  std::vector<Trial> trials;
  std::vector<LargeSpace> spaces;
  std::int64_t default_trial = -1;
  /// May be the default's. -1: nothing is stored, or it does not fit any more.
  std::int64_t incumbent_trial = -1;
};

/// The candidates of the kernels that support the problem, each once. The trials of those that do
/// not fit, or are refused, have their outcome already; the others are kNotReached. Throws
/// Unsupported when no kernel supports the problem.
Candidates collect_candidates(const Tuner::Request& request, std::uint64_t seed);

/// A trial that has its outcome already when the candidate does not fit or is refused.
Trial make_trial(const Tuner::Request& request, const Candidate& candidate);

/// Whether a trial has no outcome yet.
inline bool is_open(const Trial& trial) {
  return trial.outcome == TrialOutcome::kNotReached && trial.reason.empty();
}

class Search {
 public:
  /// Both outlive the search. Throws Unsupported when no kernel takes the problem.
  Search(const Tuner::Settings& settings, const Tuner::Request& request);

  /// Throws what making the problem's tensors throws.
  TuneResult run();

 private:
  // screening.cpp: checks and times each candidate once; those that are worth it race
  void prepare_listed();
  void prepare(const std::vector<std::size_t>& indices);
  void screen_all();
  bool may_go_on() const;
  bool screen_if_open(std::size_t index);
  bool screen_proposal(LargeSpace& space);
  void screen(std::size_t index);
  void check_and_time(std::size_t index);
  bool passes_reduced_check(const Racer& racer, bool& reducible);
  bool keeps_error(std::size_t index);
  bool probe(Racer& racer);
  void choose_repeats(Racer& racer);
  void score(Racer& racer);
  double min_sample_us() const;
  bool check_at_full_size(Racer& racer, const Candidate* like);
  bool can_check_all_at_full_size() const;

  // search.cpp: from the racers to the one that is chosen
  double race_share() const;
  Racer* find_winner();
  Racer* confirm(Racer& best);
  Racer* best_that_passes();
  bool passes_last_check(Racer& racer);
  void settle(std::size_t index, TrialOutcome outcome, std::string reason);
  void settle_racer(const Racer& racer);
  bool is_default_or_incumbent(std::size_t index) const;
  Racer* racer_of(std::int64_t trial);
  TuneResult finish(bool raced_to_the_end, const Racer* winner);

  const Tuner::Settings& settings_;
  const Tuner::Request& request_;
  Budget budget_;
  Candidates candidates_;
  std::unique_ptr<CandidateRunner> runner_;
  std::vector<Racer> racers_;               // the default first: the anchor
  std::chrono::microseconds preparing_{0};  // what it took so far
  double best_ = 0;                         // the best racer's estimate
  double full_check_us_ = 0;                // the shortest of the checks at full size that passed
  int full_checks_ = 0;                     // how many passed
  bool proposed_all_ = true;                // of what the large spaces have
  std::string device_failure_;              // why nothing more can be tried
};

}  // namespace attune::tuning
