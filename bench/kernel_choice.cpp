// Whether the right kernel is the default: on each problem every kernel that takes it, by its own
// heuristic config, beside the one that the heuristic tier chooses.
//
//   [taskset -c 0-3] kernel_choice PROBLEM...
//
// A PROBLEM is "OP SPEC", one value a field, or @FILE with one a line. Runs on gpu:0 where there is
// one, else on the host, on as many cores as the process may use. Samples alternate; a line is the
// median time of a kernel, what it expected (Kernel::expected_us), and the median over rounds of
// its time / the default's. A kernel that takes many times as long as the fastest is timed once.
// Ends with how much longer than the fastest kernel the defaults took: the geometric mean over the
// problems, and the worst.
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

constexpr int kRounds = 9;
constexpr double kLost = 6;  // times the fastest

double median_ratio(const bench::Contender& a, const bench::Contender& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.samples_us.size(); ++i) {
    ratios.push_back(a.samples_us[i] / b.samples_us[i]);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

/// The default first, then the others by priority.
std::vector<bench::Contender> contenders_for(const Context& context, const OpInfo& op,
                                             ProblemRef problem, const Device& device) {
  std::vector<bench::Contender> all{{context.select(problem, {.device = &device})}};
  for (const RegisteredKernel* entry :
       context.registry().kernels(op.name, kAutoPlatform, device.info().id.backend.view())) {
    const ErasedKernel& kernel = *entry->kernel;
    if (&kernel == all.front().choice.kernel || entry->at.platform.view() == kReferencePlatform ||
        !kernel.erased_supports(problem, device.info())) {
      continue;
    }
    all.push_back({{.kernel = &kernel, .config = kernel.erased_heuristic(problem, device.info())}});
  }
  return all;
}

/// Takes a sample of each. Those that have lost with it go to the end; returns how many have not.
std::size_t put_lost_last(const bench::Copies& copies, std::vector<bench::Contender>& kernels) {
  bench::contest(copies, kernels, 1);
  double least = kernels.front().samples_us.front();
  for (const bench::Contender& each : kernels) least = std::min(least, each.samples_us.front());
  const auto lost = std::stable_partition(
      kernels.begin() + 1, kernels.end(),
      [&](const bench::Contender& each) { return each.samples_us.front() < kLost * least; });
  return static_cast<std::size_t>(lost - kernels.begin());
}

/// `text` is "OP SPEC". Returns how many times as long as the fastest kernel the default took.
double run(const Context& context, const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const OpInfo& op = context.registry().op(text.substr(0, space));
  const AnyProblem problem = op.parse(parse_params(text.substr(space), ' '));
  const Device& device = *context.registry().devices().back();  // the host is the first
  std::vector<bench::Contender> kernels = contenders_for(context, op, problem, device);
  const bench::Copies copies(op, problem, device);
  const std::size_t running = put_lost_last(copies, kernels);
  bench::contest(copies, std::span(kernels).first(running), kRounds - 1);
  double least = 1;
  for (const bench::Contender& each : kernels) {
    const double ratio = median_ratio(each, kernels.front());
    least = std::min(least, ratio);
    const ErasedKernel& kernel = *each.choice.kernel;
    const auto expected = kernel.erased_expected_us(problem, device.info());
    std::printf("%-64s %-34s %10.1f us, expected %10s %6.3f %s\n", text.c_str(),
                std::string(kernel.name()).c_str(), each.median_us(),
                expected ? str(std::round(*expected)).c_str() : "nothing", ratio,
                config_text(kernel, each.choice.config).c_str());
  }
  std::fflush(stdout);
  return 1 / least;
}

void run(const std::vector<std::string>& words) {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  double logs = 0, worst = 1;
  int problems = 0;
  for (const std::string& word : words) {
    for (const std::string& problem : bench::problems_of(word)) {
      const double times_fastest = run(*context, problem);
      logs += std::log(times_fastest);
      worst = std::max(worst, times_fastest);
      ++problems;
    }
  }
  std::printf(
      "%d problems: the defaults take %.3f times as long as the fastest kernel, at worst %.3f\n",
      problems, std::exp(logs / std::max(problems, 1)), worst);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::fprintf(stderr, "usage: kernel_choice \"OP SPEC\"... | @FILE\n");
    return 2;
  }
  try {
    run(words);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_choice: %s\n", error.what());
    return 5;
  }
}
