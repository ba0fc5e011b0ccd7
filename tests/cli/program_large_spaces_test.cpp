// Kernels with a million configs, from the tuning to what is shown of it.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

class LargeSpace : public testing::TestWithParam<const char*> {
 protected:
  Outcome run(std::vector<std::string> arguments) const {
    for (const char* word : {"row_softmax", "rows=2", "cols=16"}) arguments.emplace_back(word);
    arguments.insert(arguments.end(), {"--plugin", LARGE_SPACES_PLUGIN, "--platform", GetParam()});
    return here_.run(arguments);
  }
  static std::ptrdiff_t lines(const Outcome& outcome) {
    return std::count(outcome.out.begin(), outcome.out.end(), '\n');
  }
  Sandbox here_{FRAMEWORK_PROGRAM};
};

TEST_P(LargeSpace, IsTunedAndShownWithoutAList) {
  const Outcome tuned = run({"tune", "--budget", "500ms", "-o", "json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(tuned.json().at(0).at("kernel"), GetParam() + std::string(".row_softmax"));
  constexpr long kMostKiB = 400'000;  // a list of them took 1.4 GB; sanitizers take their share
  EXPECT_LT(tuned.peak_kib, kMostKiB);
  constexpr std::uintmax_t kMostBytes = 4'000'000;
  EXPECT_LT(std::filesystem::file_size(here_.database()), kMostBytes);

  const Outcome explained = run({"explain", "--policy", "db"});
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_LT(lines(explained), 40);
  EXPECT_THAT(explained.out, HasSubstr("at most 1000000 candidates"));
  EXPECT_THAT(explained.out, HasSubstr("at most 100000 candidates"));
  EXPECT_EQ(explained.out.find("not_reached"), std::string::npos);

  const Outcome shown = run({"db", "show"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_LT(lines(shown), 80);
}

TEST_P(LargeSpace, IsDescribedByItsAxesAndConstraints) {
  const Outcome outcome =
      here_.run({"ops", "row_softmax", "--plugin", LARGE_SPACES_PLUGIN, "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string name = GetParam() + std::string(".row_softmax");
  const nlohmann::json all = outcome.json();
  const auto rows_of = [&](const char* section) {
    std::vector<nlohmann::json> rows;
    std::ranges::copy_if(all, std::back_inserter(rows), [&](const auto& row) {
      return row.at("section") == section && row.value("kernel", "") == name;
    });
    return rows;
  };
  EXPECT_EQ(rows_of("kernels").at(0).at("points"), 1'000'000);
  EXPECT_EQ(rows_of("parameters").size(), 6U);
  const auto constraints = rows_of("constraints");
  ASSERT_EQ(constraints.size(), 1U);
  EXPECT_EQ(constraints[0].at("constraint"), "b + e is a multiple of ten");
}

TEST_P(LargeSpace, IsPlannedAtOnce) {
  const Outcome planned = run({"tune", "--dry-run", "-o", "json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json().at(0).at("candidates"),
            std::string_view(GetParam()) == "million" ? 1'000'000 : 100'000);
}

INSTANTIATE_TEST_SUITE_P(Kernels, LargeSpace, testing::Values("million", "sparse"));

TEST(Constraint, ThatRefusesAConfigIsNamed) {
  const Sandbox here(FRAMEWORK_PROGRAM);
  const Outcome outcome =
      here.run({"explain", "row_softmax", "rows=2", "cols=16", "--plugin", LARGE_SPACES_PLUGIN,
                "--config", "kernel=sparse.row_softmax,b=1,e=1"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("breaks b + e is a multiple of ten"));
}

}  // namespace
}  // namespace attune::test
