// The suite `serve`: every row is a call that an engine may make, and its floor counts what that
// call must read and write.
#include "suites/serve_suite.hpp"

#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "support/heuristic_context.hpp"

namespace attune::cli {
namespace {

constexpr LayerSizes kSmall{.heads = 2, .channels = 4};

const OpInfo& op_of(const ServingStep& step) {
  return test::heuristic_context().registry().op(step.op());
}

std::int64_t tokens_of(const ServingStep& step) {
  if (step.rows > 0) return step.rows * step.tokens;
  return std::accumulate(step.lengths.begin(), step.lengths.end(), std::int64_t{0});
}

/// That are read and written.
std::int64_t states_of(const ServingStep& step) {
  if (step.rows > 0) return step.rows * (step.way == StepWay::kKept ? 1 + step.tokens : 2);
  auto count = static_cast<std::int64_t>(2 * step.lengths.size());
  for (const std::int64_t length : step.lengths) {
    if (step.snapshot_every > 0) count += length / step.snapshot_every;
  }
  return count;
}

std::int64_t indices_of(const ServingStep& step) {
  const auto sequences = static_cast<std::int64_t>(step.lengths.size());
  if (step.rows == 0) return sequences + 1 + 2 * sequences;  // bounds, first and last slots
  if (step.way == StepWay::kKept) return step.rows * step.tokens + step.rows;
  return step.way == StepWay::kReplay ? 2 * step.rows : step.rows;
}

double expected_bytes(const ServingStep& step) {
  constexpr std::int64_t kIo = 2, kIndex = 8, kDecay = 4;
  const std::int64_t gates = step.gates_channels ? 1 : 0;
  const std::int64_t committed = step.way == StepWay::kReplay ? 2 + gates : 0;
  const std::int64_t width = kSmall.heads * kSmall.channels;
  const auto of_a_state = static_cast<std::int64_t>(size_of(step.states)) * width * kSmall.channels;
  return static_cast<double>(tokens_of(step) * (4 + gates + committed) * width * kIo +
                             states_of(step) * of_a_state + indices_of(step) * kIndex +
                             (1 - gates) * kSmall.heads * kDecay);
}

TEST(ServeSuite, EveryRowAndWhatItIsHeldAgainstIsACallThatAKernelTakes) {
  for (const bool on_host : {false, true}) {
    std::set<std::string> seen;
    for (const ServingRow& row : serving_rows(on_host)) {
      EXPECT_TRUE(seen.insert(row.about).second) << row.about;
      EXPECT_EQ(row.parts.empty(), row.beside.empty()) << row.about;
      std::vector<ServingStep> steps = row.parts;
      steps.push_back(row.step);
      for (const ServingStep& step : steps) {
        const OpInfo& op = op_of(step);
        const auto on = case_maker(step, kSmall, op, cpu_device())();
        EXPECT_NO_THROW(test::heuristic_context().select(on->problem(), {.device = &cpu_device()}))
            << row.about << ": " << op.text(on->problem(), false);
      }
    }
  }
}

TEST(ServeSuite, AFloorCountsStatesAndTokensInTheirOwnTypes) {
  for (const ServingRow& row : serving_rows(false)) {
    const OpInfo& op = op_of(row.step);
    const auto on = case_maker(row.step, kSmall, op, cpu_device())();
    EXPECT_EQ(op.bytes(on->problem()), expected_bytes(row.step)) << row.about;
  }
}

TEST(ServeSuite, PartsOfAMixedBatchAreAllOfIt) {
  int mixed = 0;
  for (const ServingRow& row : serving_rows(false)) {
    if (!row.about.starts_with("mixed")) continue;
    ++mixed;
    ASSERT_EQ(row.parts.size(), 2U);
    EXPECT_EQ(tokens_of(row.parts[0]) + tokens_of(row.parts[1]), tokens_of(row.step));
    EXPECT_EQ(states_of(row.parts[0]) + states_of(row.parts[1]), states_of(row.step));
    EXPECT_GT(row.parts[1].rows, 0);
    for (const std::int64_t length : row.parts[0].lengths) EXPECT_GT(length, 1) << row.about;
  }
  EXPECT_EQ(mixed, 12);
}

}  // namespace
}  // namespace attune::cli
