#include "duel.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "statistics.hpp"

namespace attune::tuning {
namespace {

constexpr std::size_t kExchanges = 40;  // of four samples each
constexpr std::size_t kExchangesBeforeJudging = 6;
constexpr std::size_t kFewestExchanges = 4;
constexpr std::size_t kFewestSamples = 4;

/// Whether the median is so far from what is asked for that more exchanges would not matter.
bool is_clear(const std::vector<double>& ratios, double margin) {
  if (ratios.size() < kExchangesBeforeJudging) return false;
  return std::abs(median(ratios) - (1 - margin)) > median_uncertainty(ratios);
}

/// The ratios challenger / holder, one for each exchange. Ends early when one of them fails.
std::vector<double> exchange(CandidateRunner& runner, const Budget& budget, Racer& challenger,
                             Racer& holder, double margin) {
  std::vector<double> ratios;
  while (ratios.size() < kExchanges && !is_clear(ratios, margin) && !budget.spent(1)) {
    double ours = 0, theirs = 0;
    for (const bool challenges : {true, false, false, true}) {
      double us = 0;
      if (!try_sample(runner, challenges ? challenger : holder, us)) return ratios;
      (challenges ? ours : theirs) += us;
    }
    ratios.push_back(ours / theirs);
  }
  return ratios;
}

}  // namespace

bool is_faster(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
               Racer& challenger, Racer& holder, const Racer& anchor, double margin) {
  const std::vector<double> ratios = exchange(runner, budget, challenger, holder, margin);
  if (!challenger.failure.empty()) return false;
  if (!holder.failure.empty()) return true;
  if (ratios.size() >= kFewestExchanges) {
    const double ratio = median(ratios);
    return ratio <= 1 - margin && ratio + median_uncertainty(ratios) < 1;
  }
  const double ratio =
      ratios.empty() ? challenger.score(anchor) / holder.score(anchor) : median(ratios);
  const bool raced = std::min(challenger.us.size(), holder.us.size()) >= kFewestSamples;
  return raced ? ratio <= 1 - std::max(margin, settings.hysteresis)
               : ratio * settings.drop_ratio <= 1;
}

}  // namespace attune::tuning
