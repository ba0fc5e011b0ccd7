#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/function_kernel.hpp>

namespace attune {
namespace {

using ::testing::ElementsAre;

struct LinesProblem {
  std::int64_t lines = 1;
};

struct Lines {
  static constexpr std::string_view kName = "lines";
  using Problem = LinesProblem;
  struct Args {};
  static constexpr auto fields() { return std::tuple{field("lines", &Problem::lines)}; }
};

enum class Path { kDirect, kStaged };
constexpr std::string_view to_string(Path path) {
  return path == Path::kDirect ? "direct" : "staged";
}

struct SmallConfig {
  using Op = Lines;
  int width = 2;
  Path path = Path::kDirect;
  int stages = 1;
  friend constexpr bool operator==(const SmallConfig&, const SmallConfig&) = default;
  static constexpr auto axes() {
    using C = SmallConfig;
    return std::tuple{launch_axis("width", &C::width, {1, 2, 4}),
                      launch_axis("path", &C::path, {Path::kDirect, Path::kStaged}),
                      launch_axis("stages", &C::stages, {1, 2}).when(&C::path, Path::kStaged)};
  }
  static constexpr auto constraints() {
    return std::tuple{constraint(
        "width <= lines", [](const LinesProblem& p, int width) { return width <= p.lines; },
        &SmallConfig::width)};
  }
};

/// Six axes of ten values, of which two and two are bound.
struct LargeConfig {
  using Op = Lines;
  int a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
  friend constexpr bool operator==(const LargeConfig&, const LargeConfig&) = default;
  static constexpr auto axes() {
    using C = LargeConfig;
    constexpr int kTen[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    return std::tuple{launch_axis("a", &C::a, kTen), launch_axis("b", &C::b, kTen),
                      launch_axis("c", &C::c, kTen), launch_axis("d", &C::d, kTen),
                      launch_axis("e", &C::e, kTen), launch_axis("f", &C::f, kTen)};
  }
  static constexpr auto constraints() {
    using C = LargeConfig;
    return std::tuple{constraint(
                          "a <= b", [](int a, int b) { return a <= b; }, &C::a, &C::b),
                      constraint(
                          "e == f", [](int e, int f) { return e == f; }, &C::e, &C::f)};
  }
};

template <class Config>
class LinesKernel final : public Kernel<Config> {
 public:
  using typename Kernel<Config>::Problem;
  std::string_view name() const noexcept override { return "test.lines"; }
  int version() const noexcept override { return 1; }
  Support supports(const Problem&, const DeviceInfo&) const override { return Support::yes(); }
  Support fits(const Problem&, const DeviceInfo&, const Config&) const override {
    ++asked;
    return Support::yes();
  }
  Config heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem&, const typename Lines::Args&, const Config&,
           const LaunchSite&) const override {}
  mutable std::int64_t asked = 0;
};

const DeviceInfo kDevice;

template <class Config>
std::vector<std::string> texts(const std::vector<ConfigBlob>& configs) {
  std::vector<std::string> all;
  for (const ConfigBlob& config : configs)
    all.push_back(to_text(to_params(Kernel<Config>::unpack(config))));
  return all;
}

TEST(ConfigSpace, ListsItsPointsInTheOrderOfTheAxesWithoutThoseThatBreakARule) {
  const LinesProblem problem{.lines = 3};
  const auto few =
      LinesKernel<SmallConfig>().few_candidates(ProblemRef::of<Lines>(problem), kDevice);
  ASSERT_TRUE(few.has_value());
  EXPECT_THAT(texts<SmallConfig>(*few),
              ElementsAre("width=1,path=direct", "width=2,path=direct",
                          "width=1,path=staged,stages=1", "width=2,path=staged,stages=1",
                          "width=1,path=staged,stages=2", "width=2,path=staged,stages=2"));
}

TEST(ConfigSpace, AConfigThatBreaksAConstraintDoesNotFitAndTheReasonSaysWhich) {
  const LinesKernel<SmallConfig> kernel;
  const LinesProblem problem{.lines = 3};
  const Support fits =
      kernel.erased_fits(ProblemRef::of<Lines>(problem), kDevice, kernel.pack({.width = 4}));
  EXPECT_FALSE(fits);
  EXPECT_EQ(fits.code(), refused::kConfig);
  EXPECT_EQ(fits.reason(), "breaks width <= lines");
  EXPECT_EQ(kernel.asked, 0);
}

TEST(ConfigSpace, SaysWhereAConditionalAxisMeansSomething) {
  const std::vector<ConfigSpace::Rule>& rules = config_space<SmallConfig>().rules;
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].text, "width <= lines");
  EXPECT_EQ(rules[1].text, "stages only where path=staged");
}

/// Blocks of lines that only one path has, by default more than a short problem's.
struct BlockedConfig {
  using Op = Lines;
  Path path = Path::kDirect;
  int block = 8;
  friend constexpr bool operator==(const BlockedConfig&, const BlockedConfig&) = default;
  static constexpr auto axes() {
    using C = BlockedConfig;
    return std::tuple{launch_axis("path", &C::path, {Path::kDirect, Path::kStaged}),
                      launch_axis("block", &C::block, {4, 8}).when(&C::path, Path::kStaged)};
  }
  static constexpr auto constraints() {
    return std::tuple{constraint(
        "block <= lines", [](const LinesProblem& p, int block) { return block <= p.lines; },
        &BlockedConfig::block)};
  }
};

