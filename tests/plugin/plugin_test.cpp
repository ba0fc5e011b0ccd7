// An op from a plugin, through key, chain, tuner, database and Plan. The command line's part is in
// tests/cli.
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#include <attune/attune.hpp>

#include "plugin/row_softmax/row_softmax.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using row_softmax::RowSoftmax;

class PluginTest : public testing::Test {
 protected:
  std::unique_ptr<Context> context(Policy policy = Policy::kTune) const {
    return make_context(
        {.plugins = {ROW_SOFTMAX_PLUGIN}, .policy = policy, .database = folder_.file("test.db")});
  }
  static Request request() { return {.device = &cpu_device()}; }

  test::TemporaryFolder folder_;
};

TEST_F(PluginTest, BringsItsOpAndKernels) {
  const auto context_ = context();
  EXPECT_EQ(context_->registry().op("row_softmax").summary, "softmax over the last dimension");
  EXPECT_EQ(context_->registry().kernels("row_softmax").size(), 2U);
}

TEST_F(PluginTest, IsTunedStoredAndFoundAgainByAnotherContext) {
  const RowSoftmax::Problem problem{.rows = 100, .cols = 64};
  std::string tuned_config;
  {
    const auto first = context();
    const Choice tuned = first->select<RowSoftmax>(problem, request());
    tuned_config = config_text(*tuned.kernel, tuned.config);
    EXPECT_EQ(tuned.tier, Tier::kAutotune);
    EXPECT_EQ(tuned.kernel->name(), "rows.row_softmax");
    EXPECT_EQ(chain_of(*first).counters().tunings, 1U);
    EXPECT_EQ(first->select<RowSoftmax>(problem, request()).tier, Tier::kMemory);
  }
  const auto second = context(Policy::kDb);
  const Choice found = second->select<RowSoftmax>(problem, request());
  EXPECT_EQ(found.tier, Tier::kPersistent);
  EXPECT_FALSE(found.bucket_hit);
  EXPECT_EQ(config_text(*found.kernel, found.config), tuned_config);

  const Choice neighbour = second->select<RowSoftmax>({.rows = 120, .cols = 64}, request());
  EXPECT_EQ(neighbour.tier, Tier::kPersistent);
  EXPECT_TRUE(neighbour.bucket_hit);
  EXPECT_EQ(chain_of(*second).counters().tunings, 0U);
}

TEST_F(PluginTest, RunsThroughAPlan) {
  const auto context_ = context(Policy::kHeuristic);
  const Plan<RowSoftmax> plan =
      Executor(*context_).plan<RowSoftmax>({.rows = 2, .cols = 4}, request());
  const float x[8] = {0, 0, 0, 0, 1, 1, 1, 1};
  float y[8] = {};
  plan.launch({x, y});
  for (const float value : y) EXPECT_FLOAT_EQ(value, 0.25F);
}

TEST_F(PluginTest, ReferenceServesOnlyWhatNothingElseSupports) {
  const auto context_ = context(Policy::kHeuristic);
  EXPECT_EQ(context_->select<RowSoftmax>({.rows = 2, .cols = 3}, request()).kernel->name(),
            "reference.row_softmax");
  EXPECT_EQ(context_->select<RowSoftmax>({.rows = 2, .cols = 8}, request()).kernel->name(),
            "rows.row_softmax");
}

TEST_F(PluginTest, ExplainNamesEachTier) {
  const auto context_ = context(Policy::kDb);
  const RowSoftmax::Problem problem{.rows = 10, .cols = 16};
  const Decision decision = context_->explain(ProblemRef::of<RowSoftmax>(problem), request());
  ASSERT_TRUE(decision.choice.has_value()) << decision.error;
  EXPECT_EQ(decision.choice->tier, Tier::kHeuristic);
  ASSERT_EQ(decision.notes.size(), 7U);
  for (const TierNote& note : decision.notes)
    EXPECT_FALSE(note.reason.empty()) << to_string(note.tier);
}

TEST(LoadPlugin, RefusesWhatIsNotAPluginOfThisAttune) {
  const auto message = [](const char* path) {
    Registry registry;
    try {
      load_plugin(path, registry);
    } catch (const Unavailable& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  EXPECT_NE(message("/nonexistent/libx.so").find("plugin '/nonexistent/libx.so'"),
            std::string::npos);
  EXPECT_NE(message(WRONG_ABI_PLUGIN).find("was built for 'attune 0.0.0"), std::string::npos);
  EXPECT_NE(message(PLAIN_LIBRARY).find("has no function attune_plugin_abi"), std::string::npos);
}

}  // namespace
}  // namespace attune
