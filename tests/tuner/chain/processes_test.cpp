// Several processes on one database: the lease, and what another process published.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "cache/child_process.hpp"
#include "support/campaign.hpp"
#include "tuner/chain/chain_fixture.hpp"

namespace attune::test {
namespace {

using testing::HasSubstr;

/// A child process that holds the lease of a problem until it is told to end, and may publish a row
/// then.
class LeaseHolder {
 public:
  LeaseHolder(const std::string& path, const RowKey& key, const ConfigRow* publish = nullptr) {
    EXPECT_EQ(pipe(ready_), 0);
    EXPECT_EQ(pipe(go_), 0);
    child_ = fork();
    if (child_ == 0) run(path, key, publish);
    char byte = 0;
    EXPECT_EQ(read(ready_[0], &byte, 1), 1);
  }
  ~LeaseHolder() {
    end();
    for (const int fd : {ready_[0], ready_[1], go_[0], go_[1]}) close(fd);
  }
  void end() {
    if (child_ == 0) return;
    EXPECT_EQ(write(go_[1], "x", 1), 1);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
    child_ = 0;
  }

 private:
  [[noreturn]] void run(const std::string& path, const RowKey& key,
                        const ConfigRow* publish) const {
    ConfigDatabase database(path, ConfigDatabase::Mode::kReadWrite);
    if (!database.acquire_lease(key, 60)) _exit(1);
    char byte = 'r';
    if (::write(ready_[1], &byte, 1) != 1 || ::read(go_[0], &byte, 1) != 1) _exit(2);
    if (publish != nullptr) database.put(*publish);
    database.release_lease(key);
    _exit(0);
  }

  int ready_[2] = {-1, -1};
  int go_[2] = {-1, -1};
  pid_t child_ = 0;
};

class ChainProcessesTest : public ChainTest {
 protected:
  ChainProcessesTest() { add_tiled(); }
};

TEST_F(ChainProcessesTest, WhileAnotherProcessTunesTheHeuristicServes) {
  LeaseHolder other(settings.store.user_path, row_key());
  listen();
  EXPECT_EQ(select().tier, Tier::kHeuristic);
  EXPECT_EQ(chain().counters().tunings, 0U);
  ASSERT_EQ(seen_of(EventKind::kTuneSkipped).size(), 1U);
  EXPECT_THAT(seen_of(EventKind::kTuneSkipped)[0].reason, HasSubstr("another process tunes it"));
}

TEST_F(ChainProcessesTest, WhoWaitsGetsWhatTheOtherProcessPublished) {
  const ConfigRow published = row("tile=8");
  LeaseHolder other(settings.store.user_path, row_key(), &published);
  settings.policy.wait_for_other_tuner = true;
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    other.end();
  });
  const Choice choice = select();
  ending.join();
  EXPECT_EQ(choice.tier, Tier::kPersistent);
  EXPECT_EQ(text(choice), "test.scaling.tiled tile=8,threads=1");
  EXPECT_EQ(chain().counters().tunings, 0U);
}

TEST_F(ChainProcessesTest, WhatWasPublishedSinceTheDatabaseWasReadIsFoundBeforeTuning) {
  problem.flavour = 1;
  select();  // reads the database
  problem.flavour = 0;
  write(row("tile=8"));  // another process
  EXPECT_EQ(select().tier, Tier::kPersistent);
  EXPECT_EQ(chain().counters().tunings, 1U);
}

TEST_F(ChainProcessesTest, TheLeaseIsGivenBack) {
  select();
  ConfigDatabase database(settings.store.user_path, ConfigDatabase::Mode::kReadWrite);
  chain().forget(what(), request());
  LeaseHolder other(settings.store.user_path, row_key());  // fails if the lease is still held
}

TEST_F(ChainProcessesTest, OnOneNewFileTuneEachProblemExactlyOnce) {
  const int processes = campaign_length(6, 16);
  const int problems = campaign_length(30, 400);
  const auto counted = [&](int process) { return folder.path() / str("tunings.", process); };
  EXPECT_EQ(in_children(processes,
                        [&](int process) {
                          std::vector<int> order(static_cast<std::size_t>(problems));
                          std::iota(order.begin(), order.end(), 0);
                          std::shuffle(order.begin(), order.end(),
                                       std::mt19937(static_cast<unsigned>(process)));
                          for (const int flavour : order) {
                            problem.flavour = flavour;
                            select();
                          }
                          std::ofstream(counted(process)) << chain().counters().tunings;
                          return logged.find("warning") == std::string::npos &&
                                 logged.find("kept in memory") == std::string::npos;
                        }),
            processes);
  int tunings = 0;
  for (int process = 0; process < processes; ++process) {
    int own = 0;
    std::ifstream(counted(process)) >> own;
    tunings += own;
  }
  EXPECT_EQ(tunings, problems);
  EXPECT_EQ(rows_on_disk().size(), static_cast<std::size_t>(problems));
  EXPECT_TRUE(
      ConfigDatabase(settings.store.user_path, ConfigDatabase::Mode::kReadOnly).verify().ok());
}

}  // namespace
}  // namespace attune::test
