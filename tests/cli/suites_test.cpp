// The tables of `attune bench --suite`: every row is a problem that its ops can read.
#include "suites/suites.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "problems/spec.hpp"
#include "program/exit_code.hpp"
#include "support/heuristic_context.hpp"

namespace attune::cli {
namespace {

using testing::HasSubstr;

TEST(Suites, AreFoundByName) {
  EXPECT_EQ(find_suite("h200").name, "h200");
  EXPECT_EQ(find_suite("cpu").name, "cpu");
  EXPECT_EQ(find_suite("models").name, "models");
}

TEST(Suites, AnUnknownNameIsAnsweredWithThoseThereAre) {
  try {
    find_suite("h20");
    FAIL() << "expected UsageError";
  } catch (const UsageError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "--suite 'h20': expected h200, cpu, models, serve, cliffs, untuned; did you mean 'h200'?"));
  }
  EXPECT_THROW(find_suite(""), UsageError);
}

TEST(Suites, EveryRowIsOneProblemOfEachOfItsOpsAndStandsOnce) {
  const Registry& registry = test::heuristic_context().registry();
  for (const Suite& suite : suites()) {
    std::set<std::string> seen;
    for (const SuiteRow& row : suite.rows) {
      ASSERT_FALSE(row.ops.empty()) << row.spec;
      for (const std::string_view op : row.ops) {
        const std::vector<NamedProblem> problems = expand(parse_spec_text(str(op, ' ', row.spec)));
        ASSERT_EQ(problems.size(), 1U) << row.spec;
        EXPECT_NO_THROW(registry.op(op).parse(problems.front().params)) << op << ' ' << row.spec;
      }
      EXPECT_TRUE(seen.insert(str(row.ops.size(), row.ops.front(), row.spec)).second) << row.spec;
    }
  }
}

TEST(Suites, AGoalIsBeyondWhatMustBe) {
  for (const Suite& suite : suites()) {
    for (const SuiteRow& row : suite.rows) {
      for (const Bound& at_most : {row.us, row.times_forward}) {
        EXPECT_TRUE(at_most.must == 0 || at_most.goal < at_most.must) << row.spec;
      }
      for (const Bound& at_least : {row.speedup, row.share}) {
        EXPECT_TRUE(at_least.must == 0 || at_least.goal > at_least.must) << row.spec;
      }
    }
  }
}

TEST(Suites, RowsOfAKnownDeviceHaveATimeAndThoseOfAnyMachineHaveNone) {
  for (const Suite& suite : suites()) {
    for (const SuiteRow& row : suite.rows) {
      EXPECT_EQ(row.us.must > 0, suite.copy_bytes_per_us > 0) << row.spec;
    }
  }
}

TEST(Suites, CopiesOfAnH100TakeAsLongAsItsMemoryDoes) {
  const auto rate_of = [](const char* name) {
    DeviceInfo gpu;
    gpu.name = name;
    return gpu_copy_bytes_per_us(gpu);
  };
  EXPECT_LT(rate_of("NVIDIA H100 80GB HBM3"), rate_of("NVIDIA H200"));
  EXPECT_EQ(rate_of("NVIDIA H200"), kH200CopyBytesPerUs);
}

TEST(Suites, WordsLeaveTheRowsThatHaveThemAll) {
  const Suite& suite = find_suite("cpu");
  EXPECT_EQ(rows_with(suite, {}).size(), suite.rows.size());
  const std::vector<SuiteRow> rows = rows_with(suite, {"recurrent_decode", "B=8"});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows.front().spec, "B=8 H=16 D=128 gate=gk");
  EXPECT_THROW(rows_with(suite, {"recurrent_decode", "B=7"}), UsageError);
}

}  // namespace
}  // namespace attune::cli
