// What the heuristics choose by now for problems that were tuned once, on any machine: beside the
// fastest candidate of each search, by the times that the search measured.
//
//   replayed_choice DATABASE...
//
// Databases are those that `attune tune` made: shipped ones have no trials. A line is the default's
// time / the fastest's, both times, the problem and both choices; "?" stands for the time of a
// default that the search had not among its candidates. Ends with the geometric mean of each default
// kernel, its worst, and how many are over 1.1; and with how much of what each kernel expects
// (Kernel::expected_us) its own default took, and by how much that varies. Nothing runs: no device is
// needed, and what is fitted to these times is to be measured on others.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/attune.hpp>
#include <attune/cache/database_text.hpp>
#include <attune/core/params.hpp>

namespace {

using namespace attune;

constexpr double kFar = 1.1;

std::string choice_text(std::string_view kernel, const std::string& config) {
  return str(kernel, ' ', config);
}

struct Total {
  int problems = 0, far = 0;
  double logs = 0, worst = 1;
};

/// Logarithms of time / expected time.
struct Expectation {
  int problems = 0;
  double logs = 0, squares = 0;
};

struct Report {
  std::map<std::string, Total, std::less<>> defaults;
  std::map<std::string, Expectation, std::less<>> expected;
};

/// The default is of the best priority and expects to take least: as the heuristic tier of a chain has
/// it, which asks for a device. `timed`: microseconds by choice.
std::string default_choice(const Registry& registry, const OpInfo& op, ProblemRef problem,
                           const DeviceInfo& device, const std::map<std::string, double>& timed,
                           Report& report) {
  std::string best;
  double best_us = HUGE_VAL;
  int priority = 0;
  for (const RegisteredKernel* entry :
       registry.kernels(op.name, kAutoPlatform, device.id.backend.view())) {
    const ErasedKernel& kernel = *entry->kernel;
    if (!kernel.erased_supports(problem, device)) continue;
    if (!best.empty() && entry->at.priority != priority) break;  // they are sorted
    const std::string choice =
        choice_text(kernel.name(), config_text(kernel, kernel.erased_heuristic(problem, device)));
    const auto us = kernel.erased_expected_us(problem, device);
    if (const auto found = timed.find(choice); us && found != timed.end()) {
      Expectation& expected = report.expected[std::string(kernel.name())];
      const double log = std::log(found->second / *us);
      ++expected.problems;
      expected.logs += log;
      expected.squares += log * log;
    }
    if (best.empty() || us.value_or(HUGE_VAL) < best_us) {
      best = choice;
      best_us = us.value_or(HUGE_VAL);
      priority = entry->at.priority;
    }
  }
  return best;
}

void replay(const Registry& registry, const StoredDecision& search, Report& report) {
  const RowKey& key = search.row.key;
  const std::optional<DeviceInfo> device = registry.describe_device_class(key.device_class);
  std::map<std::string, double> timed;
  for (const TrialRow& trial : search.trials) {
    if (trial.median_us > 0) timed[choice_text(trial.kernel, trial.config)] = trial.median_us;
  }
  if (!device || timed.empty()) return;
  const OpInfo& op = registry.op(key.op);
  const std::string chosen = default_choice(registry, op, op.parse(parse_params(key.problem, ' ')),
                                            *device, timed, report);
  const auto& [best, best_us] = *std::ranges::min_element(
      timed, {}, [](const auto& choice_and_us) { return choice_and_us.second; });
  const std::string rest =
      str(best_us, " us  ", key.op, ' ', key.problem, " | ", chosen, " | ", best);
  const auto found = timed.find(chosen);
  if (found == timed.end()) {
    std::printf("    ?         ? %s\n", rest.c_str());
    return;
  }
  const double ratio = found->second / best_us;
  std::printf("%5.3f %9.2f %s\n", ratio, found->second, rest.c_str());
  Total& total = report.defaults[chosen.substr(0, chosen.find(' '))];
  ++total.problems;
  total.logs += std::log(ratio);
  total.worst = std::max(total.worst, ratio);
  if (ratio > kFar) ++total.far;
}

void run(const std::vector<std::string>& paths) {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  Report report;
  for (const std::string& path : paths) {
    for (const StoredDecision& search : read_database_file(path).decisions) {
      replay(context->registry(), search, report);
    }
  }
  for (const auto& [kernel, total] : report.defaults) {
    std::printf("%-34s %4d problems: %.3f of the fastest, worst %.3f, %d over %.1f\n",
                kernel.c_str(), total.problems, std::exp(total.logs / total.problems), total.worst,
                total.far, kFar);
  }
  for (const auto& [kernel, expected] : report.expected) {
    const double mean = expected.logs / expected.problems;
    const double variance = expected.squares / expected.problems - mean * mean;
    std::printf("%-34s %4d problems: %.3f of what it expects, times or over %.3f\n", kernel.c_str(),
                expected.problems, std::exp(mean), std::exp(std::sqrt(std::max(variance, 0.0))));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.empty()) {
    std::fprintf(stderr, "usage: replayed_choice DATABASE...\n");
    return 2;
  }
  try {
    run(paths);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "replayed_choice: %s\n", error.what());
    return 5;
  }
}
