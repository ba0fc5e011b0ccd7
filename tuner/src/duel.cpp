#include "duel.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "statistics.hpp"

namespace attune::tuning {
namespace {

constexpr std::size_t kExchanges = 20;  // of four samples each
constexpr std::size_t kFewestExchanges = 4;
constexpr std::size_t kFewestSamples = 4;

/// The ratios challenger / holder, one for each exchange.
std::vector<double> exchange(Bench& bench, const Budget& budget, const Racer& challenger,
                             const Racer& holder) {
  std::vector<double> ratios;
  while (ratios.size() < kExchanges && !budget.spent(1)) {
    double ours = sample_us(bench, challenger);
    double theirs = sample_us(bench, holder);
    theirs += sample_us(bench, holder);
    ours += sample_us(bench, challenger);
    ratios.push_back(ours / theirs);
  }
  return ratios;
}

}  // namespace

bool is_faster(Bench& bench, const Tuner::Settings& settings, const Budget& budget,
               const Racer& challenger, const Racer& holder, const Racer& anchor, double margin) {
  std::vector<double> ratios;
  try {
    ratios = exchange(bench, budget, challenger, holder);
  } catch (const std::exception& error) {
    log(LogLevel::kWarning,
        str(challenger.candidate.kernel->name(), " against ", holder.candidate.kernel->name(),
            ": failed while measured: ", error.what()));
    return false;
  }
  if (ratios.size() >= kFewestExchanges) return median(ratios) <= 1 - margin;
  const double ratio =
      ratios.empty() ? challenger.score(anchor) / holder.score(anchor) : median(ratios);
  const bool raced = std::min(challenger.us.size(), holder.us.size()) >= kFewestSamples;
  return raced ? ratio <= 1 - std::max(margin, settings.hysteresis)
               : ratio * settings.drop_ratio <= 1;
}

}  // namespace attune::tuning
