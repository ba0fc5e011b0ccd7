// kill -9 of `attune tune`, of its worker, or of both, at any time: what it said was stored is
// there, and no candidate pays for it.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/suspect_note.hpp>

#include "attune_process.hpp"
#include "support/campaign.hpp"

namespace attune::test {
namespace {

using Mode = ConfigDatabase::Mode;

const std::set<std::string> kProblems{"n=500", "n=1000", "n=2000", "n=4000"};
const std::set<std::string> kBadKernels{"bad.leaves_the_tail", "bad.gives_nan", "bad.calls_abort"};

/// What ends at a random moment.
enum class Target { kTuner, kWorker, kBoth };

class KillTest : public testing::Test {
 protected:
  Call tune() const {
    return {.arguments = {"tune", "doubling", "n=[500:4000:*2]", "--plugin", BAD_KERNELS_PLUGIN,
                          "--iters", "5", "--budget", "40s", "--isolate", isolate},
            .environment = {"BAD_KERNELS=" + bad_kernels,
                            "DOUBLING_LAUNCHES=" + here.file("launches")}};
  }

  /// The problems whose lines on standard error say that they are tuned.
  std::set<std::string> acknowledged() const {
    std::set<std::string> problems;
    std::istringstream lines(here.errors_so_far());
    for (std::string line; std::getline(lines, line);) {
      std::string count, problem;  // "[1/4] n=500  good.doubling times=1  ..."
      std::istringstream(line) >> count >> problem;
      const bool told = line.ends_with("over the heuristic");
      if (told && kProblems.contains(problem)) problems.insert(problem);
    }
    return problems;
  }

  bool has_database() const { return std::filesystem::exists(here.database()); }

  /// What is stored, by problem. Undoes first what a killed process had begun, as any writer does.
  std::map<std::string, ConfigRow> rows() const {
    std::map<std::string, ConfigRow> found;
    if (!has_database()) return found;
    const ConfigDatabase database(here.database(), Mode::kReadWrite);
    EXPECT_TRUE(database.verify().ok());
    for (const ConfigRow& row : database.read().rows) found[row.key.problem] = row;
    return found;
  }

  std::vector<QuarantineRow> quarantine() const {
    if (!has_database()) return {};
    return ConfigDatabase(here.database(), Mode::kReadOnly).read().quarantine;
  }

  std::multiset<std::string> launches() const {
    std::ifstream file(here.file("launches"));
    return {std::istream_iterator<std::string>(file), {}};
  }

  std::set<std::string> notes() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(here.file("data/attune"))) {
      const std::string name = entry.path().filename().string();
      if (name.find(".running.") != std::string::npos) names.insert(name);
    }
    return names;
  }

  void forget_all() {
    std::filesystem::remove_all(here.file("data"));
    std::filesystem::remove(here.file("launches"));
    stored.clear();
  }

  /// Starts a tuning and kills `target` of it after at most `most`. Whether the tuning was killed.
  bool tune_and_kill(Target target, std::chrono::microseconds most) {
    const pid_t tuner = here.start(tune());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most.count()));
    const pid_t worker = target == Target::kTuner ? 0 : child_of(tuner);
    if (target != Target::kWorker) ::kill(tuner, SIGKILL);
    if (worker != 0) ::kill(-worker, SIGKILL);
    const Outcome outcome = here.finish(tuner);
    const bool killed = outcome.exit_code == 128 + SIGKILL;
    EXPECT_TRUE(killed || outcome.exit_code == 0) << outcome.exit_code << outcome.err;
    kills += killed || worker != 0 ? 1 : 0;
    return killed;
  }

  /// Its worker, if it has one just now.
  static pid_t child_of(pid_t parent) {
    const std::string id = std::to_string(parent);
    pid_t child = 0;
    std::ifstream("/proc/" + id + "/task/" + id + "/children") >> child;
    return child;
  }

  /// Everything that was acknowledged is there, and what is there stays as it was.
  void expect_kept() {
    const std::map<std::string, ConfigRow> now = rows();
    for (const std::string& problem : acknowledged()) {
      ++acknowledgements;
      EXPECT_TRUE(now.contains(problem)) << problem << " was acknowledged, and is lost";
    }
    for (const auto& [problem, row] : stored) {
      ASSERT_TRUE(now.contains(problem)) << problem << " is lost";
      EXPECT_EQ(now.at(problem), row) << problem << " was tuned again";
    }
    stored = now;
  }

  /// A tuning that nobody kills does what is left, and the next one has nothing to do.
  void expect_completed() {
    for (const std::string result : {"stored", "already tuned"}) {
      Call last = tune();
      last.arguments.insert(last.arguments.end(), {"-o", "json"});
      const Outcome outcome = here.run(last);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      for (const auto& row : outcome.json()) {
        const bool known = stored.contains(row.at("problem"));
        EXPECT_EQ(row.at("result"), known ? "already tuned" : result) << row;
      }
      expect_kept();
      EXPECT_EQ(stored.size(), kProblems.size());
    }
    EXPECT_THAT(notes(), testing::IsEmpty());
  }

  Sandbox here;
  std::string isolate = "on";
  std::string bad_kernels = "leaves_the_tail,gives_nan,calls_abort";
  std::mt19937 random{11};
  std::map<std::string, ConfigRow> stored;
  int kills = 0;
  int acknowledgements = 0;
};

TEST_F(KillTest, OfTheTunerOrItsWorkerLosesNothingAndBlamesNobody) {
  const int wanted = campaign_length(8, 1000);
  int kills_before = 0;  // of the problems as they were forgotten last
  std::size_t launched_again = 0;
  for (int round = 0; kills < wanted; ++round) {
    ASSERT_LT(round, 20 * wanted) << "tunings end before they are killed";
    const auto target = static_cast<Target>(round % 3);
    const bool killed = tune_and_kill(target, std::chrono::milliseconds(700));
    expect_kept();
    for (const QuarantineRow& row : quarantine()) {
      EXPECT_TRUE(kBadKernels.contains(row.kernel)) << row.kernel << ": " << row.reason;
      EXPECT_FALSE(row.reason.starts_with(kSuspect)) << row.kernel << ": " << row.reason;
    }
    if (killed && stored.size() < kProblems.size()) continue;
    expect_completed();
    if (HasFatalFailure()) return;
    // A kill costs the verdict on the candidate that ran, and no other's.
    const std::size_t tries = kBadKernels.size() * kProblems.size();
    EXPECT_GE(launches().size(), tries);
    EXPECT_LE(launches().size(), tries + static_cast<std::size_t>(kills - kills_before));
    launched_again += launches().size() - tries;
    kills_before = kills;
    forget_all();
  }
  EXPECT_GT(acknowledgements, 0);
  std::cout << kills << " kills, " << acknowledgements << " rows acknowledged, " << launched_again
            << " candidates run again\n";
}

TEST_F(KillTest, WithoutIsolationBlamesAtMostTheCandidateThatRan) {
  isolate = "off";
  bad_kernels = "leaves_the_tail,gives_nan";
  const int wanted = campaign_length(5, 200);
  for (int round = 0; kills < wanted; ++round) {
    ASSERT_LT(round, 20 * wanted) << "tunings end before they are killed";
    tune_and_kill(Target::kTuner, std::chrono::milliseconds(300));
    expect_kept();
    const auto suspects = std::ranges::count_if(
        quarantine(), [](const QuarantineRow& row) { return row.reason.starts_with(kSuspect); });
    EXPECT_LE(suspects, kills);
    if (stored.size() == kProblems.size()) forget_all();
  }
}

}  // namespace
}  // namespace attune::test
