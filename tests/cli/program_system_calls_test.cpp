// Every system call that touches a file fails once, by strace(1): no crash, and nothing that was
// acknowledged is lost.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"
#include "support/campaign.hpp"
#include "traced_calls.hpp"

namespace attune::test {
namespace {

using Mode = ConfigDatabase::Mode;

constexpr int kUnsupportedByLoader = 127;  // a library could not be loaded: no line of attune's ran

/// A call that can fail, and how.
struct Fault {
  std::string call, error;
};

const std::vector<Fault> kFaults{
    {"openat", "EIO"},       {"openat", "ENOSPC"}, {"pwrite64", "EIO"}, {"pwrite64", "ENOSPC"},
    {"write", "EIO"},        {"write", "ENOSPC"},  {"fsync", "EIO"},    {"fdatasync", "EIO"},
    {"fdatasync", "ENOSPC"}, {"ftruncate", "EIO"}, {"unlink", "EIO"},
};

class SystemCallsTest : public testing::Test {
 protected:
  SystemCallsTest() {
    Call sample = tune("n=10,20");
    sample.arguments.insert(sample.arguments.end(), {"--db", here.file("sample.db")});
    EXPECT_EQ(here.run(sample).exit_code, 0);
    EXPECT_EQ(here.run({"db", "export", here.file("sample.db"), "--output", rows_file()}).exit_code,
              0);
  }

  Call tune(const std::string& problems) const {
    return {.arguments = {"tune", "doubling", problems, "--plugin", BAD_KERNELS_PLUGIN, "--iters",
                          "3", "--warmup", "0", "--budget", "20s"},
            .environment = {"BAD_KERNELS=leaves_the_tail"}};
  }
  std::string rows_file() const { return here.file("sample.jsonl"); }

  /// Runs `call` once for each of its system calls, or some of them, each time from `begin()`;
  /// `check` is told how it went.
  void fail_each(const Call& call, const std::function<void()>& begin,
                 const std::function<void(const Outcome&)>& check) {
    begin();
    std::vector<std::string> names;
    for (const Fault& fault : kFaults) {
      if (std::ranges::find(names, fault.call) == names.end()) names.push_back(fault.call);
    }
    const std::map<std::string, int> counts = count_system_calls(here, call, names);
    if (counts.empty()) GTEST_SKIP() << "no strace here that may trace";
    int runs = 0;
    for (const Fault& fault : kFaults) {
      const auto found = counts.find(fault.call);
      const int all = found == counts.end() ? 0 : found->second;
      const int step = campaign_length(std::max(1, all / 2), 1);
      for (int n = 1 + step / 2; n <= all; n += step) {
        SCOPED_TRACE(fault.call + " " + std::to_string(n) + " fails with " + fault.error);
        begin();
        check(here.run(inject(here, call, fault.call, n, "error=" + fault.error)));
        ++runs;
        if (HasFailure()) return;
      }
    }
    std::cout << runs << " runs\n";
  }

  /// What is in the database, once a writer has undone what was left half done.
  std::set<std::string> stored() const {
    if (!std::filesystem::exists(here.database())) return {};
    const ConfigDatabase database(here.database(), Mode::kReadWrite);
    EXPECT_TRUE(database.verify().ok());
    std::set<std::string> problems;
    for (const ConfigRow& row : database.read().rows) problems.insert(row.key.problem);
    return problems;
  }

  void forget() const { std::filesystem::remove_all(here.file("data")); }

  Sandbox here;
};

/// Ended by itself, and said why when it did not do what it was asked for.
void expect_no_crash(const Outcome& outcome) {
  if (outcome.exit_code == kUnsupportedByLoader) return;
  EXPECT_LE(outcome.exit_code, 5) << outcome.err;
  EXPECT_TRUE(outcome.exit_code == 0 || !outcome.err.empty());
}

TEST_F(SystemCallsTest, ThatFailWhileTuningLoseNothingThatWasSaidToBeStored) {
  const std::set<std::string> all{"n=500", "n=1000"};
  fail_each(
      tune("n=500,1000"), [&] { forget(); },
      [&](const Outcome& outcome) {
        expect_no_crash(outcome);
        const std::set<std::string> found = stored();
        std::istringstream lines(outcome.err);
        for (std::string line; std::getline(lines, line);) {
          std::string count, problem;  // "[1/2] n=500  good.doubling times=1  ..."
          std::istringstream(line) >> count >> problem;
          if (!line.ends_with("over the heuristic")) continue;
          EXPECT_TRUE(found.contains(problem)) << problem << " is lost\n" << outcome.err;
        }
        EXPECT_TRUE(outcome.exit_code != 0 || found == all) << outcome.err;
        EXPECT_EQ(here.run(tune("n=500,1000")).exit_code, 0);
        EXPECT_EQ(stored(), all);
      });
}

TEST_F(SystemCallsTest, ThatFailWhileImportingLeaveAllRowsOrNone) {
  fail_each(
      Call{{"db", "import", rows_file()}}, [&] { forget(); },
      [&](const Outcome& outcome) {
        expect_no_crash(outcome);
        const std::size_t found = stored().size();
        EXPECT_TRUE(found == 2 || (found == 0 && outcome.exit_code != 0)) << outcome.err;
        EXPECT_EQ(here.run({"db", "import", rows_file()}).exit_code, 0);
        EXPECT_EQ(stored().size(), 2U);
      });
}

TEST_F(SystemCallsTest, ThatFailWhileExportingLeaveTheOldFileOrTheNew) {
  const std::string output = here.file("out.jsonl");
  DatabaseContent one = read_database_file(rows_file());
  one.decisions.pop_back();
  const auto old = [&] { write_database_file(output, one); };
  ASSERT_EQ(here.run({"db", "import", rows_file()}).exit_code, 0);
  fail_each(Call{{"db", "export", "--output", output}}, old, [&](const Outcome& outcome) {
    expect_no_crash(outcome);
    const std::size_t rows = read_database_file(output).decisions.size();
    EXPECT_EQ(rows, outcome.exit_code == 0 ? 2U : 1U) << outcome.err;
    EXPECT_EQ(stored().size(), 2U);
  });
}

TEST_F(SystemCallsTest, ThatFailWhilePinningLeaveThePinOrSaySo) {
  const auto pins = [&] {
    return ConfigDatabase(here.database(), Mode::kReadWrite).read().pins.size();
  };
  const Call pin{{"db", "pin", "doubling", "n=500", "--plugin", BAD_KERNELS_PLUGIN, "--config",
                  "kernel=good.doubling,times=1", "--reason", "a test"}};
  fail_each(
      pin,
      [&] {
        forget();
        EXPECT_EQ(here.run({"db", "import", rows_file()}).exit_code, 0);
      },
      [&](const Outcome& outcome) {
        expect_no_crash(outcome);
        EXPECT_EQ(stored().size(), 2U);
        EXPECT_TRUE(outcome.exit_code != 0 || pins() == 1) << outcome.err;
      });
}

}  // namespace
}  // namespace attune::test
