// A fleet, played: rows of three classes of devices are merged, shipped, put in place while a
// server looks them up, rolled back, pinned and purged.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/cache/database_text.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionProblem;
using ::testing::HasSubstr;

constexpr std::int64_t kLongAgo = 1'000'000;

std::string config_of(const ConfigRow& row) { return row.kernel + ' ' + row.config; }

/// The class of the machine, and two that differ in their cores.
std::vector<std::string> three_classes(const std::string& here) {
  std::vector<std::string> classes{here};
  for (const char* cores : {":1000c:", ":2000c:"}) {
    classes.push_back(std::regex_replace(here, std::regex(":[0-9]+c:"), cores));
  }
  return classes;
}

class Fleet : public ::testing::Test {
 protected:
  Outcome db(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "db");
    return here.run(std::move(arguments));
  }
  void done(std::vector<std::string> arguments) const {
    const Outcome outcome = db(std::move(arguments));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }

  /// What each of three machines measured, as it is sent in: one row of T=16 each.
  void record_on_three_machines() {
    const Outcome tuned = here.run({"tune", "recurrent_attention", "T=16", "H=2", "D=8", "--warmup",
                                    "1", "--iters", "4", "--budget", "30s"});
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    DatabaseContent measured = read_database_file(here.database());
    ASSERT_EQ(measured.decisions.size(), 1U);
    std::filesystem::remove(here.database());
    StoredDecision& decision = measured.decisions[0];
    decision.row.noise = NoiseGrade::kA;
    decision.row.created = kLongAgo;
    first_config = config_of(decision.row);
    for (const TrialRow& trial : decision.trials) {
      const bool other = trial.kernel == decision.row.kernel && trial.config != decision.row.config;
      if (other && (trial.outcome == "ok" || trial.outcome == "slow")) second = trial;
    }
    ASSERT_NE(second.kernel, "");
    const std::vector<std::string> classes = three_classes(decision.row.key.device_class);
    for (std::size_t machine = 0; machine < classes.size(); ++machine) {
      decision.row.key.device_class = classes[machine];
      for (TrialRow& trial : decision.trials) trial.key = decision.row.key;
      const std::string file = here.file("machine" + std::to_string(machine) + ".jsonl");
      write_database_file(file, measured);
      sent_in.push_back(file);
    }
  }

  /// The same rows with the other config on this machine's class: a later tuning.
  void tune_once_more(const std::string& from, const std::string& to) const {
    DatabaseContent content = read_database_file(from);
    for (StoredDecision& decision : content.decisions) decision.row.config = second.config;
    write_database_file(to, content);
  }

  std::string text_of(const Choice& choice) const {
    return std::string(choice.kernel->name()) + ' ' + config_text(*choice.kernel, choice.config);
  }
  Choice look_up(Context& server) const {
    return Executor(server).choose<RecurrentAttention>(problem, {.device = &cpu_device()});
  }
  /// Returns when the server has taken up what was put in place.
  void wait_until(Context& server, const std::string& chosen) const {
    while (text_of(look_up(server)) != chosen) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Sandbox here;
  std::string site = here.file("site.db");
  std::vector<std::string> sent_in;
  std::string first_config;
  TrialRow second;
  RecurrentAttentionProblem problem{.B = 1, .T = 16, .H = 2, .Hkv = 2, .K = 8, .V = 8};
};

TEST_F(Fleet, IsMergedShippedReplacedUnderLoadRolledBackPinnedAndPurged) {
  record_on_three_machines();
  if (HasFatalFailure()) return;

  std::vector<std::string> merge{"merge"};
  merge.insert(merge.end(), sent_in.begin(), sent_in.end());
  merge.insert(merge.end(), {"--output", here.file("fleet.db")});
  done(merge);
  int classes = 0;
  for (const nlohmann::json& row : db({"stats", here.file("fleet.db"), "-o", "json"}).json()) {
    if (!row.contains("coverage_percent")) continue;
    ++classes;
    EXPECT_EQ(row.at("coverage_percent"), 100);
  }
  EXPECT_EQ(classes, 3) << "a row a class of devices";

  const std::string first = here.file("first.db"), next = here.file("next.db");
  done({"export", here.file("fleet.db"), "--ship", "--output", first});
  EXPECT_EQ(read_database_file(first).decisions.size(), 3U);
  tune_once_more(first, next);
  done({"use", first, site});

  setenv("ATTUNE_SYSTEM_DB_PATH", site.c_str(), 1);
  const auto server = make_context(
      {.policy = Policy::kDb, .database = "", .reload_every = std::chrono::milliseconds(5)});
  unsetenv("ATTUNE_SYSTEM_DB_PATH");
  EXPECT_EQ(text_of(look_up(*server)), first_config);

  const std::string second_config = second.kernel + ' ' + second.config;
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> calls = 0, wrong = 0;
  std::thread load([&] {
    while (!stop) {
      const std::string got = text_of(look_up(*server));
      wrong += got == first_config || got == second_config ? 0 : 1;
      ++calls;
    }
  });
  done({"use", next, site});
  wait_until(*server, second_config);
  const nlohmann::json history = db({"history", site, "-o", "json"}).json();
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history.at(0).at("generation"), 1);
  EXPECT_EQ(history.at(1).at("state"), "in use");

  done({"use", "1", site});
  wait_until(*server, first_config);
  EXPECT_EQ(db({"history", site, "-o", "json"}).json().at(0).at("state"), "in use");
  EXPECT_EQ(read_database_file(site), read_database_file(first));
  stop = true;
  load.join();
  EXPECT_EQ(wrong, 0) << "of " << calls
                      << " look-ups one was neither the old row's nor the new one's";

  // An operator pins the other config on a machine of his own, and ships the pin.
  done({"pin", "recurrent_attention", "T=16", "H=2", "D=8", "--config",
        "kernel=" + second.kernel + ',' + second.config, "--reason", "incident 7"});
  done({"export", "--ship", "--pins", "--output", here.file("pins.db")});
  done({"merge", first, here.file("pins.db"), "--output", here.file("pinned.db")});
  done({"use", here.file("pinned.db"), site});
  wait_until(*server, second_config);
  EXPECT_EQ(look_up(*server).origin, Tier::kPin);

  // Rows of long ago are purged; the pin stays until it is removed.
  std::filesystem::copy_file(here.file("pinned.db"), here.file("purged.db"));
  done({"gc", "--db", here.file("purged.db"), "--older-than", "24h"});
  done({"unpin", "recurrent_attention", "T=16", "H=2", "D=8", "--db", here.file("purged.db")});
  EXPECT_TRUE(read_database_file(here.file("purged.db")).empty());
  done({"use", here.file("purged.db"), site});
  while (look_up(*server).origin != Tier::kHeuristic) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(db({"history", site, "-o", "json"}).json().size(), 4U);
  EXPECT_GE(chain_of(*server).counters().reloads, 4U);
}

}  // namespace
}  // namespace attune::test
