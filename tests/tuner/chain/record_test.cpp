// What is recorded of problems that nothing was tuned for: all of it, and only that.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cache/child_process.hpp"
#include "recording/record_file.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using chain::sum_recorded;

class ChainRecordTest : public ChainTest {
 protected:
  ChainRecordTest() {
    settings.policy = policy_of(Policy::kDb);
    settings.record = path;
  }

  std::string text() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// The sums of what is in the file, which holds nothing else: one object a problem.
  std::vector<nlohmann::json> recorded() const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(sum_recorded(text()));
    for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  static std::int64_t hits(const nlohmann::json& row) { return row.at("recorded").at("hits"); }

  void select_often(int times) {
    for (int i = 0; i < times; ++i) select();
  }

  std::string path = folder.file("shapes.jsonl");
};

TEST_F(ChainRecordTest, CountsEachCallOfAnUntunedProblem) {
  add_tiled();
  select_often(5);
  problem.rows = 7;
  select_often(2);
  restart();
  const auto rows = recorded();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("op"), "scaling");
  EXPECT_EQ(rows[0].at("rows"), 100);
  EXPECT_EQ(rows[0].at("recorded").at("device_class"), "fake:1");
  EXPECT_EQ(rows[0].at("recorded").at("platform"), "auto");
  EXPECT_EQ(rows[0].at("recorded").at("answer"), "heuristic");
  EXPECT_EQ(hits(rows[0]), 5);
  EXPECT_EQ(hits(rows[1]), 2);
}

TEST_F(ChainRecordTest, LeavesOutWhatIsTunedPinnedOrHasNothingToTune) {
  add_tiled();
  write(row("tile=8"));
  select_often(3);
  problem.rows = 7;
  settings.policy = policy_of(Policy::kTune);
  restart();
  select_often(3);
  problem.rows = 300;
  pin("test.scaling.tiled", "tile=4");
  settings.policy = policy_of(Policy::kDb);
  restart();
  select_often(3);
  restart();
  EXPECT_EQ(text(), "");
}

TEST_F(ChainRecordTest, LeavesOutAProblemWithOneCandidate) {
  add({.candidates = {{.tile = 1}}});
  select_often(3);
  restart();
  EXPECT_EQ(text(), "");
}

TEST_F(ChainRecordTest, SaysWhatStoodIn) {
  add({.version = 2});
  ConfigRow current = row("tile=8");
  current.kernel_version = 2;
  write(current);
  problem.rows = 120;  // the same bucket
  select_often(3);
  problem.rows = 150;  // the next
  select_often(2);
  problem = {.rows = 100, .flavour = 1};
  write(row("tile=8"));
  restart();
  select();
  restart();
  const auto rows = recorded();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].at("recorded").at("answer"), "bucket");
  EXPECT_EQ(hits(rows[0]), 3);
  EXPECT_EQ(rows[1].at("recorded").at("answer"), "neighbour");
  EXPECT_EQ(hits(rows[1]), 2);
  EXPECT_EQ(rows[2].at("recorded").at("answer"), "stale");
}

TEST_F(ChainRecordTest, WritesAProblemAtOnceAndItsCountWhenItHasDoubled) {
  add_tiled();
  select();
  ASSERT_EQ(recorded().size(), 1U);
  select_often(999);
  const auto lines = [&] {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  };
  EXPECT_EQ(lines(), 10) << "at 1, 2, 4, ... 512";
  EXPECT_EQ(hits(recorded()[0]), 512);
  restart();
  EXPECT_EQ(hits(recorded()[0]), 1000);
  EXPECT_EQ(lines(), 11);
}

TEST_F(ChainRecordTest, OfAKilledProcessKeepsEveryProblemAndHalfItsCount) {
  add_tiled();
  const pid_t child = start_child([&] {
    for (int i = 0; i < 20; ++i) {
      problem.rows = 1000 * (i + 1);
      select_often(100);
    }
    raise(SIGKILL);
    return true;
  });
  EXPECT_FALSE(wait_for(child));
  const auto rows = recorded();
  ASSERT_EQ(rows.size(), 20U);
  for (const nlohmann::json& row : rows) EXPECT_EQ(hits(row), 64);
}

TEST_F(ChainRecordTest, OfSeveralProcessesAddsUp) {
  constexpr int kProcesses = 6;
  add_tiled();
  EXPECT_EQ(in_children(kProcesses,
                        [&](int) {
                          for (int i = 0; i < 30; ++i) {
                            problem.rows = 1000 * (i + 1);
                            select_often(i + 1);
                          }
                          restart();  // as the end of the process does
                          return true;
                        }),
            kProcesses);
  const auto rows = recorded();
  ASSERT_EQ(rows.size(), 30U);
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(hits(row), kProcesses * row.at("rows").get<std::int64_t>() / 1000);
  }
}

TEST_F(ChainRecordTest, OfAForkedChildCountsItsOwnCallsAlone) {
  add_tiled();
  select_often(3);
  EXPECT_TRUE(in_child([&] {
    select_often(7);  // the first two are written with the third of the parent's not being
    restart();
    return true;
  }));
  restart();
  EXPECT_EQ(hits(recorded().at(0)), 10);
}

TEST_F(ChainRecordTest, GoesOnWithoutAFileThatCannotBeRecordedInto) {
  add_tiled();
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string text = folder.file("text");
  std::ofstream(text) << "a letter\n";
  const auto folder_path = folder.file("folder");
  std::filesystem::create_directory(folder_path);
  for (const std::string& where :
       {folder_path, fifo, text, std::string("/dev/null"), std::string("/dev/full"),
        std::string("/nonexistent/shapes.jsonl")}) {
    logged.clear();
    settings.record = where;
    restart();
    select_often(10);
    restart();
    EXPECT_THAT(logged, testing::StartsWith("recording ends: " + where + ": "));
    EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
  }
}

}  // namespace
}  // namespace attune::test
