// Counters as text: what a scraper reads, when it is written, and what is left when a process ends.
#include "telemetry/stats_file.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "cache/child_process.hpp"
#include "telemetry/metrics_text.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kNever{3'600'000};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(MetricsText, IsWhatOpenMetricsAndNodeExporterRead) {
  telemetry::MetricsText text({{"pid", "1"}});
  text.counter("attune_x", "What x is.");
  text.sample(3, {{"of", "a \"b\"\\\n"}});
  text.gauge("attune_y", "What y is.");
  text.sample(0.5);
  EXPECT_EQ(text.take(),
            "# HELP attune_x What x is.\n"
            "# TYPE attune_x counter\n"
            "attune_x_total{pid=\"1\",of=\"a \\\"b\\\"\\\\\\n\"} 3\n"
            "# HELP attune_y What y is.\n"
            "# TYPE attune_y gauge\n"
            "attune_y{pid=\"1\"} 0.5\n"
            "# EOF\n");
}

class StatsFileTest : public ChainTest {
 protected:
  StatsFileTest() {
    settings.stats = path;
    settings.stats_every = kNever;
  }
  std::string path = folder.file("attune.prom");
};

TEST_F(StatsFileTest, IsThereFromTheBeginningAndHasTheLastCountersAtTheEnd) {
  add_tiled();
  chain();
  EXPECT_THAT(text_of_file(path), HasSubstr("attune_tunings_total{"));
  EXPECT_THAT(text_of_file(path), EndsWith("# EOF\n"));
  select();
  restart();  // ends the first one
  // The next chain has begun to write its own.
  EXPECT_THAT(text_of_file(path), HasSubstr("attune_choices_total{"));
}

TEST_F(StatsFileTest, CountsWhatHappened) {
  add_tiled();
  auto one = make_chain();
  select(*one, request());
  one.reset();
  const std::string text = text_of_file(path);
  const std::string who = "program=\"" + std::string(program_invocation_short_name) + "\",pid=\"" +
                          std::to_string(getpid()) + "\"";
  EXPECT_THAT(text, HasSubstr("attune_tunings_total{" + who + "} 1\n"));
  EXPECT_THAT(text, HasSubstr("attune_choices_total{" + who + ",tier=\"autotune\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("attune_choices_total{" + who + ",tier=\"pin\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("attune_remembered_choices{" + who + "} 1\n"));
  EXPECT_THAT(text, HasSubstr("attune_database_rows{" + who + ",layer=\"user\",file=\"" +
                              settings.store.user_path + "\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("attune_faults_total{" + who + "} 0\n"));
}

TEST_F(StatsFileTest, HasOneHelpAndOneTypeAFamilyBeforeItsSamples) {
  add_tiled();
  auto one = make_chain();
  select(*one, request());
  one.reset();
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(text_of_file(path));
  for (std::string line; std::getline(lines, line) && line != "# EOF";) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    } else if (!line.starts_with("# TYPE " + family + ' ')) {
      EXPECT_TRUE(line.starts_with(family + '{') || line.starts_with(family + "_total{")) << line;
    }
  }
  EXPECT_GT(families.size(), 8U);
}

TEST_F(StatsFileTest, IsWrittenAgainWithoutACall) {
  std::atomic<int> written = 0;
  telemetry::StatsFile file(path, std::chrono::milliseconds(1), [&] {
    ++written;
    return std::string("# HELP attune_x x\n# EOF\n");
  });
  while (written < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_THAT(text_of_file(path), EndsWith("# EOF\n"));
}

TEST_F(StatsFileTest, InAFolderEachProcessHasItsOwnAndRemovesIt) {
  settings.stats = folder.file("stats");
  std::filesystem::create_directory(settings.stats);
  EXPECT_TRUE(in_child([&] {
    auto one = make_chain();
    return files_in(settings.stats).size() == 1;
  }));
  EXPECT_TRUE(files_in(settings.stats).empty());
  auto one = make_chain();
  ASSERT_EQ(files_in(settings.stats).size(), 1U);
  EXPECT_THAT(files_in(settings.stats)[0], EndsWith("-" + std::to_string(getpid()) + ".prom"));
}

TEST_F(StatsFileTest, InAFolderWhatAKilledProcessLeftIsRemovedByTheNext) {
  settings.stats = folder.file("stats");
  std::filesystem::create_directory(settings.stats);
  std::ofstream(settings.stats + "/node.prom") << "somebody else's\n";
  EXPECT_FALSE(in_child([&] {
    auto one = make_chain();
    return kill(getpid(), SIGKILL) == 0;
  }));
  EXPECT_EQ(files_in(settings.stats).size(), 2U);
  make_chain();
  EXPECT_EQ(files_in(settings.stats), std::vector<std::string>{"node.prom"});
}

TEST_F(StatsFileTest, WhatIsNotItsOwnStaysAsItIsAndIsAWarning) {
  std::ofstream(path) << "a letter\n";
  add_tiled();
  EXPECT_EQ(text(select()), kBest);
  restart();
  EXPECT_EQ(text_of_file(path), "a letter\n");
  EXPECT_THAT(logged, HasSubstr("ATTUNE_STATS: " + path));
}

TEST_F(StatsFileTest, AForkedChildLeavesItsParentsFileAlone) {
  settings.stats = folder.file("stats");
  std::filesystem::create_directory(settings.stats);
  auto one = make_chain();
  // By now its thread waits, as in a program that forks some time after it has begun.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(in_child([&] {
    one.reset();
    return true;
  }));
  EXPECT_EQ(files_in(settings.stats).size(), 1U);
}

}  // namespace
}  // namespace attune::test
