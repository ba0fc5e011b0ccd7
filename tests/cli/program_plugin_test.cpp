// An op that attune has never heard of works in every verb.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/error.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PluginOp, WorksInEveryVerb) {
  const Sandbox here;
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--plugin", ROW_SOFTMAX_PLUGIN, "-o", "json"});
    const Outcome outcome = here.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments[0] << ": " << outcome.err;
    return outcome.json();
  };
  const std::vector<std::string> problem{"row_softmax", "rows=4", "cols=16"};
  const auto with_problem = [&](std::vector<std::string> words) {
    words.insert(words.end(), problem.begin(), problem.end());
    return words;
  };
  EXPECT_EQ(run({"ops", "row_softmax"}).at(0).at("op"), "row_softmax");
  EXPECT_EQ(run(with_problem({"tune", "--budget", "500ms"})).at(0).at("op"), "row_softmax");
  EXPECT_EQ(run(with_problem({"run", "--policy", "db"})).at(0).at("source"), "persistent");
  EXPECT_FALSE(run(with_problem({"explain"})).empty());
  EXPECT_GT(run(with_problem({"bench", "--iters", "3"})).at(0).at("median_us"), 0.0);
  EXPECT_EQ(run({"db", "ls"}).at(0).at("problem"), "rows=4 cols=16");
  EXPECT_FALSE(run(with_problem({"db", "show"})).empty());
  EXPECT_FALSE(run({"doctor"}).empty());
}

TEST(PluginOp, ItsRowsAreKeptAndListedWithoutThePlugin) {
  const Sandbox here;
  ASSERT_EQ(here.run({"tune", "row_softmax", "rows=4", "cols=16", "--budget", "500ms", "--plugin",
                      ROW_SOFTMAX_PLUGIN})
                .exit_code,
            0);
  const Outcome outcome = here.run({"db", "ls", "-o", "json"});
  EXPECT_EQ(outcome.json().at(0).at("op"), "row_softmax");
  EXPECT_THAT(outcome.json().at(0).at("problem").get<std::string>(), HasSubstr("rows=4"));
}

TEST(FrameworkProgram, ServesPluginsAndSaysWhatItLacks) {
  const Sandbox here(FRAMEWORK_PROGRAM);
  const std::vector<std::string> plugin{"--plugin", ROW_SOFTMAX_PLUGIN, "-o", "json"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), plugin.begin(), plugin.end());
    const Outcome outcome = here.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments[0] << ": " << outcome.err;
    return outcome.json();
  };
  EXPECT_EQ(run({"ops"}).at(0).at("op"), "row_softmax");
  EXPECT_EQ(run({"tune", "row_softmax", "rows=4", "cols=16", "--budget", "500ms"}).size(), 1U);
  EXPECT_EQ(run({"run", "row_softmax", "rows=4", "cols=16"}).at(0).at("source"), "persistent");
  EXPECT_EQ(run({"db", "verify"}).at(0).at("rows"), 1);
  const std::vector<std::vector<std::string>> calls{
      {"demo"}, {"bench", "--suite", "cpu"}, {"run", "recurrent_attention", "T=4"}};
  for (const std::vector<std::string>& call : calls) {
    const Outcome outcome = here.run(call);
    EXPECT_EQ(outcome.exit_code, 2) << call[0];
    EXPECT_THAT(outcome.err, HasSubstr("this attune has no ops of its own")) << call[0];
  }
  const Outcome unknown = here.run({"tune", "row_softmx", "--plugin", ROW_SOFTMAX_PLUGIN});
  EXPECT_THAT(unknown.err, HasSubstr("no op 'row_softmx'; did you mean 'row_softmax'? ('attune"));
  const Outcome help = here.run({"--help"});
  EXPECT_THAT(help.out, HasSubstr("ops --plugin libmine.so"));
  EXPECT_THAT(help.out, Not(HasSubstr("gated_linear_attention")));
}

TEST(BackendOfAPlugin, IsOneOfThoseThatVerbsKnow) {
  const Sandbox here;
  const auto run = [&](std::vector<std::string> arguments, const char* devices) {
    arguments.insert(arguments.end(),
                     {"--plugin", ROW_SOFTMAX_PLUGIN, "--plugin", NPU_BACKEND_PLUGIN});
    return here.run({.arguments = arguments, .environment = {str("NPU_DEVICES=", devices)}});
  };
  EXPECT_THAT(run({"doctor", "-o", "csv"}, "1").out, HasSubstr("npu:0"));
  EXPECT_THAT(run({"doctor", "-o", "csv"}, "0").out, HasSubstr("info,npu,none: no NPU driver"));
  const std::vector<std::string> problem{"run",       "row_softmax", "rows=4", "cols=16",
                                         "--backend", "npu",         "-o",     "json"};
  const Outcome there = run(problem, "1");
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(there.json().at(0).at("kernel"), "npu.row_softmax");
  // Its results are held against the host's reference, where a device has none of its own.
  const Outcome tuned = run({"tune", "row_softmax", "rows=4", "cols=16", "--backend", "npu"}, "1");
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.err, Not(HasSubstr("warning")));
  const Outcome verified = run({"db", "verify", "--relaunch", "-o", "json"}, "1");
  EXPECT_EQ(verified.json().at(0).at("result"), "ok") << verified.out;
  const Outcome absent = run(problem, "0");
  EXPECT_EQ(absent.exit_code, 3);
  EXPECT_THAT(absent.err, HasSubstr("no device npu:0, no NPU driver; there is cpu:0"));
  EXPECT_THAT(here.run({"run", "recurrent_attention", "T=4", "--backend", "moon"}).err,
              HasSubstr("expected cpu or gpu"));
}

TEST(Plugin, ThatCannotBeLoadedEndsTheProgramBeforeItDoesAnything) {
  const Sandbox here;
  const auto status = [&](const Call& call) {
    const Outcome outcome = here.run(call);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(FAULTY_PLUGIN));
    return outcome.exit_code;
  };
  const std::vector<std::string> ops{"ops", "--plugin", FAULTY_PLUGIN};
  for (const char* const fault : {"null_abi", "throws_int", "throws_exception", "op_twice"}) {
    SCOPED_TRACE(fault);
    const std::string variable = str("FAULTY_PLUGIN=", fault);
    EXPECT_EQ(status({.arguments = ops, .environment = {variable}}), 3);
    EXPECT_EQ(
        status({.arguments = {"ops"}, .environment = {variable, "ATTUNE_PLUGINS=" FAULTY_PLUGIN}}),
        2);
  }
  EXPECT_FALSE(std::filesystem::exists(here.database()));
}

}  // namespace
}  // namespace attune::test
