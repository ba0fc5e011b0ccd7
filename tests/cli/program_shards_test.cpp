// One list tuned by many processes: `attune tune --shard`, under the launchers that there are, with
// processes killed, and `attune db verify --covers`, which says what is missing. On simulated
// devices, whose clock makes every process choose alike.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>
#include <attune/core/error.hpp>

#include "attune_process.hpp"
#include "support/campaign.hpp"

namespace attune::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kProblems = 15;

/// Whether a command does what it should, soon. Launchers may be installed and start nothing, as those
/// of a cluster whose controller is away.
bool succeeds(const std::string& command) {
  return std::system(("timeout 20 " + command + " > /dev/null 2>&1").c_str()) == 0;
}
/// Whether a program is there and is the one of this name, of several that are called alike.
bool is_there(const std::string& program, const std::string& name) {
  return succeeds("sh -c '" + program + " --version | grep -q \"" + name + "\"'");
}
bool srun_starts_tasks() { return succeeds("srun -n 2 true"); }

class Shards : public ::testing::Test {
 protected:
  Shards() { write_list(lines()); }

  /// Each problem has one best config, which depends on cols.
  static std::vector<std::string> lines(const std::string& more = "") {
    std::vector<std::string> lines;
    for (const int cols : {16, 17, 19, 23, 31}) {
      for (const int rows : {20, 40, 60}) {
        lines.push_back(str(R"({"op":"row_softmax","rows":)", rows, ",\"cols\":", cols, more, '}'));
      }
    }
    return lines;
  }
  void write_list(const std::vector<std::string>& lines) const {
    std::ofstream file(list);
    for (const std::string& line : lines) file << line << '\n';
  }

  static Call call(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    for (const char* plugin : {ROW_SOFTMAX_PLUGIN, SIMULATED_FLEET_PLUGIN}) {
      arguments.insert(arguments.end(), {"--plugin", plugin});
    }
    return {.arguments = std::move(arguments), .environment = std::move(environment)};
  }
  Call tune(std::vector<std::string> more, std::vector<std::string> environment = {}) const {
    std::vector<std::string> arguments{"tune",    "@" + list, "--warmup", "0",
                                       "--iters", "6",        "-o",       "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(std::move(arguments), std::move(environment));
  }
  Outcome db(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "db");
    return here.run(call(std::move(arguments)));
  }

