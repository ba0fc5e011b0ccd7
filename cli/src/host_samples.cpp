#include "host_samples.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

namespace attune::cli {
namespace {

constexpr double kShareOfTime = 0.96;
constexpr std::int64_t kFewestRounds = 3;

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
  using Clock = std::chrono::steady_clock;
  const long preempted_before = times_preempted();
  const double cpu_before = thread_cpu_us();
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) work();
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  const double cpu_us = thread_cpu_us() - cpu_before;
  const bool preempted = times_preempted() != preempted_before;
  return {us, cpu_us >= kShareOfTime * us && !preempted};
}

std::int64_t repeats_of(const HostWork& work, double min_sample_us) {
  work();
  const double once_us = std::max(take_sample(work, 1).us, 1e-3);
  return static_cast<std::int64_t>(std::max(1.0, std::ceil(min_sample_us / once_us)));
}

}  // namespace

HostRounds take_rounds(std::span<const HostWork> works, const MeasureSettings& settings) {
  std::vector<std::int64_t> repeats;
  for (const HostWork& work : works) repeats.push_back(repeats_of(work, settings.min_sample_us));
  HostRounds all, counted;
  all.us.resize(works.size());
  counted.us.resize(works.size());
  double spent_us = 0;
  const auto kept = [&] { return static_cast<std::int64_t>(counted.us.front().size()); };
  const auto enough = [&](std::int64_t round) {
    return kept() >= settings.iters || (round >= kFewestRounds && spent_us >= settings.budget_us);
  };
  for (std::int64_t round = 0; !enough(round) && !settings.stop(); ++round) {
    bool counts = true;
    std::vector<double> times;
    for (std::size_t i = 0; i < works.size(); ++i) {
      const Sample sample = take_sample(works[i], repeats[i]);
      spent_us += sample.us;
      counts &= sample.undisturbed;
      times.push_back(sample.us / static_cast<double>(repeats[i]));
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      all.us[i].push_back(times[i]);
      if (counts) counted.us[i].push_back(times[i]);
    }
  }
  if (kept() < kFewestRounds) return all;
  counted.kept = static_cast<double>(kept()) / static_cast<double>(all.us.front().size());
  return counted;
}

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(), std::divides<>());
  return median_of(std::move(ratios));
}

}  // namespace attune::cli
