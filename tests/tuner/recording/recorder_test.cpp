// A recorder by itself: how much one process records, and what it says when that is all.
#include "recording/recorder.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <attune/core/log.hpp>

#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

SelectionKey key_of(std::int64_t i) {
  SelectionKey key{};
  key.problem.count = 1;
  key.problem.values[0] = i;
  return key;
}

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    set_log_sink([this](LogLevel, std::string_view line) { logged.emplace_back(line); });
  }
  ~RecorderTest() override { set_log_sink({}); }

  /// How many lines say so.
  std::ptrdiff_t said(const std::string& what) const {
    return std::count_if(logged.begin(), logged.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  }
  void count(std::int64_t problem) {
    recorder.count(key_of(problem), [&]() -> chain::RecordedCall {
      ++described;
      return {"scaling", "rows=1", "fake:1", "auto", "heuristic"};
    });
  }

  TemporaryFolder folder;
  // In a folder that is not there: nothing is written, which is said once.
  chain::Recorder recorder{folder.file("missing/shapes.jsonl")};
  std::vector<std::string> logged;
  int described = 0;
};

TEST_F(RecorderTest, LeavesOutWhatIsNewPastTenThousandProblemsAndSaysSoOnce) {
  for (std::int64_t i = 0; i < 10'000; ++i) count(i);
  EXPECT_EQ(described, 10'000);
  EXPECT_EQ(said("recording ends"), 1);
  EXPECT_EQ(said("further ones are left out"), 0);
  count(0);
  EXPECT_EQ(said("further ones are left out"), 0) << "it is known";
  count(10'000);
  EXPECT_EQ(said("further ones are left out"), 1);
  count(10'001);
  count(10'002);
  EXPECT_EQ(described, 10'000);
  EXPECT_EQ(said("10000 problems are recorded in this process; further ones are left out"), 1);
}

TEST_F(RecorderTest, WritesEachCallOnce) {
  const std::string path = folder.file("shapes.jsonl");
  const auto lines = [&] {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  {
    chain::Recorder kept(path);
    const auto describe = []() -> chain::RecordedCall {
      return {"scaling", "rows=1", "fake:1", "auto", "heuristic"};
    };
    kept.count(key_of(1), describe);
    EXPECT_EQ(lines(), 1);
    kept.count(key_of(1), describe);
    kept.count_again(key_of(1));
    kept.count_again(key_of(2));  // nobody counted it before
    EXPECT_EQ(lines(), 2) << "when the count has doubled";
    kept.flush();
    EXPECT_EQ(lines(), 3);
    kept.flush();
  }
  EXPECT_EQ(lines(), 3) << "nothing came since";
  EXPECT_TRUE(logged.empty());
}

}  // namespace
}  // namespace attune::test
