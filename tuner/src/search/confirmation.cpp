#include "search/confirmation.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "search/statistics.hpp"

namespace attune::tuning {
namespace {

// A batch has the fewest sequences that a confidence interval of 99 % takes. Another program on the
// machine may disturb all of one batch, so a challenger has to win several.
constexpr std::size_t kSequencesInABatch = 8;
constexpr std::size_t kFewestBatches = 3;
constexpr std::size_t kMostBatches = 5;
constexpr std::size_t kSamplesInASequence = 4;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// The ratios challenger / baseline of one batch; fewer when the budget ends or one of them fails.
std::vector<double> time_batch(CandidateRunner& runner, const Budget& budget, Racer& challenger,
                               Racer& baseline) {
  std::vector<double> ratios;
  while (ratios.size() < kSequencesInABatch && !budget.spent(1)) {
    const bool challenger_first = ratios.size() % 2 == 0;
    Racer* const first = challenger_first ? &challenger : &baseline;
    Racer* const second = challenger_first ? &baseline : &challenger;
    const std::array<Racer*, kSamplesInASequence> sequence{first, second, second, first};
    double of_challenger = kNever, of_baseline = kNever;  // the less of two: less disturbed
    for (std::span<Racer* const> left = sequence; !left.empty();) {
      const std::vector<double> scores = sample_some(runner, left);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        double& best = left[i] == &challenger ? of_challenger : of_baseline;
        best = std::min(best, scores[i]);
      }
      left = left.subspan(scores.size());
      if (!challenger.failure.empty() || !baseline.failure.empty()) return ratios;
    }
    ratios.push_back(of_challenger / of_baseline);
  }
  return ratios;
}

/// Whether what there was time for leaves no doubt: the race, and the sequences if there were any,
/// say that the challenger is faster by as much as drops a loser from the race.
bool is_much_faster(const std::vector<double>& ratios, double raced, double drop_ratio) {
  const double slowest = ratios.empty() ? raced : std::max(raced, median_interval(ratios).high);
  return slowest * drop_ratio <= 1;
}

}  // namespace

double confirmation_us(const Racer& baseline) {
  return static_cast<double>(kFewestBatches * kSequencesInABatch * kSamplesInASequence) *
         baseline.sample_us;
}

bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& baseline, const Racer& anchor, double margin) {
  std::vector<double> ratios;
  for (std::size_t batches = 1; batches <= kMostBatches; ++batches) {
    const std::vector<double> latest = time_batch(runner, budget, challenger, baseline);
    if (!challenger.failure.empty()) return false;
    if (!baseline.failure.empty()) return true;
    ratios.insert(ratios.end(), latest.begin(), latest.end());
    if (latest.size() < kSequencesInABatch) {  // the budget ended
      const double raced = challenger.score(anchor) / baseline.score(anchor);
      return is_much_faster(ratios, raced, settings.drop_ratio);
    }
    const Interval ratio = median_interval(ratios);
    if (median(latest) >= 1 || ratio.low > 1 - margin) return false;
    if (batches >= kFewestBatches && ratio.high < 1 && median(ratios) <= 1 - margin) return true;
  }
  return false;
}

}  // namespace attune::tuning
