#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/kernel.hpp>

namespace attune {
namespace {

struct RowsProblem {
  std::int64_t rows = 0;
  bool padded = false;
  bool reverse = false;
};

struct Rows {
  static constexpr std::string_view kName = "rows";
  using Problem = RowsProblem;
  struct Args {};
  static constexpr auto fields() {
    return std::tuple{field("rows", &Problem::rows), flag("reverse", &Problem::reverse).feature(),
                      flag("padded", &Problem::padded).optional()};
  }
};

struct NoConfig {
  using Op = Rows;
  friend constexpr bool operator==(const NoConfig&, const NoConfig&) = default;
  static constexpr auto axes() { return std::tuple{}; }
};

/// Takes up to 9 rows, and counts how often it is asked.
class RowsKernel : public Kernel<NoConfig> {
 public:
  explicit RowsKernel(std::vector<std::string_view> features) : features_(std::move(features)) {}
  std::string_view name() const noexcept override { return "test.rows"; }
  int version() const noexcept override { return 1; }
  std::vector<std::string_view> features() const override { return features_; }
  Support supports(const Problem& problem, const DeviceInfo&) const override {
    ++asked;
    return problem.rows < 10 ? Support::yes() : Support::no(refused::kShape, "takes rows < 10");
  }
  NoConfig heuristic_config(const Problem&, const DeviceInfo&) const override { return {}; }
  void run(const Problem&, const Args&, const NoConfig&, const LaunchSite&) const override {}

  mutable int asked = 0;

 private:
  std::vector<std::string_view> features_;
};

Support support_of(const RowsKernel& kernel, const RowsProblem& problem) {
  return kernel.erased_supports(ProblemRef::of<Rows>(problem), DeviceInfo());
}

TEST(Features, ThatAKernelDoesNotNameAreRefusedBeforeItIsAsked) {
  const RowsKernel none({});
  EXPECT_TRUE(support_of(none, {.rows = 1}));
  EXPECT_EQ(none.asked, 1);
  const Support both = support_of(none, {.rows = 1, .padded = true, .reverse = true});
  EXPECT_EQ(both.code(), refused::kFeature);
  EXPECT_EQ(both.reason(), "lacks the feature reverse, padded");
  EXPECT_EQ(none.asked, 1);

  const RowsKernel reversing({"reverse"});
  EXPECT_TRUE(support_of(reversing, {.rows = 1, .reverse = true}));
  EXPECT_EQ(support_of(reversing, {.rows = 1, .padded = true, .reverse = true}).reason(),
            "lacks the feature padded");
}

TEST(Features, ThatAKernelNamesLeaveItTheRestToSay) {
  const RowsKernel all({"padded", "reverse", "of another op"});
  EXPECT_TRUE(support_of(all, {.rows = 1, .padded = true, .reverse = true}));
  const Support large = support_of(all, {.rows = 10, .padded = true});
  EXPECT_EQ(large.code(), refused::kShape);
  EXPECT_EQ(large.reason(), "takes rows < 10");
}

TEST(Support, IsYesWithoutACode) {
  EXPECT_TRUE(Support::yes());
  EXPECT_EQ(Support::yes().code(), "");
  EXPECT_EQ(Support::yes().reason(), "");
  EXPECT_FALSE(Support::no("a word of its own", ""));
}

TEST(ErasedKernel, RefusesARefThatSaysNothingOfFeatures) {
  const RowsProblem problem;
  const ProblemRef by_hand{Rows::kName, &problem, nullptr};
  EXPECT_THROW(RowsKernel({}).erased_supports(by_hand, DeviceInfo()), std::logic_error);
}

}  // namespace
}  // namespace attune
