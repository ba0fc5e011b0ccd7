// Record, tune, use: `attune record` and `attune tune @FILE`.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

class Record : public ::testing::Test {
 protected:
  /// A program that uses attune: attune.
  Outcome record(const std::vector<std::string>& program) const {
    std::vector<std::string> arguments{"record", "--output", shapes, "--"};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return here.run(arguments);
  }
  static std::vector<std::string> run_of(const std::string& tokens) {
    return {
        ATTUNE_PROGRAM, "run", "recurrent_attention", "T=" + tokens, "H=2", "D=8", "--policy", "db",
        "-o",           "json"};
  }
  nlohmann::json tune(std::vector<std::string> more) const {
    std::vector<std::string> arguments{"tune", "@" + shapes, "-o", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return here.run(arguments).json();
  }

  Sandbox here;
  std::string shapes = here.file("shapes.jsonl");
};

TEST_F(Record, WhatIsRecordedAndTunedIsFoundByTheNextProcess) {
  const Outcome recorded = record(run_of("16"));
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_EQ(recorded.json().at(0).at("source"), "heuristic") << "the program's output is its own";
  EXPECT_THAT(recorded.err, HasSubstr("Tune them: attune tune @" + shapes));
  const nlohmann::json plan = tune({"--dry-run"});
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan.at(0).at("state"), "to tune");
  EXPECT_GE(plan.at(0).at("hits"), 1);
  EXPECT_GT(plan.at(0).at("candidates"), 1);
  EXPECT_GT(plan.at(0).at("estimate_s"), 0);
  EXPECT_FALSE(std::filesystem::exists(here.database())) << "a dry run writes nothing";

  EXPECT_THAT(tune({"--budget", "400ms"}).at(0).at("result").get<std::string>(),
              HasSubstr("stored"));
  EXPECT_EQ(tune({"--dry-run"}).at(0).at("state"), "tuned");
  EXPECT_EQ(record(run_of("16")).json().at(0).at("source"), "persistent");
}

TEST_F(Record, TheExitCodeIsTheProgramsOwn) {
  EXPECT_EQ(record({"sh", "-c", "exit 7"}).exit_code, 7);
  EXPECT_EQ(record({"sh", "-c", "kill -TERM $$"}).exit_code, 128 + 15);
  EXPECT_EQ(record({here.file("nothing")}).exit_code, 5);
  EXPECT_EQ(here.run({"record"}).exit_code, 2);
}

TEST_F(Record, WhatCostsMostIsTunedFirst) {
  const std::string device = cpu_device().info().device_class;
  const auto line = [&](const char* tokens, int hits, const std::string& where) {
    return std::string("{\"op\":\"recurrent_attention\",\"T\":") + tokens +
           ",\"H\":2,\"D\":8,\"recorded\":{\"hits\":" + std::to_string(hits) +
           ",\"device_class\":\"" + where + "\",\"platform\":\"simd\"}}\n";
  };
  std::ofstream(shapes) << line("8", 2, device) << line("4096", 100, device)
                        << line("16", 100, device) << line("8", 3, device)
                        << line("32", 9, "gpu:sm_90:132sm:l2=50M:mem=140G");
  const Outcome outcome = here.run({"tune", "@" + shapes, "--dry-run", "-o", "json"});
  const nlohmann::json plan = outcome.json();
  ASSERT_EQ(plan.size(), 3U);
  EXPECT_THAT(plan.at(0).at("problem").get<std::string>(), HasSubstr("T=4096"));
  EXPECT_THAT(plan.at(1).at("problem").get<std::string>(), HasSubstr("T=16"));
  EXPECT_EQ(plan.at(2).at("hits"), 5) << "lines of one problem add up";
  EXPECT_THAT(outcome.err, HasSubstr("1 recorded problem is of a device that is not here"));
  EXPECT_THAT(outcome.err, HasSubstr("3 problems to tune"));
}

TEST_F(Record, CountsOfAProblemAddUpWithoutWrappingAround) {
  std::ofstream file(shapes);
  for (int i = 0; i < 2000; ++i) {
    file << R"({"op":"recurrent_attention","T":8,"H":2,"D":8,"recorded":{"hits":9007199254740993}})"
         << '\n';
  }
  file.close();
  const nlohmann::json plan = tune({"--dry-run"});
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan.at(0).at("hits"), std::int64_t{1} << 53);
  EXPECT_THAT(record({"true"}).err, HasSubstr("9007199254740992 calls"));
}

TEST_F(Record, WhatCannotBeRecordedIntoIsRefusedBeforeTheProgramStarts) {
  const std::string started = here.file("started");
  const auto refused = [&](const std::string& output) {
    const Outcome outcome = here.run({"record", "--output", output, "--", "touch", started});
    EXPECT_EQ(outcome.exit_code, 2) << output << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("--output " + output + ": "));
    EXPECT_FALSE(std::filesystem::exists(started));
  };
  const std::string letter = here.file("letter");
  std::ofstream(letter) << "Dear reader,\n";
  ASSERT_EQ(mkfifo(here.file("fifo").c_str(), 0600), 0);
  refused(letter);
  refused(here.file("fifo"));
  refused("/dev/null");
  refused("/dev/full");
  refused("/dev");
  refused("/nonexistent/shapes.jsonl");
  EXPECT_EQ(std::filesystem::file_size(letter), 13U);

  EXPECT_EQ(record({"touch", started}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(started));
  EXPECT_FALSE(std::filesystem::exists(shapes)) << "nothing untuned was met";
}

TEST_F(Record, TheExitCodeIsTheProgramsOwnWhateverElseTheRecordingHolds) {
  std::ofstream(shapes) << R"({"op":"recurrent_attention","T":8,"H":2,"D":8})"
                        << "\n{torn";
  const Outcome outcome = record({"sh", "-c", "exit 7"});
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_THAT(outcome.err, HasSubstr(shapes + ":2: "));
}

TEST_F(Record, AnInputWithoutAnEndIsReadUpToABound) {
  for (const std::string source : {"head -c 1000000000 /dev/zero", "yes '# nothing'"}) {
    const Call call{.arguments = {"tune", "recurrent_attention", "-"},
                    .under = {"sh", "-c", source + " | exec \"$0\" \"$@\""}};
    const Outcome outcome = here.run(call);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("tune: standard input:"));
  }
}

TEST_F(Record, APlatformThatWasAskedForIsTunedForItself) {
  std::vector<std::string> program = run_of("16");
  program.insert(program.end(), {"--platform", "simd"});
  ASSERT_EQ(record(program).exit_code, 0);
  tune({"--budget", "400ms"});
  EXPECT_EQ(here.run({"db", "ls", "-o", "json"}).json().at(0).at("platform"), "simd");
  EXPECT_EQ(record(program).json().at(0).at("source"), "persistent");
}

}  // namespace
}  // namespace attune::test
