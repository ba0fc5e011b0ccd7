// Whether tuning was worth it, and never harmful: the stored choice of each problem beside the
// heuristic's, in a process that did not tune it.
//
//   ATTUNE_DB=tuned.db tuned_vs_heuristic OP "SPEC" "SPEC" ...
//
// Runs on gpu:0 where there is one, else on the CPU. Samples alternate; a round's ratio is tuned /
// heuristic. Printed are the median ratio and its 99 % confidence interval (order statistics of the
// rounds). Exits 1 when an interval lies above 1.01.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <attune/core/params.hpp>

#include "contest.hpp"

namespace {

using namespace attune;

constexpr int kRounds = 60;
constexpr double kHarm = 1.01;
struct Interval {
  double low = 0, median = 0, high = 0;
};

Interval interval_99(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const double half_width = 2.576 * std::sqrt(n) / 2;  // of the median's rank
  const auto at = [&](double rank) {
    return ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  return {at(n / 2 - half_width), at(n / 2), at(n / 2 + half_width)};
}

/// Of the first's time over the second's.
Interval compare(const bench::Copies& copies, std::span<bench::Contender, 2> pair) {
  bench::contest(copies, pair, kRounds);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < pair[0].samples_us.size(); ++i) {
    ratios.push_back(pair[0].samples_us[i] / pair[1].samples_us[i]);
  }
  return interval_99(ratios);
}

/// Whether the stored choice is no slower than the heuristic's.
bool is_harmless(const Context& tuned, const Context& untuned, const OpInfo& op,
                 const std::string& text) {
  const std::vector<const Device*>& devices = tuned.registry().devices();
  const Device& device = *devices.back();  // the host is the first
  const AnyProblem problem = op.parse(parse_params(text, ' '));
  const Request request{.device = &device};
  const Choice stored = tuned.select(problem, request);
  const Choice guess =
      untuned.select(problem, {.device = untuned.registry().find_device(device.info().id)});
  if (stored.tier != Tier::kPersistent) {
    std::printf("%-72s not in the database\n", text.c_str());
    return true;
  }
  const bench::Copies copies(op, problem, device);
  bench::Contender pair[] = {{stored, problem, device}, {guess, problem, device}};
  const Interval ratio = compare(copies, pair);
  const bool harm = ratio.low > kHarm;
  std::printf("%-72s %9.1f us, heuristic %9.1f us, ratio %.3f [%.3f, %.3f]%s\n", text.c_str(),
              pair[0].median_us(), pair[1].median_us(), ratio.median, ratio.low, ratio.high,
              harm ? "  SLOWER" : "");
  return !harm;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tuned_vs_heuristic OP \"SPEC\" ...\n");
    return 2;
  }
  try {
    const auto tuned = make_context({.policy = Policy::kDb});
    const auto untuned = make_context({.policy = Policy::kHeuristic, .database = ""});
    const OpInfo& op = tuned->registry().op(argv[1]);
    bool harmless = true;
    for (int i = 2; i < argc; ++i) harmless &= is_harmless(*tuned, *untuned, op, argv[i]);
    return harmless ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuned_vs_heuristic: %s\n", error.what());
    return 5;
  }
}
