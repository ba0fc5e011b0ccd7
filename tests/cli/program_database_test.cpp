// What is tuned is found again, by other processes, and survives being interrupted.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> call(const std::string& verb, std::vector<std::string> more) {
  std::vector<std::string> arguments{verb, "recurrent_attention", "T=16", "H=2", "D=8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Database, ATunedProblemIsFoundByTheNextProcess) {
  const Sandbox here;
  const nlohmann::json before = here.run(call("run", {"--policy", "db", "-o", "json"})).json();
  EXPECT_EQ(before.at(0).at("source"), "heuristic");
  EXPECT_FALSE(std::filesystem::exists(here.database())) << "policy db never writes";

  ASSERT_EQ(here.run(call("tune", {"--budget", "300ms"})).exit_code, 0);
  const nlohmann::json after = here.run(call("run", {"--policy", "db", "-o", "json"})).json();
  EXPECT_EQ(after.at(0).at("source"), "persistent");
  EXPECT_EQ(after.at(0).at("tunings"), 0);
  EXPECT_EQ(here.run(call("run", {"--policy", "strict"})).exit_code, 0);
}

TEST(Database, RunTunesAnUnknownProblemOnce) {
  const Sandbox here;
  const nlohmann::json first = here.run(call("run", {"--budget", "300ms", "-o", "json"})).json();
  EXPECT_EQ(first.at(0).at("source"), "autotune");
  EXPECT_EQ(first.at(0).at("tunings"), 1);
  const nlohmann::json second = here.run(call("run", {"--budget", "300ms", "-o", "json"})).json();
  EXPECT_EQ(second.at(0).at("source"), "persistent");
  EXPECT_EQ(second.at(0).at("tunings"), 0);
}

TEST(Database, TuneSkipsWhatIsTunedUnlessToldOtherwise) {
  const Sandbox here;
  const auto result = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--budget", "300ms", "-o", "json"});
    return here.run(call("tune", more)).json().at(0).at("result").get<std::string>();
  };
  EXPECT_THAT(result({}), HasSubstr("stored"));
  EXPECT_EQ(result({}), "already tuned");
  EXPECT_NE(result({"--retune"}), "already tuned");
}

TEST(Database, ExplainGivesEveryTierInTheOrderOfAsking) {
  const Sandbox here;
  ASSERT_EQ(here.run(call("tune", {"--budget", "300ms"})).exit_code, 0);
  const auto tiers = [&](std::vector<std::string> more, std::string_view chosen) {
    more.insert(more.end(), {"-o", "json"});
    std::vector<std::string> names;
    for (const auto& row : here.run(call("explain", more)).json()) {
      if (row.at("section") != "tiers") continue;
      names.push_back(row.at("tier"));
      EXPECT_EQ(row.at("outcome") == "chosen", row.at("tier") == chosen);
    }
    return names;
  };
  const auto in_order =
      ElementsAre("override", "overlay", "pin", "memory", "persistent", "autotune", "heuristic");
  EXPECT_THAT(tiers({}, "persistent"), in_order);
  EXPECT_THAT(tiers({"--policy", "heuristic"}, "heuristic"), in_order);
  EXPECT_THAT(tiers({"--config", "kernel=reference.recurrent_attention"}, "override"), in_order);
  EXPECT_THAT(here.run(call("explain", {})).out,
              HasSubstr("reproduce: attune run recurrent_attention T=16"));
  EXPECT_EQ(
      here.run({"explain", "recurrent_attention", "T=3", "D=8", "--policy", "strict"}).exit_code,
      1);
}

TEST(Database, ShowFindsARowByItsKeyAndByItsProblem) {
  const Sandbox here;
  ASSERT_EQ(here.run(call("tune", {"--budget", "300ms"})).exit_code, 0);
  const nlohmann::json rows = here.run({"db", "ls", "-o", "json"}).json();
  ASSERT_EQ(rows.size(), 1U);
  const std::string key = rows[0].at("key");
  std::vector<std::string> by_problem{"db", "show", "recurrent_attention", "T=16", "H=2", "D=8",
                                      "-o", "json"};
  const nlohmann::json shown = here.run(by_problem).json();
  EXPECT_EQ(shown, here.run({"db", "show", key.substr(0, 6), "-o", "json"}).json());
  EXPECT_EQ(shown.at(0).at("key"), key);
  EXPECT_EQ(shown.back().at("section"), "trials");
  by_problem[3] = "T=17";
  EXPECT_EQ(here.run(by_problem).exit_code, 1);
}

