#include "suites/host_samples.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

namespace attune::cli {
namespace {

constexpr double kShareOfTime = 0.96;
constexpr std::int64_t kFewestRounds = 3;
constexpr int kAttempts = 4;  // at a sample between quiet probes

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double thread_cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// How often a thread of the process was made to give up its core. Unlike the time that other
/// threads had, which the system adds up once a tick, this is exact at any moment.
long times_preempted() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

struct Sample {
  double us = 0;  // of all repeats
  bool undisturbed = false;
};

Sample take_sample(const HostWork& work, std::int64_t repeats) {
  const long preempted_before = times_preempted();
  const double cpu_before = thread_cpu_us();
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) work();
  const double us = us_since(start);
  const double cpu_us = thread_cpu_us() - cpu_before;
  const bool preempted = times_preempted() != preempted_before;
  return {us, cpu_us >= kShareOfTime * us && !preempted};
}

std::int64_t repeats_of(const HostWork& work, double min_sample_us) {
  work();
  const double once_us = std::max(take_sample(work, 1).us, 1e-3);
  return static_cast<std::int64_t>(std::max(1.0, std::ceil(min_sample_us / once_us)));
}

/// One sample of each work, and the longest that each probe took right before or after one.
struct Round {
  std::vector<double> us;
  bool undisturbed = true;  // as far as this process can tell
  std::vector<double> probe_us;
};

std::vector<double> times_of(std::span<QuietProbe> probes) {
  std::vector<double> us(probes.size());
  std::transform(probes.begin(), probes.end(), us.begin(),
                 [](QuietProbe& probe) { return probe.time_us(); });
  return us;
}

bool are_quiet(std::span<const QuietProbe> probes, const std::vector<double>& us) {
  return std::equal(probes.begin(), probes.end(), us.begin(),
                    [](const QuietProbe& probe, double time) { return probe.is_quiet(time); });
}

std::vector<double> longer_of(std::vector<double> a, const std::vector<double>& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(),
                 [](double x, double y) { return std::max(x, y); });
  return a;
}

/// Before each sample its work runs once, untimed: what ran before left other data in the caches. A
/// sample that others disturb is taken again, as long as there are `attempts`: whoever it is may be
/// gone in a moment. Adds the time of all of them to `spent_us`.
Round take_round(std::span<const HostWork> works, std::span<const std::int64_t> repeats,
                 std::span<QuietProbe> probes, int attempts, double& spent_us) {
  Round round;
  round.probe_us.resize(probes.size());
  std::vector<double> before = times_of(probes);
  for (std::size_t i = 0; i < works.size(); ++i) {
    Sample sample;
    std::vector<double> around;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const Clock::time_point start = Clock::now();
      works[i]();
      sample = take_sample(works[i], repeats[i]);
      spent_us += us_since(start);
      const std::vector<double> after = times_of(probes);
      around = longer_of(std::exchange(before, after), after);
      if (sample.undisturbed && are_quiet(probes, around)) break;
    }
    round.undisturbed &= sample.undisturbed;
    round.probe_us = longer_of(std::move(round.probe_us), around);
    round.us.push_back(sample.us / static_cast<double>(repeats[i]));
  }
  return round;
}

/// Judged anew each time: a later round may show what is the shortest time of a probe.
std::vector<const Round*> rounds_that_count(const std::vector<Round>& rounds,
                                            std::span<QuietProbe> probes) {
  std::vector<const Round*> counted;
  for (const Round& round : rounds) {
    if (round.undisturbed && are_quiet(probes, round.probe_us)) counted.push_back(&round);
  }
  return counted;
}

}  // namespace

double QuietProbe::time_us() {
  constexpr int kRuns = 3;
  work_();
  double us = take_sample(work_, 1).us;
  for (int run = 1; run < kRuns; ++run) us = std::min(us, take_sample(work_, 1).us);
  shortest_us_ = std::min(shortest_us_, us);
  return us;
}

bool QuietProbe::is_quiet(double us) const {
  constexpr double kNear = 1.15;
  return us <= kNear * shortest_us_;
}

HostRounds take_rounds(std::span<const HostWork> works, const MeasureSettings& settings,
                       std::span<QuietProbe> probes) {
  std::vector<std::int64_t> repeats;
  for (const HostWork& work : works) repeats.push_back(repeats_of(work, settings.min_sample_us));
  std::vector<Round> rounds;
  double spent_us = 0;
  const auto enough = [&] {
    const auto taken = static_cast<std::int64_t>(rounds.size());
    const auto counted = static_cast<std::int64_t>(rounds_that_count(rounds, probes).size());
    return counted >= settings.iters || (taken >= kFewestRounds && spent_us >= settings.budget_us);
  };
  while (!enough() && !settings.stop()) {
    rounds.push_back(take_round(works, repeats, probes, probes.empty() ? 1 : kAttempts, spent_us));
  }
  std::vector<const Round*> counted = rounds_that_count(rounds, probes);
  HostRounds result;
  result.us.resize(works.size());
  if (std::ssize(counted) >= kFewestRounds) {
    result.kept = static_cast<double>(counted.size()) / static_cast<double>(rounds.size());
  } else {
    counted.clear();
    for (const Round& round : rounds) counted.push_back(&round);
  }
  for (const Round* round : counted) {
    for (std::size_t i = 0; i < works.size(); ++i) result.us[i].push_back(round->us[i]);
  }
  return result;
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(), std::divides<>());
  return median_of(std::move(ratios));
}

}  // namespace attune::cli
