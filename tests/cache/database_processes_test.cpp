// One file, many users of it: threads, processes, killed processes, forked ones.
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "child_process.hpp"
#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/campaign.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::in_child;
using test::in_children;
using test::raw_sql;
using test::sample_key;
using test::sample_row;
using test::sample_trial;
using test::start_child;
using test::text_of;
using test::texts_of;
using test::wait_for;
using Mode = ConfigDatabase::Mode;

class Sharing : public ::testing::Test {
 protected:
  std::set<std::string> stored() const {
    return texts_of(ConfigDatabase(path, Mode::kReadOnly).read().rows);
  }
  static std::set<std::string> expected(std::int64_t count) {
    std::set<std::string> texts;
    for (std::int64_t i = 0; i < count; ++i) texts.insert(text_of(sample_row(i)));
    return texts;
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("attune.db");
};

TEST_F(Sharing, AmongProcessesThatAllMakeTheFileGivesEachItsRow) {
  for (int round = 0; round < 10; ++round) {
    std::filesystem::remove(path);
    EXPECT_EQ(in_children(8,
                          [&](int i) {
                            ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
                            return true;
                          }),
              8);
    ASSERT_EQ(stored(), expected(8));
  }
}

TEST_F(Sharing, AmongWritingProcessesLosesNothing) {
  constexpr int kProcesses = 8;
  constexpr int kPuts = 20;
  EXPECT_EQ(in_children(kProcesses,
                        [&](int process) {
                          ConfigDatabase db(path, Mode::kReadWrite);
                          const TrialRow trials[] = {sample_trial(process)};
                          for (int i = 0; i < kPuts; ++i) {
                            db.put(sample_row(process * kPuts + i), trials);
                            db.put(sample_row(kProcesses * kPuts), trials);  // all want this one
                          }
                          return true;
                        }),
            kProcesses);
  EXPECT_EQ(stored(), expected(kProcesses * kPuts + 1));
  const ConfigDatabase db(path, Mode::kReadOnly);
  EXPECT_EQ(db.trials(sample_key(kProcesses * kPuts)).size(), 1U);
  EXPECT_TRUE(db.verify().ok());
}

TEST_F(Sharing, OneConnectionAmongThreadsLosesNothing) {
  ConfigDatabase db(path, Mode::kReadWrite);
  std::vector<std::thread> threads;
  for (std::int64_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::int64_t i = 0; i < 25; ++i) {
        db.put(sample_row(2 * i + thread));
        EXPECT_GE(db.read().rows.size(), static_cast<std::size_t>(i + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored(), expected(50));
}

TEST_F(Sharing, TwoConnectionsAmongThreadsLosesNothing) {
  std::vector<std::thread> threads;
  for (std::int64_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      ConfigDatabase db(path, Mode::kReadWrite);
      for (std::int64_t i = 0; i < 25; ++i) db.put(sample_row(2 * i + thread));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored(), expected(50));
}

// The child says "stored" by a byte in a pipe, and is killed at any time.
TEST_F(Sharing, WithAProcessThatIsKilledKeepsAllThatItStored) {
  constexpr std::int64_t kMostRows = 300;  // then a new file, or checking each takes ever longer
  std::mt19937 random(7);
  std::int64_t stored_rows = 0;
  std::int64_t in_other_files = 0;
  const int rounds = test::campaign_length(20, 1000);
  for (int round = 0; round < rounds; ++round) {
    if (stored_rows >= kMostRows) {
      std::filesystem::remove(path);
      in_other_files += std::exchange(stored_rows, 0);
    }
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = start_child([&, first = stored_rows] {
      ConfigDatabase db(path, Mode::kReadWrite);
      for (std::int64_t i = first;; ++i) {
        const TrialRow trials[] = {sample_trial(i), sample_trial(i + 1)};
        db.put(sample_row(i), trials);
        if (write(ends[1], "s", 1) != 1) return false;
      }
    });
    close(ends[1]);
    if (char byte = 0; round % 2 == 0 && read(ends[0], &byte, 1) == 1) ++stored_rows;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    kill(child, SIGKILL);
    EXPECT_FALSE(wait_for(child));
    for (char byte = 0; read(ends[0], &byte, 1) == 1;) ++stored_rows;
    close(ends[0]);

    ConfigDatabase db(path, Mode::kReadWrite);
    const ConfigSnapshot snapshot = db.read();
    EXPECT_EQ(snapshot.bad_rows, 0);
    const auto found = static_cast<std::int64_t>(snapshot.rows.size());
    EXPECT_TRUE(found == stored_rows || found == stored_rows + 1) << found << ' ' << stored_rows;
    EXPECT_EQ(texts_of(snapshot.rows), expected(found));
    EXPECT_TRUE(db.verify().ok());
    stored_rows = found;
  }
  EXPECT_GE(in_other_files + stored_rows, rounds / 2)
      << "every other child was let store something";
}

TEST_F(Sharing, AFullDiskLosesNothingAndIsGotOver) {
  EXPECT_TRUE(in_child([&] {
    signal(SIGXFSZ, SIG_IGN);  // or the limit ends the process
    ConfigDatabase db(path, Mode::kReadWrite);
    db.put(sample_row(0));
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t unlimited = limit.rlim_cur;
    limit.rlim_cur = std::filesystem::file_size(path);
    setrlimit(RLIMIT_FSIZE, &limit);
    std::int64_t stored_rows = 1;
    try {
      for (; stored_rows < 1000; ++stored_rows) db.put(sample_row(stored_rows));
      return false;
    } catch (const CacheError&) {
    }
    const bool nothing_lost = texts_of(db.read().rows) == expected(stored_rows);
    limit.rlim_cur = unlimited;
    setrlimit(RLIMIT_FSIZE, &limit);
    db.put(sample_row(stored_rows));
    return nothing_lost && texts_of(db.read().rows) == expected(stored_rows + 1) &&
           db.verify().ok();
  }));
}

TEST_F(Sharing, AConnectionWithAForkedChildIsRefusedThereAndGoesOnHere) {
  ConfigDatabase db(path, Mode::kReadWrite);
  db.put(sample_row(0));
  EXPECT_TRUE(in_child([&] {
    int refused = 0;
    try {
      db.put(sample_row(1));
    } catch (const CacheError& error) {
      refused += std::string(error.what()).find("after fork()") != std::string::npos ? 1 : 0;
    }
    try {
      db.read();
    } catch (const CacheError&) {
      ++refused;
    }
    db = ConfigDatabase(path, Mode::kReadWrite);  // its own; the parent's is let go
    db.put(sample_row(1));
    return refused == 2 && db.read().rows.size() == 2;
  }));
  db.put(sample_row(2));
  EXPECT_EQ(stored(), expected(3));
}

class Lease : public Sharing {
 protected:
  bool taken_by_child() {
    return in_child(
        [&] { return ConfigDatabase(path, Mode::kReadWrite).acquire_lease(sample_key(0), 60); });
  }
  ConfigDatabase db{path, Mode::kReadWrite};
};

TEST_F(Lease, IsOfOneProcessAtATime) {
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
  EXPECT_FALSE(taken_by_child());
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60)) << "its owner renews it";
  EXPECT_TRUE(in_child([&] {
    return ConfigDatabase(path, Mode::kReadWrite).acquire_lease(sample_key(1), 60);
  })) << "another key's";
  db.release_lease(sample_key(0));
  EXPECT_TRUE(taken_by_child());
}

TEST_F(Lease, IsNotGivenBackByAnother) {
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
  EXPECT_TRUE(in_child([&] {
    ConfigDatabase(path, Mode::kReadWrite).release_lease(sample_key(0));
    return true;
  }));
  EXPECT_FALSE(taken_by_child());
}

TEST_F(Lease, OfADeadProcessIsTakenOver) {
  EXPECT_TRUE(taken_by_child());
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
}

TEST_F(Lease, OfAProcessThatNobodyHasWaitedForIsTakenOver) {
  const pid_t child = start_child(
      [&] { return ConfigDatabase(path, Mode::kReadWrite).acquire_lease(sample_key(0), 60); });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
  EXPECT_TRUE(wait_for(child));
}

TEST_F(Lease, OfAProcessWhosePidIsAnothersNowIsTakenOver) {
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
  raw_sql(path, "UPDATE lease SET started = started - 1");
  EXPECT_TRUE(taken_by_child());
}

TEST_F(Lease, ThatHasExpiredIsTakenOver) {
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
  raw_sql(path, "UPDATE lease SET expires = expires - 100");
  EXPECT_TRUE(taken_by_child());
}

TEST_F(Lease, OfAnotherMachineHoldsUntilItExpires) {
  EXPECT_TRUE(taken_by_child());
  raw_sql(path, "UPDATE lease SET boot = 'elsewhere'");
  EXPECT_FALSE(db.acquire_lease(sample_key(0), 60));
  raw_sql(path, "UPDATE lease SET expires = acquired");
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
}

TEST_F(Lease, ThatWouldLastForAgesIsNotBelieved) {
  EXPECT_TRUE(taken_by_child());
  raw_sql(path, "UPDATE lease SET boot = 'elsewhere', expires = 9000000000000");
  EXPECT_TRUE(db.acquire_lease(sample_key(0), 60));
}

TEST_F(Lease, NeedsASensibleTime) {
  EXPECT_THROW(db.acquire_lease(sample_key(0), 0), InvalidArgument);
  EXPECT_THROW(db.acquire_lease(sample_key(0), 1'000'000), InvalidArgument);
}

}  // namespace
}  // namespace attune
