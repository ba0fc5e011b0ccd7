#include "search/confirmation.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "search/statistics.hpp"

namespace attune::tuning {
namespace {

// A bout is the fewest exchanges that an interval of 99 % takes. One that a neighbour on the
// machine disturbs proves nothing, so a challenger has to win several.
constexpr std::size_t kExchangesInABout = 8;
constexpr std::size_t kFewestBouts = 3;
constexpr std::size_t kMostBouts = 5;
constexpr std::size_t kSamplesInAnExchange = 4;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// The ratios challenger / holder of one bout, one for each exchange; fewer when the budget ends or
/// one of them fails.
std::vector<double> bout(CandidateRunner& runner, const Budget& budget, Racer& challenger,
                         Racer& holder) {
  std::vector<double> ratios;
  while (ratios.size() < kExchangesInABout && !budget.spent(1)) {
    const bool begins = ratios.size() % 2 == 0;
    double ours = kNever, theirs = kNever;  // of two each: what disturbs a sample makes it longer
    for (const bool challenges : {begins, !begins, !begins, begins}) {
      double us = 0;
      if (!try_sample(runner, challenges ? challenger : holder, us)) return ratios;
      double& best = challenges ? ours : theirs;
      best = std::min(best, us);
    }
    ratios.push_back(ours / theirs);
  }
  return ratios;
}

/// Whether what there was time for leaves no doubt: the race and the exchanges, if any, say that
/// the challenger is faster by as much as what drops a loser from the race.
bool is_much_faster(const std::vector<double>& ratios, double raced, double drop_ratio) {
  const double slowest = ratios.empty() ? raced : std::max(raced, median_interval(ratios).high);
  return slowest * drop_ratio <= 1;
}

}  // namespace

double duel_us(const Racer& holder) {
  return static_cast<double>(kFewestBouts * kExchangesInABout * kSamplesInAnExchange) *
         holder.repeats * holder.estimate_us;
}

bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& holder, const Racer& anchor, double margin) {
  std::vector<double> ratios;
  for (std::size_t bouts = 1; bouts <= kMostBouts; ++bouts) {
    const std::vector<double> latest = bout(runner, budget, challenger, holder);
    if (!challenger.failure.empty()) return false;
    if (!holder.failure.empty()) return true;
    ratios.insert(ratios.end(), latest.begin(), latest.end());
    if (latest.size() < kExchangesInABout) {  // the budget ended
      const double raced = challenger.score(anchor) / holder.score(anchor);
      return is_much_faster(ratios, raced, settings.drop_ratio);
    }
    const Interval ratio = median_interval(ratios);
    if (median(latest) >= 1 || ratio.low > 1 - margin) return false;
    if (bouts >= kFewestBouts && ratio.high < 1 && median(ratios) <= 1 - margin) return true;
  }
  return false;
}

}  // namespace attune::tuning
