#include "search/race.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/statistics.hpp"

namespace attune::tuning {
namespace {

constexpr std::size_t kBlockSize = 15;    // racers that share one sample of the anchor
constexpr int kRoundsBeforeDropping = 4;  // by the ratio of medians
constexpr int kRoundsBeforeJudging = 8;   // by intervals, which need an estimate of the spread
constexpr double kSureWithin = 0.0025;    // ratios known this well: survivors are equally fast
constexpr double kWarmUpShare = 0.1;      // of what remains, at most
constexpr double kLeast = 1e-9;           // a clock may stand still; ratios must not

/// Round by round, how much longer `racer` took than `best`.
std::vector<double> paired_ratios(const Racer& racer, const Racer& best) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(racer.relative.size(), best.relative.size()); ++i) {
    ratios.push_back(racer.relative[i] / best.relative[i]);
  }
  return ratios;
}

/// The first of them, whose samples last about as long as that, or the first one.
std::span<Racer* const> within(double us, std::span<Racer* const> racers) {
  std::size_t count = 1;
  us -= racers.front()->sample_us;
  while (count < racers.size() && (us -= racers[count]->sample_us) >= 0) ++count;
  return racers.first(count);
}

}  // namespace

double Budget::remaining_us(double share) const {
  const double total = std::chrono::duration<double, std::micro>(settings_->budget).count();
  return total * share - static_cast<double>(elapsed().count());
}

std::chrono::microseconds Budget::elapsed() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(settings_->now() - start_ -
                                                               left_out_);
}

double Racer::score(const Racer& anchor) const {
  return relative.empty() ? estimate / anchor.estimate : median(relative);
}

double time_launch(CandidateRunner& runner, const Racer& racer) {
  return std::max(runner.time_us(racer.candidate, racer.repeats) / racer.repeats, kLeast);
}

Sample take_sample(CandidateRunner& runner, const Racer& racer) {
  const Sample all = runner.sample(racer.candidate, racer.repeats);
  return {std::max(all.us / racer.repeats, kLeast), std::max(all.score, kLeast)};
}

std::vector<double> sample_some(CandidateRunner& runner, std::span<Racer* const> racers) {
  std::vector<Timing> timings;
  for (const Racer* racer : racers) timings.push_back({racer->candidate, racer->repeats});
  std::vector<double> scores;
  for (const Timed& timed : runner.sample_each(timings)) {
    Racer& racer = *racers[scores.size()];
    if (timed.failure) {
      racer.failure = timed.failure->what();
      racer.failed_as = timed.failure->outcome();
      break;
    }
    scores.push_back(std::max(timed.sample.score, kLeast));
  }
  return scores;
}

Race::Race(CandidateRunner& runner, const Tuner::Settings& settings, const Budget& budget,
           std::vector<Racer>& racers, std::size_t anchor, Dropped dropped)
    : runner_(runner),
      settings_(settings),
      budget_(budget),
      racers_(racers),
      anchor_(racers[anchor]),
      dropped_(std::move(dropped)),
      random_(settings.seed) {}

bool Race::run(double share) {
  drop_for_lack_of_time(share);
  warm_up(share);
  if (racing_besides_anchor().empty()) return time_anchor_alone(share);
  while (rounds_ < settings_.iters) {
    if (budget_.spent(share) || !run_round(share)) return false;
    ++rounds_;
    if (rounds_ >= kRoundsBeforeDropping) drop_losers();
    if (decided()) return all_race_;
  }
  return all_race_;
}

/// Keeps as many as there is time to judge: with few samples each, the luckiest of many would win.
void Race::drop_for_lack_of_time(double share) {
  constexpr std::size_t kFewest = 2;
  std::vector<Racer*> racers = racing_besides_anchor();
  std::stable_sort(racers.begin(), racers.end(),
                   [](const Racer* a, const Racer* b) { return a->estimate < b->estimate; });
  const double round_us = (1 - kWarmUpShare) * budget_.remaining_us(share) / kRoundsBeforeJudging;
  double needed_us = anchor_.sample_us;
  for (std::size_t i = 0; i < racers.size(); ++i) {
    needed_us += racers[i]->sample_us;
    if (i < kFewest || needed_us <= round_us) continue;
    drop(*racers[i]);
    all_race_ = false;
  }
}

bool Race::time_anchor_alone(double share) {
  for (; rounds_ < std::min(settings_.iters, kRoundsBeforeJudging); ++rounds_) {
    if (budget_.spent(share) || !run_block({&anchor_}, share)) return false;
  }
  return true;
}