TEST(ConfigSpace, AConstraintIsNotAskedWhereItsAxisMeansNothing) {
  const LinesKernel<BlockedConfig> kernel;
  const auto candidates = [&](std::int64_t lines) {
    const LinesProblem problem{.lines = lines};
    return texts<BlockedConfig>(*kernel.few_candidates(ProblemRef::of<Lines>(problem), kDevice));
  };
  EXPECT_THAT(candidates(1), ElementsAre("path=direct"));
  EXPECT_THAT(candidates(4), ElementsAre("path=staged,block=4", "path=direct"));
  EXPECT_EQ(candidates(8).size(), 3U);
}

struct WideConfig {
  using Op = Lines;
  int width = 4;
  friend constexpr bool operator==(const WideConfig&, const WideConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("width", &WideConfig::width, {2, 4})};
  }
  static constexpr auto constraints() {
    return std::tuple{constraint(
        "width <= lines", [](const LinesProblem& p, int width) { return width <= p.lines; },
        &WideConfig::width)};
  }
};

TEST(FunctionKernel, HasADefaultThatFitsOrTakesNoProblem) {
  const auto kernel = make_kernel<WideConfig>("test.wide", 1, [](const auto&, const auto&) {});
  const auto default_of = [&](const LinesProblem& problem) {
    return config_text(*kernel, kernel->erased_heuristic(ProblemRef::of<Lines>(problem), kDevice));
  };
  EXPECT_EQ(default_of({.lines = 9}), "width=4");
  EXPECT_EQ(default_of({.lines = 3}), "width=2");
  const LinesProblem short_problem{.lines = 1};
  const Support support = kernel->erased_supports(ProblemRef::of<Lines>(short_problem), kDevice);
  EXPECT_EQ(support.reason(), "no config keeps its constraints");
}

TEST(ConfigSpace, NumbersItsPointsAndFindsThemAgain) {
  const ConfigSpace& space = config_space<SmallConfig>();
  EXPECT_EQ(space.size(), 12U);
  for (std::uint64_t number = 0; number < space.size(); ++number) {
    EXPECT_EQ(space.number_of(space.at(number)), number);
  }
  const ConfigBlob foreign = Kernel<SmallConfig>::pack({.width = 3});
  EXPECT_EQ(space.number_of(foreign), std::nullopt);
}

TEST(ConfigSpace, TakesMeaninglessValuesBackToTheirDefaults) {
  const ConfigSpace& space = config_space<SmallConfig>();
  const ConfigBlob plain =
      space.without_meaningless(Kernel<SmallConfig>::pack({.path = Path::kDirect, .stages = 2}));
  EXPECT_EQ(Kernel<SmallConfig>::unpack(plain).stages, 1);
}

TEST(ConfigSpace, OfAMillionPointsIsCountedByItsPartsAndNotListed) {
  const LinesProblem problem;
  const CandidateCount count = count_points(config_space<LargeConfig>(), &problem, 1000);
  EXPECT_EQ(count.count, 55U * 10 * 10 * 10);  // a <= b, c, d, e == f
  EXPECT_TRUE(count.is_exact);
  const LinesKernel<LargeConfig> kernel;
  EXPECT_FALSE(kernel.few_candidates(ProblemRef::of<Lines>(problem), kDevice).has_value());
  EXPECT_LE(kernel.asked, static_cast<std::int64_t>(kFewCandidates) + 1);
  const CandidateCount most = kernel.candidate_count(ProblemRef::of<Lines>(problem), kDevice);
  EXPECT_EQ(most.count, 55'000U);
  EXPECT_FALSE(most.is_exact);  // fits() may refuse some of them
}

TEST(ConfigSpace, APartThatTakesTooLongIsBounded) {
  const LinesProblem problem;
  const CandidateCount count = count_points(config_space<LargeConfig>(), &problem, 20);
  EXPECT_EQ(count.count, 1'000'000U);
  EXPECT_FALSE(count.is_exact);
}

TEST(ConfigSpace, AWalkLeavesOutWholePartsThatBreakAConstraint) {
  // Of the hundred pairs (e, f), the outermost, ninety are left at once: 10 + 100 + 10 * (10 + 100
  // + 100 * 10 + 1000 * 10) values are set.
  const LinesProblem problem;
  std::uint64_t points = 0;
  EXPECT_TRUE(visit_points(config_space<LargeConfig>(), &problem, 111'210,
                           [&](const ConfigBlob&) { return ++points, true; }));
  EXPECT_EQ(points, 55'000U);
  EXPECT_FALSE(visit_points(config_space<LargeConfig>(), &problem, 111'209,
                            [](const ConfigBlob&) { return true; }));
}

}  // namespace
}  // namespace attune