TEST(Database, VerifyTellsSoundDamagedAndUnreadableApart) {
  const Sandbox here;
  ASSERT_EQ(here.run(call("tune", {"--budget", "300ms"})).exit_code, 0);
  EXPECT_EQ(here.run({"db", "verify"}).exit_code, 0);
  std::ofstream(here.file("text.db")) << "this is no database, however long it may be; not at all";
  const Outcome outcome =
      here.run({"db", "verify", here.database(), here.file("text.db"), "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(outcome.json().at(0).at("result"), "ok");
  EXPECT_EQ(outcome.json().at(1).at("result"), "unreadable");
  EXPECT_EQ(here.run(call("tune", {"--db", here.file("text.db")})).exit_code, 4);
}

TEST(Database, ThatCannotBeWrittenEndsATuningByItsExitCode) {
  const Sandbox here;
  const std::vector<std::string> tune{
      "tune", "recurrent_attention", "T=8", "H=1", "D=4", "--budget", "200ms"};
  const auto with = [&](std::vector<std::string> arguments, const std::string& database) {
    arguments.insert(arguments.end(), {"--db", database});
    return here.run(arguments);
  };
  const Outcome full = with(tune, "/proc/attune.db");
  EXPECT_EQ(full.exit_code, 4);
  EXPECT_THAT(full.err, HasSubstr("/proc/attune.db"));
  EXPECT_THAT(full.err, Not(HasSubstr("kept in memory"))) << "nothing was tuned yet";
  EXPECT_EQ(with({"db", "gc"}, "/proc/version").exit_code, 4);
  EXPECT_EQ(
      with({"run", "recurrent_attention", "T=8", "H=1", "D=4", "--policy", "db"}, "/proc/attune.db")
          .exit_code,
      0);
}

TEST(Database, WithoutAHomeThereIsNoneAndEverythingElseWorks) {
  const Sandbox here;
  const auto homeless = [&](std::vector<std::string> arguments) {
    return here.run(Call{.arguments = std::move(arguments),
                         .environment = {},
                         .under = {"env", "-u", "HOME", "-u", "XDG_DATA_HOME"}});
  };
  EXPECT_EQ(homeless({"run", "recurrent_attention", "T=8", "H=1", "D=4"}).exit_code, 0);
  const std::vector<std::string> tune{"tune", "recurrent_attention", "T=8", "H=1", "D=4"};
  for (const auto& arguments : {std::vector<std::string>{"db", "gc"}, {"db", "path"}, tune}) {
    const Outcome outcome = homeless(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("neither --db, ATTUNE_DB nor HOME is set"));
  }
  ASSERT_EQ(here.run(tune).exit_code, 0);
  const Outcome known = here.run({.arguments = tune,
                                  .environment = {"ATTUNE_SYSTEM_DB_PATH=" + here.database()},
                                  .under = {"env", "-u", "HOME", "-u", "XDG_DATA_HOME"}});
  EXPECT_EQ(known.exit_code, 0) << known.err;
  EXPECT_THAT(known.err, HasSubstr("1 already tuned"));
  const Outcome doctor = homeless({"doctor", "-q"});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.out, HasSubstr("neither ATTUNE_DB nor HOME is set; what is tuned is kept"));
}

/// Waits for text on standard error; false when it does not come within ten seconds.
bool wait_for(const Sandbox& here, const std::string& text) {
  for (int i = 0; i < 1000; ++i) {
    if (here.errors_so_far().find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class Interrupted : public ::testing::TestWithParam<int> {};

TEST_P(Interrupted, TuningKeepsWhatIsFinishedAndSaysHowToGoOn) {
  const Sandbox here;
  const pid_t child = here.start({.arguments = {"tune", "recurrent_attention", "T=[1:2000:+1]",
                                                "H=4", "D=32", "--budget", "10m"}});
  const bool started = wait_for(here, "[1/2000]");
  ASSERT_EQ(::kill(child, GetParam()), 0);
  const Outcome outcome = here.finish(child);
  ASSERT_TRUE(started) << outcome.err;
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(
      outcome.err,
      HasSubstr("Resume: attune tune recurrent_attention 'T=[1:2000:+1]' H=4 D=32 --budget 10m"));
  EXPECT_THAT(outcome.out, HasSubstr("stored"));
  EXPECT_EQ(here.run({"db", "verify"}).exit_code, 0);
  EXPECT_GE(here.run({"db", "ls", "-o", "json"}).json().size(), 1U);
}
INSTANTIATE_TEST_SUITE_P(BySignal, Interrupted, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace attune::test