void Race::warm_up(double share) {
  double round_us = 0;
  for (const Racer& racer : racers_) round_us += racer.racing ? racer.sample_us : 0;
  const double affordable = kWarmUpShare * budget_.remaining_us(share) / std::max(round_us, 1e-3);
  const int rounds =
      static_cast<int>(std::clamp(affordable, 0.0, static_cast<double>(settings_.warmup)));
  for (int i = 0; i < rounds; ++i) {
    std::vector<Racer*> racing;
    for (Racer& racer : racers_) {
      if (racer.racing) racing.push_back(&racer);
    }
    sample_each(racing, share, [](Racer&, double) {});
  }
}

bool Race::run_round(double share) {
  std::vector<Racer*> order = racing_besides_anchor();
  std::shuffle(order.begin(), order.end(), random_);
  for (std::size_t begin = 0; begin < order.size(); begin += kBlockSize) {
    const std::size_t end = std::min(begin + kBlockSize, order.size());
    std::vector<Racer*> block(order.begin() + static_cast<std::ptrdiff_t>(begin),
                              order.begin() + static_cast<std::ptrdiff_t>(end));
    const auto at = std::uniform_int_distribution<std::ptrdiff_t>(0, std::ssize(block))(random_);
    block.insert(block.begin() + at, &anchor_);
    if (!run_block(block, share)) return false;
  }
  if (anchor_.racing) anchor_.relative.push_back(1);
  return true;
}

bool Race::run_block(const std::vector<Racer*>& block, double share) {
  std::vector<std::pair<Racer*, double>> samples;
  double of_anchor = 0;
  const bool all_sampled = sample_each(block, share, [&](Racer& racer, double score) {
    racer.scores.push_back(score);
    if (&racer == &anchor_) {
      of_anchor = score;
    } else {
      samples.emplace_back(&racer, score);
    }
  });
  if (!all_sampled || of_anchor == 0) return false;
  for (const auto& [racer, score] : samples) racer->relative.push_back(score / of_anchor);
  return true;
}

/// Takes the scores of all of them, but of those that fail, which leave the race. Whether there was
/// time for all.
bool Race::sample_each(std::span<Racer* const> racers, double share,
                       const std::function<void(Racer&, double score)>& take) {
  constexpr double kAtOnceUs = 10e3;  // for the user's Ctrl-C to wait for
  while (!racers.empty()) {
    if (budget_.spent(share)) return false;
    const double us = std::min(kAtOnceUs, budget_.remaining_us(share));
    const std::span<Racer* const> next = within(us, racers);
    const std::vector<double> scores = sample_some(runner_, next);
    for (std::size_t i = 0; i < scores.size(); ++i) take(*next[i], scores[i]);
    racers = racers.subspan(scores.size());
    if (!racers.empty() && !racers.front()->failure.empty()) {
      drop(*racers.front());
      racers = racers.subspan(1);
    }
  }
  return true;
}

std::vector<Racer*> Race::racing_besides_anchor() {
  std::vector<Racer*> all;
  for (Racer& racer : racers_) {
    if (racer.racing && &racer != &anchor_) all.push_back(&racer);
  }
  return all;
}

Racer& Race::leader() {
  Racer* best = nullptr;
  for (Racer& racer : racers_) {
    if (racer.racing && (best == nullptr || racer.score(anchor_) < best->score(anchor_)))
      best = &racer;
  }
  return best == nullptr ? anchor_ : *best;
}

void Race::drop_losers() {
  const Racer& best = leader();
  for (Racer& racer : racers_) {
    if (!racer.racing) continue;
    const std::vector<double> ratios = paired_ratios(racer, best);
    const double ratio = median(ratios);
    const bool surely_slower = ratio - median_uncertainty(ratios) > 1;
    if (surely_slower && (ratio > settings_.drop_ratio || rounds_ >= kRoundsBeforeJudging)) {
      drop(racer);
    }
  }
}

/// Whether nothing is left to find out: those that are surely slower have left.
bool Race::decided() {
  const Racer& best = leader();
  for (const Racer& racer : racers_) {
    if (!racer.racing || &racer == &best) continue;
    if (rounds_ < kRoundsBeforeJudging) return false;
    if (median_uncertainty(paired_ratios(racer, best)) > kSureWithin) return false;
  }
  return true;
}

void Race::drop(Racer& racer) {
  if (!racer.racing) return;
  racer.racing = false;
  dropped_(racer);
}

}  // namespace attune::tuning
