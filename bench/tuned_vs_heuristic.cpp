// Whether tuning was worth it, and never harmful: the stored choice of each problem beside the
// heuristic's, in a process that did not tune it.
//
//   ATTUNE_DB=tuned.db tuned_vs_heuristic [--json] PROBLEM...
//
// A PROBLEM is "OP SPEC", one value a field, or @FILE with one a line (bench/contest.specs). Runs
// on gpu:0 where there is one, else on the CPU. Samples alternate, over tensors that are made anew
// a few times, as where they lie is worth some per cent; a round's ratio is tuned / heuristic.
// Printed are the median ratio and its 99 % confidence interval (order statistics of the rounds).
// Where the stored choice is the heuristic's there is nothing to time. Exits 1 when an interval
// lies above 1.01.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <attune/core/params.hpp>

#include "contest.hpp"

namespace {

using namespace attune;

constexpr int kPlacements = 4;
constexpr int kRounds = 15;  // in each
constexpr double kHarm = 1.01;

struct Interval {
  double low = 1, median = 1, high = 1;
};

struct Line {
  std::string op, problem;
  std::string kernel = {}, config = {};  // as stored; "" when it is not
  double tuned_us = 0, heuristic_us = 0;
  Interval ratio = {};

  bool is_stored() const { return !kernel.empty(); }
  bool was_timed() const { return tuned_us > 0; }
  bool is_slower() const { return ratio.low > kHarm; }
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

/// Of two contexts, each of which has kernels of its own.
bool same_choice(const Choice& a, const Choice& b) {
  return a.kernel->name() == b.kernel->name() &&
         a.kernel->params(a.config) == b.kernel->params(b.config);
}

void compare(const OpInfo& op, ProblemRef problem, const Device& device, const Choice& stored,
             const Choice& guess, Line& line) {
  bench::Contender pair[] = {{stored}, {guess}};
  std::vector<bench::Copies> placements;  // kept, or the next one would lie where the last one did
  for (int i = 0; i < kPlacements; ++i) {
    bench::contest(placements.emplace_back(op, problem, device), pair, kRounds);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < pair[0].samples_us.size(); ++i) {
    ratios.push_back(pair[0].samples_us[i] / pair[1].samples_us[i]);
  }
  line.tuned_us = pair[0].median_us();
  line.heuristic_us = pair[1].median_us();
  line.ratio = interval_99(std::move(ratios));
}

/// `text` is "OP SPEC".
Line run(const Context& tuned, const Context& untuned, const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  Line line{.op = text.substr(0, space), .problem = text.substr(std::min(space + 1, text.size()))};
  const Device& device = *tuned.registry().devices().back();  // the host is the first
  const OpInfo& op = tuned.registry().op(line.op);
  const AnyProblem problem = op.parse(parse_params(line.problem, ' '));
  const Choice stored = tuned.select(problem, {.device = &device});
  const Choice guess =
      untuned.select(problem, {.device = untuned.registry().find_device(device.info().id)});
  if (stored.tier != Tier::kPersistent) return line;
  line.kernel = stored.kernel->name();
  line.config = config_text(*stored.kernel, stored.config);
  if (!same_choice(stored, guess)) compare(op, problem, device, stored, guess, line);
  return line;
}

void print_text(const Line& line) {
  std::printf("%-28s %-48s ", line.op.c_str(), line.problem.c_str());
  if (!line.is_stored()) {
    std::printf("not in the database\n");
  } else if (!line.was_timed()) {
    std::printf("the heuristic's choice\n");
  } else {
    std::printf("%9.1f us, heuristic %9.1f us, ratio %.3f [%.3f, %.3f]%s  %s %s\n", line.tuned_us,
                line.heuristic_us, line.ratio.median, line.ratio.low, line.ratio.high,
                line.is_slower() ? "  SLOWER" : "", line.kernel.c_str(), line.config.c_str());
  }
  std::fflush(stdout);
}

void print_json(const std::vector<Line>& lines) {
  const char* before = "[";
  for (const Line& line : lines) {
    if (!line.is_stored()) continue;
    std::printf(
        "%s\n  {\"op\": \"%s\", \"problem\": \"%s\", \"tuned_us\": %.2f, \"heuristic_us\": %.2f, "
        "\"ratio\": %.4f, \"ratio_low\": %.4f, \"ratio_high\": %.4f, \"kernel\": \"%s\", "
        "\"config\": \"%s\"}",
        before, line.op.c_str(), line.problem.c_str(), line.tuned_us, line.heuristic_us,
        line.ratio.median, line.ratio.low, line.ratio.high, line.kernel.c_str(),
        line.config.c_str());
    before = ",";
  }
  std::printf("\n]\n");
}

int run(const std::vector<std::string>& words, bool json) {
  const auto tuned = make_context({.policy = Policy::kDb});
  const auto untuned = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::vector<Line> lines;
  for (const std::string& word : words) {
    for (const std::string& problem : bench::problems_of(word)) {
      lines.push_back(run(*tuned, *untuned, problem));
      if (!json) print_text(lines.back());
    }
  }
  if (json) print_json(lines);
  return std::ranges::none_of(lines, &Line::is_slower) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool json = std::erase(words, "--json") > 0;
  if (words.empty()) {
    std::fprintf(stderr, "usage: tuned_vs_heuristic [--json] \"OP SPEC\"... | @FILE\n");
    return 2;
  }
  try {
    return run(words, json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuned_vs_heuristic: %s\n", error.what());
    return 5;
  }
}
