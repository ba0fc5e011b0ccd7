// Contexts: options, policies, databases; tuning, and what explains it.
#include "bindings/c/small_call.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

constexpr const char* kOp = "recurrent_attention";
constexpr const char* kProblem = "T=64 H=1 D=16";
constexpr attune_device kCpu{ATTUNE_CPU, 0};

attune_tune_options short_search() {
  auto options = sized<attune_tune_options>();
  options.budget_ms = 200;
  options.iters = 3;
  options.warmup = -1;
  return options;
}

class CContext : public testing::Test {
 protected:
  CContext() { call.context = context.get(); }

  nlohmann::json explain() const {
    return json_of([&](char** json) { return attune_explain(kOp, kProblem, kCpu, &call, json); });
  }

  TemporaryFolder folder;
  std::string database = folder.file("attune.db");
  UniqueContext context = make_c_context("db", database.c_str());
  attune_call call = sized<attune_call>();
};

TEST_F(CContext, WhatIsTunedIsStoredExplainedAndForgotten) {
  EXPECT_EQ(explain()["tier"], "heuristic");
  const attune_tune_options options = short_search();
  const auto tuned =
      json_of([&](char** json) { return attune_tune(kOp, kProblem, kCpu, &call, &options, json); });
  EXPECT_EQ(tuned["op"], kOp);
  EXPECT_EQ(tuned["device"], "cpu:0");
  EXPECT_GT(tuned["median_us"], 0);
  EXPECT_FALSE(tuned["trials"].empty());

  const auto explained = explain();
  EXPECT_EQ(explained["kernel"], tuned["kernel"]);
  EXPECT_EQ(explained["config"], tuned["config"]);
  EXPECT_EQ(explained["problem"], tuned["problem"]);
  EXPECT_TRUE(explained["error"].is_null());
  EXPECT_EQ(explained["tiers"].size(), 7U);
  EXPECT_FALSE(explained["kernels"].empty());

  const auto counters = json_of([&](char** json) { return attune_counters(context.get(), json); });
  EXPECT_EQ(counters["tunings"], 1);

  EXPECT_EQ(attune_forget(kOp, kProblem, kCpu, &call), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(explain()["tier"], "heuristic");
}

TEST_F(CContext, ASearchEndsWhenItIsToldTo) {
  int asked = 0;
  auto options = sized<attune_tune_options>();
  options.stop = [](void* user) { return ++*static_cast<int*>(user) > 3 ? 1 : 0; };
  options.user = &asked;
  const auto tuned =
      json_of([&](char** json) { return attune_tune(kOp, kProblem, kCpu, &call, &options, json); });
  EXPECT_GT(asked, 3);
  EXPECT_EQ(tuned["complete"], false);
}

TEST_F(CContext, DatabasesThatOthersWroteAreReadAgain) {
  EXPECT_EQ(explain()["tier"], "heuristic");
  const UniqueContext other = make_c_context("db", database.c_str());
  auto call_of_other = sized<attune_call>();
  call_of_other.context = other.get();
  const attune_tune_options options = short_search();
  json_of([&](char** json) {
    return attune_tune(kOp, kProblem, kCpu, &call_of_other, &options, json);
  });
  EXPECT_EQ(attune_context_reload(context.get()), ATTUNE_OK);
  EXPECT_EQ(explain()["tier"], "persistent");
  const auto databases =
      json_of([&](char** json) { return attune_databases(context.get(), json); });
  ASSERT_FALSE(databases.empty());
  EXPECT_EQ(databases[0]["layer"], "user");
  EXPECT_EQ(databases[0]["path"], database);
  EXPECT_EQ(databases[0]["rows"], 1);
}

TEST_F(CContext, APolicyIsForCallsFromThenOn) {
  ASSERT_EQ(attune_context_set_policy(context.get(), "strict"), ATTUNE_OK);
  SmallCall small;
  small.call.context = context.get();
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_NOT_TUNED);
  ASSERT_EQ(attune_context_set_policy(context.get(), "heuristic"), ATTUNE_OK);
  EXPECT_EQ(attune_attention(&small.args, &small.call), ATTUNE_OK);
  EXPECT_EQ(attune_context_set_policy(context.get(), "loose"), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attune_context_set_policy(context.get(), nullptr), ATTUNE_INVALID_ARGUMENT);
}

TEST_F(CContext, TheHostIsADevice) {
  const auto devices = json_of([&](char** json) { return attune_devices(context.get(), json); });
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0]["device"], "cpu:0");
  EXPECT_EQ(devices[0]["cores"], cpu_device().info().cores);
  EXPECT_EQ(devices[0]["device_class"], cpu_device().info().device_class);
}

TEST_F(CContext, OptionsThatAreNoneAreRefused) {
  attune_context* made = nullptr;
  auto options = sized<attune_context_options>();
  options.policy = "loose";
  EXPECT_EQ(attune_context_create(&options, &made), ATTUNE_INVALID_ARGUMENT);
  options.policy = nullptr;
  options.reload_ms = -2;
  EXPECT_EQ(attune_context_create(&options, &made), ATTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(attune_last_error(), "options: reload_ms: got -2, expected -1 or more");
  options.reload_ms = 0;
  options.plugin_count = 1;
  EXPECT_EQ(attune_context_create(&options, &made), ATTUNE_INVALID_ARGUMENT);
  const char* const missing[] = {"/nowhere/libmine.so"};
  options.plugins = missing;
  EXPECT_NE(attune_context_create(&options, &made), ATTUNE_OK);
  EXPECT_THAT(attune_last_error(), HasSubstr("/nowhere/libmine.so"));
  EXPECT_EQ(made, nullptr);
}

TEST_F(CContext, ProblemsThatAreNoneAreRefused) {
  char* json = nullptr;
  EXPECT_EQ(attune_explain("attention", kProblem, kCpu, &call, &json), ATTUNE_UNAVAILABLE);
  EXPECT_THAT(attune_last_error(), HasSubstr("recurrent_attention"));
  EXPECT_EQ(attune_explain(kOp, "T=64 Q=1", kCpu, &call, &json), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attune_explain(kOp, "T", kCpu, &call, &json), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(attune_explain(kOp, kProblem, {0, 0}, &call, &json), ATTUNE_INVALID_ARGUMENT);
  auto options = sized<attune_tune_options>();
  options.budget_ms = -1;
  EXPECT_EQ(attune_tune(kOp, kProblem, kCpu, &call, &options, &json), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("options: budget_ms: got -1"));
  EXPECT_EQ(json, nullptr);
}

TEST(CMinimaxSlopes, AreThoseOfCxx) {
  const std::vector<float> expected = ops::minimax_slopes(6, 2, 8);
  std::vector<float> slopes(6);
  ASSERT_EQ(attune_minimax_slopes(6, 2, 8, slopes.data()), ATTUNE_OK);
  EXPECT_EQ(slopes, expected);
  EXPECT_EQ(attune_minimax_slopes(6, 8, 8, slopes.data()), ATTUNE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace attune::test
