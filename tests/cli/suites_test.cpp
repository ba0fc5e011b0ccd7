// The tables of `attune bench --suite`: every row is a problem that its ops can read.
#include "suites.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exit_code.hpp"
#include "spec.hpp"
#include "support/heuristic_context.hpp"

namespace attune::cli {
namespace {

using testing::HasSubstr;

TEST(Suites, AreFoundByName) { EXPECT_EQ(find_suite("h200").name, "h200"); }

TEST(Suites, AnUnknownNameIsAnsweredWithThoseThereAre) {
  try {
    find_suite("h20");
    FAIL() << "expected UsageError";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--suite 'h20': expected h200; did you mean 'h200'?"));
  }
  EXPECT_THROW(find_suite(""), UsageError);
}

TEST(Suites, EveryRowIsOneProblemOfEachOfItsOpsAndStandsOnce) {
  const Registry& registry = test::heuristic_context().registry();
  for (const Suite& suite : suites()) {
    EXPECT_GT(suite.copy_bytes_per_us, 0) << suite.name;
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

TEST(Suites, WhatARowShouldTakeIsLessThanWhatItMust) {
  for (const Suite& suite : suites()) {
    for (const SuiteRow& row : suite.rows) {
      EXPECT_GT(row.must_us, 0) << row.spec;
      EXPECT_LT(row.goal_us, row.must_us) << row.spec;
    }
  }
}

}  // namespace
}  // namespace attune::cli
