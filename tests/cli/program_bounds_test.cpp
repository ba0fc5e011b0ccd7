// --threads, --workspace-limit, constraints and --objective, from tuning to the next process.
#include <sched.h>

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/parallel_for.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

class Bounds : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> words, const std::vector<std::string>& more) const {
    words.insert(words.end(), {"recurrent_attention", "B=2", "T=64", "H=4", "D=32"});
    words.insert(words.end(), more.begin(), more.end());
    return here.run(words);
  }
  Outcome tune(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"--budget", "500ms", "-o", "json"};
    all.insert(all.end(), more.begin(), more.end());
    return run({"tune"}, all);
  }
  std::string source(std::vector<std::string> more) const {
    more.insert(more.end(), {"--policy", "db", "-o", "json"});
    const Outcome outcome = run({"run"}, more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json().at(0).at("source");
  }
  std::string key_field(const std::string& name) const {
    return here.run({"db", "ls", "-o", "json", "-v"}).json().at(0).at(name);
  }
  /// The reasons of all tiers, by tier.
  nlohmann::json tiers(std::vector<std::string> more) const {
    more.insert(more.end(), {"--policy", "db", "-o", "json"});
    const nlohmann::json explained = run({"explain"}, more).json();
    nlohmann::json reasons;
    for (const auto& row : explained) {
      if (row.at("section") == "tiers") reasons[row.at("tier")] = row.at("reason");
    }
    return reasons;
  }
  static std::string bytes_of(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  }

  Sandbox here;
};

TEST_F(Bounds, WhatIsTunedForAThreadIsFoundAgainWithAsMany) {
  const Outcome tuned = tune({"--threads", "1"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(key_field("device_class"), read_cpu_info(1).device_class);
  EXPECT_EQ(source({"--threads", "1"}), "persistent");
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const Outcome held = here.run(Call{.arguments = {"run", "recurrent_attention", "B=2", "T=64",
                                                   "H=4", "D=32", "--policy", "db", "-o", "json"},
                                     .under = {"taskset", "--cpu-list", std::to_string(first)}});
  ASSERT_EQ(held.exit_code, 0) << held.err;
  EXPECT_EQ(held.json().at(0).at("source"), "persistent") << "by a process that taskset restricts";
  const Outcome by_variable =
      here.run(Call{.arguments = {"run", "recurrent_attention", "B=2", "T=64", "H=4", "D=32",
                                  "--policy", "db", "-o", "json"},
                    .environment = {"ATTUNE_THREADS=1"}});
  EXPECT_EQ(by_variable.json().at(0).at("source"), "persistent");
  if (usable_cores() > 1) {
    EXPECT_EQ(source({}), "heuristic") << "for all cores it was not tuned";
  }
}

TEST_F(Bounds, ThreadsDoNotChangeABit) {
  for (const char* threads : {"1", "1000000"}) {
    const Outcome outcome = run({"run"}, {"--threads", threads, "--policy", "heuristic", "--config",
                                          "kernel=simd.recurrent_attention,threads=4", "--output",
                                          here.file(std::string(threads) + ".safetensors")});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_EQ(bytes_of(here.file("1.safetensors")), bytes_of(here.file("1000000.safetensors")));
  EXPECT_FALSE(bytes_of(here.file("1.safetensors")).empty());
}

TEST_F(Bounds, NonsenseIsRefused) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"--threads", "0"}, "--threads '0': expected a whole number from 1"},
      {{"--threads", "two"}, "--threads 'two'"},
      {{"--workspace-limit", "-1"}, "--workspace-limit '-1'"},
      {{"--max-workspace", "1M"}, "--max-workspace '1M'"},
      {{"--max-error", "-1e-5"}, "--max-error '-1e-5': expected at least 0"},
      {{"--max-error", "nan"}, "--max-error 'nan'"},
      {{"--objective", "power"}, "--objective 'power': expected time, energy"},
  };
  for (const auto& [options, message] : kCases) {
    const Outcome outcome = run({"explain"}, options);
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST_F(Bounds, AWorkspaceLimitPassesOverWhatNeedsMore) {
  const Outcome least = run({"explain"}, {"--policy", "heuristic", "--workspace-limit", "0"});
  EXPECT_EQ(least.exit_code, 1);
  EXPECT_THAT(least.out, HasSubstr("the least that would do is"));
  ASSERT_EQ(tune({}).exit_code, 0);
  EXPECT_THAT(tiers({"--workspace-limit", "0"}).at("persistent").get<std::string>(),
              HasSubstr("bytes of workspace, the limit is at most 0"));
  EXPECT_EQ(source({"--workspace-limit", "1000000000"}), "persistent");
  const Outcome no_tuning = tune({"--workspace-limit", "1"});
  EXPECT_EQ(no_tuning.exit_code, 2);
  EXPECT_THAT(no_tuning.err, HasSubstr("--max-workspace"));
}

TEST_F(Bounds, AConstraintIsPartOfTheKey) {
  ASSERT_EQ(tune({"--max-error", "0.001", "--max-workspace", "100000000"}).exit_code, 0);
  EXPECT_EQ(key_field("platform"), "auto;workspace<=100000000;error<=0.001");
  EXPECT_EQ(source({"--max-error", "1e-3", "--max-workspace", "100000000"}), "persistent");
  EXPECT_EQ(source({}), "heuristic");
  const Outcome other = run({"run"}, {"--max-error", "0.01", "--policy", "db"});
  EXPECT_NE(other.exit_code, 0) << "what nobody measured is not known to keep it";
  EXPECT_THAT(other.err, HasSubstr("--max-error 0.01"));
  const Outcome shown = here.run({"db", "verify", here.database(), "-o", "json"});
  EXPECT_EQ(shown.exit_code, 0) << shown.out << shown.err;
}

TEST_F(Bounds, EnergyIsRefusedWhereThereIsNoCounter) {
  const Outcome outcome = tune({"--objective", "energy", "--backend", "cpu"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("--objective energy: cpu:0 is not a GPU of NVIDIA's"));
  const Outcome explained = run({"explain"}, {"--objective", "energy", "--backend", "cpu"});
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_THAT(explained.out, HasSubstr("minimises energy"));
}

TEST_F(Bounds, AStoredDecisionSaysWhatWasMinimised) {
  ASSERT_EQ(tune({}).exit_code, 0);
  const nlohmann::json shown = run({"db", "show"}, {"-o", "json"}).json();
  ASSERT_EQ(shown.at(0).at("section"), "decision");
  EXPECT_EQ(shown.at(0).at("objective"), "time");
  EXPECT_GT(shown.at(0).at("median_us"), 0);
  EXPECT_TRUE(shown.at(0).at("score").is_null());
}

}  // namespace
}  // namespace attune::test