  std::vector<std::string> part_files() const {
    std::vector<std::string> files;
    if (!std::filesystem::exists(parts)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(parts)) {
      if (entry.path().extension() == ".db") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  /// All parts in one file.
  Outcome merge() const {
    std::vector<std::string> arguments{"merge"};
    for (const std::string& file : part_files()) arguments.push_back(file);
    arguments.insert(arguments.end(), {"--output", merged});
    return db(std::move(arguments));
  }
  /// The problems that --covers says are missing.
  std::set<std::string> missing(const std::vector<std::string>& files, int exit_code) const {
    std::vector<std::string> arguments{"verify", "--covers", "@" + list, "-o", "json"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const Outcome outcome = db(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    std::set<std::string> problems;
    for (const json& row : outcome.json()) problems.insert(row.at("problem"));
    return problems;
  }
  static std::set<std::string> problems_in(const std::vector<std::string>& files) {
    std::set<std::string> problems;
    for (const std::string& file : files) {
      for (const StoredDecision& decision : read_database_file(file).decisions) {
        problems.insert(decision.row.key.problem);
      }
    }
    return problems;
  }
  /// Of the parts as killed processes have left them.
  std::set<std::string> readable_problems() const {
    std::set<std::string> problems;
    for (const std::string& file : part_files()) {
      try {
        problems.merge(problems_in({file}));
      } catch (const CacheError&) {
        continue;  // empty, or with something that the next writer undoes
      }
    }
    return problems;
  }
  std::string digest_of(const std::string& file) const {
    return db({"digest", file, "-o", "json"}).json().at(0).at("digest");
  }
  /// What one process that tunes the whole list decides.
  std::string digest_of_one_process() const {
    const std::string whole = here.file("whole.db");
    EXPECT_EQ(here.run(tune({"--db", whole})).exit_code, 0);
    EXPECT_EQ(problems_in({whole}).size(), kProblems);
    return digest_of(whole);
  }
  /// Which shard has which problem.
  std::map<std::string, int> split(int shards, std::vector<std::string> more = {},
                                   std::vector<std::string> environment = {}) const {
    std::vector<std::string> arguments{"--shards", std::to_string(shards), "--dry-run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = here.run(tune(std::move(arguments), std::move(environment)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::map<std::string, int> shard_of;
    for (const json& row : outcome.json()) {
      if (row.contains("problem")) shard_of[row.at("problem")] = row.at("shard");
    }
    return shard_of;
  }
  void expect_complete() const {
    ASSERT_EQ(merge().exit_code, 0);
    EXPECT_EQ(missing({merged}, 0).size(), 0U);
    EXPECT_EQ(digest_of(merged), digest_of_one_process());
  }

  Sandbox here;
  std::string list = here.file("shapes.jsonl");
  std::string parts = here.file("parts");
  std::string merged = here.file("merged.db");
};

TEST_F(Shards, TogetherDecideAsOneProcessWould) {
  std::set<std::string> tuned;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const Outcome outcome = here.run(tune({"--shard", shard, "--db-dir", parts}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(str("shard ", shard, " (--shard): 5 of 15 lines")));
    for (const json& row : outcome.json()) {
      EXPECT_EQ(row.at("result"), "stored");
      EXPECT_TRUE(tuned.insert(row.at("problem")).second) << "tuned twice: " << row.at("problem");
    }
  }
  EXPECT_EQ(tuned.size(), kProblems);
  EXPECT_EQ(part_files(), (std::vector{parts + "/000-of-003.db", parts + "/001-of-003.db",
                                       parts + "/002-of-003.db"}));
  expect_complete();
}

TEST_F(Shards, OfMoreThanThereAreProblemsAreEmptyAndThatIsWell) {
  EXPECT_EQ(split(40).size(), kProblems);
  const Outcome outcome = here.run(tune({"--shard", "39/40", "--db-dir", parts}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().size(), 0U);
}

TEST_F(Shards, AreTheSameForEveryOrderDatabaseDeviceAndRecording) {
  const std::map<std::string, int> expected = split(4);
  ASSERT_EQ(expected.size(), kProblems);
  const std::string some = here.file("some.db");
  ASSERT_EQ(here.run(tune({"--shard", "1/4", "--db", some})).exit_code, 0);
  std::vector<std::string> shuffled = lines(R"(,"recorded":{"hits":7})");
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(3));
  shuffled.push_back(shuffled[2]);
  write_list(shuffled);
  EXPECT_EQ(split(4, {"--db", some}, {"SIM_CLASS=64c", "SIM_DEVICES=3"}), expected);
}

TEST_F(Shards, KnownProblemsAreSkippedAfterTheSplit) {
  const std::string own = here.file("own.db");
  ASSERT_EQ(here.run(tune({"--shard", "0/3", "--db", own})).exit_code, 0);
  const Outcome again = here.run(tune({"--shard", "0/3", "--db", own}));
  ASSERT_EQ(again.json().size(), 5U);
  for (const json& row : again.json()) EXPECT_EQ(row.at("result"), "already tuned");
  ASSERT_EQ(here.run(tune({"--shard", "1/3", "--db", own})).json().size(), 5U);
  EXPECT_EQ(problems_in({own}).size(), 10U);
}

TEST_F(Shards, AutoTakesWhatTheLauncherSaysAndSaysSo) {
  const Outcome array = here.run(
      tune({"--shard", "auto", "--db-dir", parts},
           {"SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_TASK_MIN=1", "SLURM_ARRAY_TASK_COUNT=3"}));
  EXPECT_EQ(array.exit_code, 0) << array.err;
  EXPECT_THAT(array.err, HasSubstr("shard 1/3 (Slurm array): 5 of 15 lines"));
  EXPECT_EQ(part_files(), (std::vector{parts + "/001-of-003.db"}));
  const Outcome pod = here.run(
      tune({"--shard", "auto", "--dry-run"}, {"JOB_COMPLETION_INDEX=0", "ATTUNE_SHARDS=5"}));
  EXPECT_THAT(pod.err, HasSubstr("shard 0/5 (Kubernetes): 3 of 15 lines"));
  const Outcome nothing = here.run(tune({"--shard", "auto", "--db-dir", parts}));
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no launcher says which shard this is"));
}

TEST_F(Shards, WhatDoesNotGoTogetherIsRefused) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--shard", "3"},
                                             {"--shard", "0/2", "--stale"},
                                             {"--db-dir", parts},
                                             {"--shard", "0/2", "--db-dir", parts, "--db", merged},
                                             {"--shard", "0/2", "--db-dir", ""},
                                             {"--shards", "2"},
                                             {"--shards", "0", "--dry-run"},
                                             {"--shards", "2", "--shard", "0/2", "--dry-run"}}) {
    EXPECT_EQ(here.run(tune(arguments)).exit_code, 2);
  }
  EXPECT_TRUE(part_files().empty());
}

TEST_F(Shards, LocalIsTheOnlyDeviceElseTheOneOfTheLocalRank) {
  const auto on = [&](std::vector<std::string> environment) {
    return here.run(tune({"--gpus", "local", "--retune"}, std::move(environment)));
  };
  EXPECT_EQ(on({}).exit_code, 0);
  EXPECT_EQ(on({"SIM_DEVICES=2", "LOCAL_RANK=1"}).exit_code, 0);
  EXPECT_THAT(on({"SIM_DEVICES=2"}).err, HasSubstr("no launcher says which number"));
  const Outcome third = on({"SIM_DEVICES=2", "LOCAL_RANK=2"});
  EXPECT_EQ(third.exit_code, 3);
  EXPECT_THAT(third.err, HasSubstr("no device sim:2"));
}

/// While the first sample of one does not end, the others tune all that is left.
TEST_F(Shards, DevicesOfOneHostDoNotWaitForEachOther) {
  const std::string events = here.file("events.jsonl"), hold = here.file("hold");
  const auto finished = [&] {
    std::ifstream file(events);
    int count = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.find("\"tune_finished\"") != std::string::npos) ++count;
    }
    return count;
  };
  int finished_meanwhile = 0;
  std::thread holding([&] {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (finished() < kProblems - 1 && std::chrono::steady_clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    finished_meanwhile = finished();
    std::ofstream(hold).flush();
  });
  const Outcome outcome = here.run(
      tune({"--gpus", "all"}, {"SIM_DEVICES=3", "SIM_HOLD=" + hold, "ATTUNE_EVENTS=" + events}));
  holding.join();
  EXPECT_EQ(finished_meanwhile, kProblems - 1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().size(), kProblems);
}

/// Candidates that sleep: what is lost is what the program itself does one after the other.
TEST_F(Shards, EightDevicesAreSevenTimesAsFastAsOne) {
  if (!is_long_campaign()) GTEST_SKIP() << "other processes take time: CAMPAIGN=long";
  constexpr int kDevices = 8;
  std::vector<std::string> many;
  for (int i = 0; i < kDevices * 10; ++i) {
    many.push_back(str(R"({"op":"row_softmax","rows":20,"cols":)", 16 * (i + 1), '}'));
  }
  write_list(many);
  const auto seconds_on = [&](int count) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = here.run(
        tune({"--gpus", "all", "--retune"}, {str("SIM_DEVICES=", count), "SIM_SAMPLE_US=10000"}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double one = seconds_on(1);
  const double all = seconds_on(kDevices);
  EXPECT_GT(one / all, 7.4) << one << " s, " << all << " s";
}

TEST_F(Shards, AWorkerGoesOnToTheNextProblemOfItsDevice) {
  const std::string starts = here.file("starts");
  const Outcome outcome =
      here.run(tune({"--gpus", "all", "--db", here.file("workers.db")},
                    {"SIM_DEVICES=2", "SIM_STARTS=" + starts, "SIM_SAMPLE_US=1000"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().size(), kProblems);
  std::ifstream file(starts);
  const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  EXPECT_EQ(lines, 3) << "the program itself, and a worker for each device";
}

TEST_F(Shards, SeveralDevicesTakeLongProblemsFirstAndTheTableKeepsItsOrder) {
  write_list({R"({"op":"row_softmax","rows":[20,40,60,2000],"cols":16})"});
  const std::string events = here.file("events.jsonl");
  const Outcome outcome = here.run(
      tune({"--gpus", "all"}, {"SIM_DEVICES=2", "SIM_SAMPLE_US=3000", "ATTUNE_EVENTS=" + events}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at(3).at("problem"), "rows=2000 cols=16");
  std::vector<std::string> started;
  std::ifstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    if (event.at("event") == "tune_started") started.push_back(event.at("problem"));
  }
  ASSERT_EQ(started.size(), 4U);
  const auto place = [&](const std::string& problem) {
    return std::find(started.begin(), started.end(), problem) - started.begin();
  };
  EXPECT_LT(place("rows=2000 cols=16"), 2);
  EXPECT_LT(place("rows=60 cols=16"), 2);
}

TEST_F(Shards, UnderMpirun) {
  if (!is_there("mpirun", "Open MPI")) GTEST_SKIP() << "no mpirun of Open MPI";
  Call job = tune({"--shard", "auto", "--gpus", "local", "--db-dir", parts}, {"SIM_DEVICES=2"});
  job.under = {"mpirun", "-n", "2", "--continuous", "--oversubscribe", "--allow-run-as-root"};
  const Outcome outcome = here.run(job);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("shard 1/2 (Open MPI)"));
  expect_complete();
}

TEST_F(Shards, UnderSrun) {
  if (!srun_starts_tasks()) GTEST_SKIP() << "no srun that starts two tasks";
  Call job = tune({"--shard", "auto", "--db-dir", parts});
  job.under = {"srun", "-n", "2"};
  const Outcome outcome = here.run(job);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_complete();
}

TEST_F(Shards, UnderASlurmArray) {
  if (!srun_starts_tasks()) GTEST_SKIP() << "no Slurm that starts two tasks";
  Call job = tune({"--shard", "auto", "--db-dir", parts});
  job.under = {"sh", "-c", "sbatch --array=0-2 --wait --output=/dev/null --wrap \"$*\"", "sh"};
  const Outcome outcome = here.run(job);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(part_files().size(), 3U);
  expect_complete();
}

TEST_F(Shards, UnderGnuParallel) {
  if (!is_there("parallel", "GNU parallel")) GTEST_SKIP() << "no GNU parallel";
  Call job = tune({"--shard", "{}/3", "--db", parts + "/{}.db"});
  job.arguments.insert(job.arguments.end(), {":::", "0", "1", "2"});
  job.under = {"parallel", "--joblog", here.file("joblog"), "-j1"};
  std::filesystem::create_directory(parts);
  const Outcome outcome = here.run(job);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(part_files().size(), 3U);
  expect_complete();
}

TEST_F(Shards, CoversNamesClassShardAndProblemOfWhatIsMissing) {
  const std::map<std::string, int> shard_of = split(3);
  ASSERT_EQ(here.run(tune({"--shard", "0/3", "--db-dir", parts})).exit_code, 0);
  ASSERT_EQ(here.run(tune({"--shard", "2/3", "--db-dir", parts})).exit_code, 0);
  std::vector<std::string> arguments{"verify", "--covers", "@" + list};
  for (const std::string& file : part_files()) arguments.push_back(file);
  arguments.insert(arguments.end(), {"--shards", "3", "-o", "json"});
  const Outcome outcome = db(arguments);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("10 of 15 rows there"));
  ASSERT_EQ(outcome.json().size(), 5U);
  for (const json& row : outcome.json()) {
    EXPECT_EQ(row.at("device_class"), "sim:8c");
    EXPECT_EQ(row.at("shard"), 1);
    EXPECT_EQ(shard_of.at(row.at("problem")), 1);
    EXPECT_EQ(row.at("reason"), "no row");
  }
}

TEST_F(Shards, CoversAsksForEachClassThatWasRecordedOrNamed) {
  std::vector<std::string> both = lines(R"(,"recorded":{"hits":1,"device_class":"sim:8c"})");
  const std::vector<std::string> other =
      lines(R"(,"recorded":{"hits":1,"device_class":"sim:64c"})");
  both.insert(both.end(), other.begin(), other.end());
  write_list(both);
  ASSERT_EQ(here.run(tune({"--db", merged})).exit_code, 0);
  const Outcome outcome = db({"verify", "--covers", list, merged, "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  ASSERT_EQ(outcome.json().size(), kProblems);
  for (const json& row : outcome.json()) EXPECT_EQ(row.at("device_class"), "sim:64c");
  EXPECT_EQ(db({"verify", "--covers", list, merged, "--device-class", "sim:8c"}).exit_code, 0);

  write_list(lines());
  EXPECT_EQ(db({"verify", "--covers", list, merged}).exit_code, 0);
  EXPECT_EQ(db({"verify", "--covers", list, merged, "--device-class", "sim:8c", "--device-class",
                "sim:64c"})
                .exit_code,
            1);
  EXPECT_EQ(db({"verify", "--covers", list}).exit_code, 2);
  EXPECT_EQ(db({"verify", "--covers", list, here.file("nothing.db")}).exit_code, 4);
}

TEST_F(Shards, CoversCountsAFileThatCannotBeUsedAsEmpty) {
  ASSERT_EQ(here.run(tune({"--db", merged})).exit_code, 0);
  const std::string empty = here.file("empty.db");
  std::ofstream(empty).close();
  EXPECT_EQ(db({"verify", "--covers", list, merged, empty}).exit_code, 0);
  const Outcome outcome = db({"verify", "--covers", list, empty});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("empty.db: is empty; none of its rows count"));
  EXPECT_THAT(outcome.err, HasSubstr("0 of 15 rows there"));
}

TEST_F(Shards, CoversCountsNoRowThatWouldBeTunedAgain) {
  ASSERT_EQ(here.run(tune({"--db", merged})).exit_code, 0);
  {
    ConfigDatabase database(merged, ConfigDatabase::Mode::kReadWrite);
    ConfigRow row = database.read().rows.at(0);
    row.library_version = "0.0.1";
    database.put(row);
  }
  const Outcome outcome = db({"verify", "--covers", list, merged, "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 1);
  ASSERT_EQ(outcome.json().size(), 1U);
  EXPECT_THAT(outcome.json().at(0).at("reason").get<std::string>(),
              HasSubstr("stale: tuned by attune 0.0.1"));
}

TEST_F(Shards, ADigestIsOfTheDecisionsAlone) {
  ASSERT_EQ(here.run(tune({"--db", merged})).exit_code, 0);
  const std::string before = digest_of(merged);
  EXPECT_EQ(before.size(), 32U);
  DatabaseContent content = read_database_file(merged);
  content.decisions[0].row.median_us *= 2;
  content.decisions[0].row.created += 1;
  content.decisions[0].trials.clear();
  write_database_file(here.file("evidence.jsonl"), content);
  EXPECT_EQ(digest_of(here.file("evidence.jsonl")), before);
  content.decisions[0].row.config = "rows_at_once=4";
  write_database_file(here.file("choice.db"), content);
  EXPECT_NE(digest_of(here.file("choice.db")), before);
  EXPECT_EQ(db({"digest", merged}).out, before + "  " + merged + "\n");
}

/// Kills one, two or all of three shards at a random moment. What is left is sound, what is missing
/// is named, and tuning again tunes only that.
TEST_F(Shards, KilledAtAnyMomentLeaveExactlyWhatTheyHadNotStored) {
  constexpr int kShards = 3;
  const std::string expected = digest_of_one_process();
  const std::set<std::string> all = problems_in({here.file("whole.db")});
  std::mt19937 random(20);
  int unfinished = 0;
  const int kills = campaign_length(3, 200);
  for (int kill = 0; kill < kills; ++kill) {
    std::filesystem::remove_all(parts);
    std::filesystem::remove(merged);
    const auto shard = [&](int index) {
      return tune({"--shard", str(index, '/', kShards), "--db-dir", parts}, {"SIM_SAMPLE_US=2000"});
    };
    std::vector<std::unique_ptr<Sandbox>> hosts;
    std::vector<pid_t> processes;
    for (int index = 0; index < kShards; ++index) {
      hosts.push_back(std::make_unique<Sandbox>());
      processes.push_back(hosts.back()->start(shard(index)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
    for (int victim = 0; victim <= kill % kShards; ++victim) {
      ::kill(processes[static_cast<std::size_t>(victim)], SIGKILL);
    }
    for (int index = 0; index < kShards; ++index) {
      const auto at = static_cast<std::size_t>(index);
      const Outcome ended = hosts[at]->finish(processes[at]);
      const bool may_be_dead = index <= kill % kShards && ended.exit_code == 128 + SIGKILL;
      ASSERT_TRUE(may_be_dead || ended.exit_code == 0) << ended.exit_code << ended.err;
    }

    const std::set<std::string> there = readable_problems();
    if (!part_files().empty()) {
      std::set<std::string> named = missing(part_files(), there.size() == kProblems ? 0 : 1);
      EXPECT_EQ(named.size() + there.size(), kProblems);
      for (const std::string& problem : named) EXPECT_FALSE(there.contains(problem)) << problem;
    }
    unfinished += there.size() < kProblems ? 1 : 0;

    std::size_t tuned = 0, skipped = 0;
    for (int index = 0; index < kShards; ++index) {
      const Outcome again = here.run(shard(index));
      ASSERT_EQ(again.exit_code, 0) << again.err;
      for (const json& row : again.json()) {
        (row.at("result") == "already tuned" ? skipped : tuned) += 1;
      }
    }
    EXPECT_EQ(tuned, kProblems - there.size());
    EXPECT_EQ(skipped, there.size());
    ASSERT_EQ(merge().exit_code, 0);
    EXPECT_EQ(missing({merged}, 0).size(), 0U);
    EXPECT_EQ(problems_in({merged}), all);
    EXPECT_EQ(digest_of(merged), expected);
  }
  EXPECT_GT(unfinished, 0) << "every kill came too late to show anything";
}

}  // namespace
}  // namespace attune::test
