// Every registered kernel of every op, with every config a tuner may try, against the oracle. A
// kernel is tested by being registered, an op by its list in tests/ops/shapes.cpp.
//
// The problem and seed that a failure prints are all that its case is made of.
#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/params.hpp>

#include "ops/shapes.hpp"
#include "support/heuristic_context.hpp"
#include "support/kernel_runs.hpp"
#include "support/pairwise.hpp"

namespace attune::test {
namespace {

constexpr std::byte kNanPoison{0xff};     // a NaN in every floating-point type
constexpr std::byte kFinitePoison{0x4b};  // about 1e7 in f32, 10 in f16

/// Problems larger than this, times their configs, are run with some of their configs only.
constexpr double kFlopBudget = 2e8;
constexpr std::uint64_t kRandomProblems = 150;
constexpr std::uint64_t kTakenProblems = 40;  // with tokens, at least, where so many are found
constexpr std::uint64_t kMostSeeds = 3000;
constexpr std::size_t kConfigsOfARandomProblem = 6;

struct KernelProblem {
  KernelOnDevice on;
  std::string problem;
  std::uint64_t seed = 0;
  bool random = false;

  friend std::ostream& operator<<(std::ostream& out, const KernelProblem& p) {
    return out << p.on << ", problem \"" << p.problem << "\", seed " << p.seed;
  }
};

const Registry& registry() { return heuristic_context().registry(); }

const OpShapes* shapes_of(std::string_view op) {
  const auto found = std::ranges::find(all_shapes(), op, &OpShapes::op);
  return found == all_shapes().end() ? nullptr : &*found;
}

std::vector<KernelProblem> listed_problems() {
  std::vector<KernelProblem> all;
  for (const KernelOnDevice& on : kernels_on_devices(registry())) {
    if (const OpShapes* shapes = shapes_of(on.op->name)) {
      for (std::string& problem : problems_of(*shapes)) {
        all.push_back({.on = on, .problem = std::move(problem), .seed = all.size()});
      }
    }
  }
  return all;
}

bool takes(const KernelOnDevice& on, const std::string& problem) {
  const AnyProblem parsed = on.op->parse(parse_params(problem, ' '));
  return on.op->flops(parsed) > 0 && on.kernel->erased_supports(parsed, on.info());
}

/// The same for every kernel, and of further ones those that a kernel takes, until a kernel that
/// takes few problems has had enough of them.
std::vector<KernelProblem> random_problems() {
  std::vector<KernelProblem> all;
  for (const KernelOnDevice& on : kernels_on_devices(registry())) {
    const OpShapes* shapes = shapes_of(on.op->name);
    if (shapes == nullptr) continue;
    std::uint64_t taken = 0;
    for (std::uint64_t seed = 0; seed < kMostSeeds; ++seed) {
      if (seed >= kRandomProblems && taken >= kTakenProblems) break;
      std::string problem = random_problem_of(*shapes, seed);
      const bool is_taken = takes(on, problem);
      if (is_taken) ++taken;
      if (!is_taken && seed >= kRandomProblems) continue;
      all.push_back({.on = on, .problem = std::move(problem), .seed = seed, .random = true});
    }
  }
  return all;
}

std::string as_test_name(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return text;
}

std::string problem_test_name(const testing::TestParamInfo<KernelProblem>& test) {
  return as_test_name(str(test.index, "_", test.param.on.kernel->name()));
}

std::string kernel_test_name(const testing::TestParamInfo<KernelOnDevice>& test) {
  return as_test_name(str(test.param.kernel->name(), "_on_", test.param.info().id));
}

/// `count` of `all`, evenly spread; which ones depends on `turn`.
std::vector<ConfigBlob> spread(const std::vector<ConfigBlob>& all, std::size_t count,
                               std::uint64_t turn) {
  const std::size_t step = std::max<std::size_t>(1, all.size() / std::max<std::size_t>(1, count));
  std::vector<ConfigBlob> some;
  for (std::size_t i = turn % step; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

/// All configs of a small problem, some of a large one or a random one.
std::vector<ConfigBlob> affordable_configs(const KernelProblem& what, ProblemRef problem) {
  const std::vector<ConfigBlob> all = configs_of(what.on, problem);
  const double affordable = kFlopBudget / std::max(1.0, what.on.op->flops(problem));
  auto count = static_cast<std::size_t>(std::min(affordable, static_cast<double>(all.size())));
  if (what.random) count = std::min(count, kConfigsOfARandomProblem);
  return spread(all, count, what.seed);
}

class EveryKernel : public testing::TestWithParam<KernelProblem> {};

TEST_P(EveryKernel, AgreesWithTheOracleAndWritesEveryOutput) {
  const auto& [on, text, seed, random] = GetParam();
  const AnyProblem problem = on.op->parse(parse_params(text, ' '));
  if (!on.kernel->erased_supports(problem, on.info())) return;

  const TensorMap expected = oracle_outputs(registry(), on, problem, seed);
  const std::unique_ptr<Case> inputs = on.op->make_case(problem, *on.device, seed);
  for (const ConfigBlob& config : affordable_configs(GetParam(), problem)) {
    SCOPED_TRACE(str("config ", config_text(*on.kernel, config)));
    const TensorMap first = run_on(*inputs, on, config, kNanPoison);
    const TensorMap second = run_on(*inputs, on, config, kFinitePoison);
    EXPECT_EQ(first_difference(first, second), "") << "run twice, outputs filled differently";
    for (const OutputCheck& check : inputs->compare(expected)) {
      EXPECT_TRUE(check.passed) << check.name << ": error " << check.error << ", tolerance "
                                << check.tolerance << " " << check.reason;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, EveryKernel, testing::ValuesIn(listed_problems()),
                         problem_test_name);
INSTANTIATE_TEST_SUITE_P(RandomProblems, EveryKernel, testing::ValuesIn(random_problems()),
                         problem_test_name);

class KernelOfTheLibrary : public testing::TestWithParam<KernelOnDevice> {
 protected:
  /// A kernel for CPUs with something that this one has not takes no problem here, whatever it is.
  void SetUp() override {
    const auto& [op, kernel, device] = GetParam();
    const AnyProblem problem = op->parse(parse_params(problems_of(*shapes_of(op->name))[0], ' '));
    const Support support = kernel->erased_supports(problem, device->info());
    if (support.code() == refused::kDevice) GTEST_SKIP() << support.reason();
  }

  std::vector<AnyProblem> supported_problems() const {
    std::vector<AnyProblem> problems;
    for (const std::string& text : problems_of(*shapes_of(GetParam().op->name))) {
      const AnyProblem problem = GetParam().op->parse(parse_params(text, ' '));
      if (GetParam().kernel->erased_supports(problem, GetParam().info()))
        problems.push_back(problem);
    }
    return problems;
  }
};

TEST_P(KernelOfTheLibrary, TakesSomeOfItsOpsShapes) { EXPECT_FALSE(supported_problems().empty()); }

TEST_P(KernelOfTheLibrary, OffersOnlyConfigsThatFit) {
  const auto& [op, kernel, device] = GetParam();
  for (const AnyProblem& problem : supported_problems()) {
    std::vector<ConfigBlob> offered = kernel->erased_candidates(problem, device->info());
    EXPECT_FALSE(offered.empty());
    offered.push_back(kernel->erased_heuristic(problem, device->info()));
    for (const ConfigBlob& config : offered) {
      EXPECT_EQ(kernel->erased_fits(problem, device->info(), config).reason(), "")
          << config_text(*kernel, config) << " for " << op->text(problem, false);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKernel, KernelOfTheLibrary,
                         testing::ValuesIn(kernels_on_devices(registry())), kernel_test_name);

bool is_threads(const AxisInfo& axis) { return axis.name == "threads"; }

std::vector<KernelOnDevice> threaded_kernels() {
  std::vector<KernelOnDevice> kernels = kernels_on_devices(registry());
  std::erase_if(kernels, [](const KernelOnDevice& on) {
    return std::ranges::none_of(on.kernel->axes(), is_threads);
  });
  return kernels;
}

class ThreadedKernel : public KernelOfTheLibrary {};

TEST_P(ThreadedKernel, GivesTheSameBitsWithAnyNumberOfThreads) {
  const KernelOnDevice& on = GetParam();
  const std::vector<AxisInfo> axes = on.kernel->axes();
  const AxisInfo& threads = *std::ranges::find_if(axes, is_threads);
  const std::vector<AnyProblem> problems = supported_problems();
  for (std::size_t i = 0; i < problems.size(); i += 8) {
    const std::unique_ptr<Case> inputs = on.op->make_case(problems[i], *on.device, i);
    std::optional<TensorMap> expected;
    for (const ConfigBlob& config : configs_along(on, problems[i], threads)) {
      TensorMap outputs = run_on(*inputs, on, config, kNanPoison);
      if (expected) {
        EXPECT_EQ(first_difference(*expected, outputs), "")
            << config_text(*on.kernel, config) << " for " << on.op->text(problems[i], false);
      } else {
        expected = std::move(outputs);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(EveryKernel, ThreadedKernel, testing::ValuesIn(threaded_kernels()),
                         kernel_test_name);

TEST(Pairwise, RowsCoverAllPairsOfValues) {
  const std::vector<std::size_t> counts{3, 1, 4, 2};
  for (std::size_t a = 0; a < counts.size(); ++a) {
    for (std::size_t b = a + 1; b < counts.size(); ++b) {
      std::set<std::pair<std::size_t, std::size_t>> pairs;
      for (const auto& row : pairwise(counts)) pairs.emplace(row[a], row[b]);
      EXPECT_EQ(pairs.size(), counts[a] * counts[b]);
    }
  }
}

TEST(Ops, AllHaveShapesToBeTestedOn) {
  for (const OpInfo* const op : registry().ops()) {
    EXPECT_NE(shapes_of(op->kernel_op), nullptr) << op->kernel_op;
  }
}

}  // namespace
}  // namespace attune::test
