// `attune stats`: counters of programs that run, or have.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kText =
    "# HELP attune_choices Calls.\n"
    "# TYPE attune_choices counter\n"
    "attune_choices_total{program=\"serve\",pid=\"17\",tier=\"pin\"} 3\n"
    "# HELP attune_database_rows Rows.\n"
    "# TYPE attune_database_rows gauge\n"
    "attune_database_rows{program=\"serve\",pid=\"17\",file=\"a \\\"b\\\"\"} 20\n"
    "# EOF\n";

TEST(Stats, OfAFileOrAFolderAreRows) {
  const Sandbox here;
  const std::string folder = here.file("stats");
  std::filesystem::create_directory(folder);
  const std::string file = folder + "/attune-host-17.prom";
  std::ofstream(file) << kText;
  std::ofstream(folder + "/node.prom") << "somebody else's\n";
  for (const std::string& word : {file, folder}) {
    const Outcome outcome = here.run({"stats", word, "-o", "json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const nlohmann::json rows = outcome.json();
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows.at(0).at("program"), "serve");
    EXPECT_EQ(rows.at(0).at("pid"), "17");
    EXPECT_EQ(rows.at(0).at("counter"), "attune_choices_total");
    EXPECT_EQ(rows.at(0).at("of"), "tier=pin");
    EXPECT_EQ(rows.at(0).at("value"), 3);
    EXPECT_EQ(rows.at(1).at("of"), "file=a \"b\"");
  }
  const Outcome by_variable =
      here.run(Call{.arguments = {"stats", "-o", "json"}, .environment = {"ATTUNE_STATS=" + file}});
  EXPECT_EQ(by_variable.json().size(), 2U);
  EXPECT_THAT(std::ifstream(file).good(), true) << "the program itself writes no counters";
}

TEST(Stats, AreWrittenByNeitherTheProgramNorItsWorkers) {
  const Sandbox here;
  const std::string file = here.file("attune.prom");
  const Outcome tuned = here.run(Call{.arguments = {"tune", "recurrent_attention", "T=4", "H=1",
                                                    "D=8", "--iters", "2", "--warmup", "1"},
                                      .environment = {"ATTUNE_STATS=" + file}});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Stats, AreOfFilesThatAttuneWroteWhole) {
  const Sandbox here;
  const std::string file = here.file("attune.prom");
  for (const char* text : {"a letter\n", "# HELP attune_x\nattune_x{pid=\"1\"} 1\n",
                           "node_load1 1\n# EOF\n", "attune_x{pid=\"1} 1\n# EOF\n"}) {
    std::ofstream(file) << text;
    const Outcome outcome = here.run({"stats", file});
    EXPECT_EQ(outcome.exit_code, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr("is no file of attune's counters"));
  }
  EXPECT_EQ(here.run({"stats", here.file("absent")}).exit_code, 2);
  EXPECT_EQ(here.run({"stats"}).exit_code, 2);
  EXPECT_EQ(here.run({"stats", here.file("")}).exit_code, 1) << "a folder without such files";
}

TEST(Stats, OfAProcessAreFoundByItsEnvironment) {
  const Sandbox here;
  const std::string file = here.file("attune.prom");
  std::ofstream(file) << kText;
  // This program's own variable is what its parent set; `sh` is a process with one of its own.
  const Outcome outcome =
      here.run(Call{.arguments = {},
                    .environment = {"ATTUNE_STATS=" + file},
                    .under = {"sh", "-c", "exec env -u ATTUNE_STATS \"$0\" stats $$ -o json"}});
  EXPECT_EQ(outcome.exit_code, 2) << "an exec'd process has the environment it was given";
  const Outcome found =
      here.run(Call{.arguments = {},
                    .environment = {"ATTUNE_STATS=" + file},
                    .under = {"sh", "-c", "env -u ATTUNE_STATS \"$0\" stats $$ -o json; exit $?"}});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(found.json().size(), 2U);
  const Outcome without =
      here.run(Call{.arguments = {}, .under = {"sh", "-c", "\"$0\" stats $$ -o json; exit $?"}});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("start it with ATTUNE_STATS"));
}

TEST(Events, OfARunOfTheProgramAreInTheFile) {
  const Sandbox here;
  const std::string file = here.file("events.jsonl");
  const Outcome outcome = here.run(
      Call{.arguments = {"run", "recurrent_attention", "T=16", "H=2", "D=8", "--policy", "db"},
           .environment = {"ATTUNE_EVENTS=" + file}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::ifstream events(file);
  nlohmann::json event;  // the last; that there is no database yet is one as well
  for (std::string line; std::getline(events, line);) event = nlohmann::json::parse(line);
  ASSERT_FALSE(event.is_null());
  EXPECT_EQ(event.at("event"), "selected");
  EXPECT_EQ(event.at("op"), "recurrent_attention");
  EXPECT_EQ(event.at("tier"), "heuristic");

  const Outcome bad = here.run(
      Call{.arguments = {"run", "recurrent_attention", "T=16", "H=2", "D=8", "--policy", "db"},
           .environment = {"ATTUNE_EVENTS=/dev/full"}});
  EXPECT_EQ(bad.exit_code, 0);
  EXPECT_THAT(bad.err, HasSubstr("warning: ATTUNE_EVENTS: /dev/full: "));
}

TEST(Log, AtLevelDebugNamesChoices) {
  const Sandbox here;
  const Outcome outcome = here.run(
      Call{.arguments = {"run", "recurrent_attention", "T=16", "H=2", "D=8", "--policy", "db"},
           .environment = {"ATTUNE_LOG=debug"}});
  EXPECT_THAT(outcome.err, HasSubstr("attune#recurrent_attention@v"));
  EXPECT_THAT(outcome.err, HasSubstr("from the heuristic tier"));
}

}  // namespace
}  // namespace attune::test
