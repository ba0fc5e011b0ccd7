// A disk that fails: at each open, write, sync, truncation and deletion in turn. No crash, nothing
// acknowledged lost, and the file is sound afterwards.
#include <filesystem>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "child_process.hpp"
#include "faulty_vfs.hpp"
#include "sample_rows.hpp"
#include "support/campaign.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::arm;
using test::Fault;
using test::fault_met;
using test::sample_row;
using test::sample_trial;
using test::texts_of;
using Mode = ConfigDatabase::Mode;

struct Kind {
  const char* name;
  int code;
  bool lasts;
};

class FaultyDisk : public ::testing::TestWithParam<Kind> {
 protected:
  /// What was acknowledged, and all that was attempted.
  struct Written {
    std::set<std::string> acknowledged, attempted;
  };

  /// Opens, stores and edits, each of which may fail.
  Written work(const std::string& path) {
    const int puts = test::campaign_length(2, 6);
    Written written;
    const auto attempt = [&](std::int64_t i, auto&& store) {
      const std::string text = test::text_of(sample_row(i));
      written.attempted.insert(text);
      try {
        store(sample_row(i));
        written.acknowledged.insert(text);
      } catch (const CacheError&) {
      }
    };
    try {
      ConfigDatabase db(path, Mode::kReadWrite);
      const TrialRow trials[] = {sample_trial(0), sample_trial(1)};
      for (std::int64_t i = 0; i < puts; ++i) {
        attempt(i, [&](const ConfigRow& row) { db.put(row, trials); });
      }
      attempt(puts, [&](const ConfigRow& row) {
        db.edit([&](DatabaseContent& all) { all.decisions.push_back({row, {}}); });
      });
    } catch (const CacheError&) {  // it could not be opened
    }
    return written;
  }

  /// Runs `work` with a fault at its 1st, 2nd, ... call until there is none at the n-th. How many.
  int with_each_fault(const std::function<void(const std::string& path)>& prepare) {
    for (int at = 1;; ++at) {
      SCOPED_TRACE(str(GetParam().name, ", call ", at));
      const test::TemporaryFolder folder;
      const std::string path = folder.file("attune.db");
      arm({});
      prepare(path);
      arm({at, GetParam().code, GetParam().lasts});
      const Written written = work(path);
      const bool met = fault_met();
      arm({});
      check(path, written);
      if (!met || HasFailure()) return at - 1;
    }
  }

  /// With the disk in order again.
  void check(const std::string& path, const Written& written) {
    ConfigDatabase db(path, Mode::kReadWrite);
    const ConfigSnapshot snapshot = db.read();
    EXPECT_EQ(snapshot.bad_rows, 0);
    EXPECT_TRUE(db.verify().ok());
    std::set<std::string> found = texts_of(snapshot.rows);
    found.erase(test::text_of(sample_row(100)));  // of prepare()
    for (const std::string& row : written.acknowledged) EXPECT_TRUE(found.contains(row)) << row;
    for (const std::string& row : found) EXPECT_TRUE(written.attempted.contains(row)) << row;
    db.put(sample_row(50));
    EXPECT_EQ(db.read().rows.size(), snapshot.rows.size() + 1);
  }
};

TEST_P(FaultyDisk, LosesNothingOfANewDatabase) {
  EXPECT_TRUE(test::in_child([&] {  // the process's SQLite is not the same afterwards
    test::install_faulty_vfs();
    const int faults = with_each_fault([](const std::string&) {});
    EXPECT_GT(faults, 50);
    return !HasFailure();
  }));
}

TEST_P(FaultyDisk, LosesNothingOfOneThatIsThere) {
  EXPECT_TRUE(test::in_child([&] {
    test::install_faulty_vfs();
    const int faults = with_each_fault([](const std::string& path) {
      ConfigDatabase(path, Mode::kReadWrite).put(sample_row(100));
    });
    EXPECT_GT(faults, 30);
    return !HasFailure();
  }));
}

INSTANTIATE_TEST_SUITE_P(EachCall, FaultyDisk,
                         ::testing::Values(Kind{"Eio", SQLITE_IOERR_WRITE, false},
                                           Kind{"Fsync", SQLITE_IOERR_FSYNC, false},
                                           Kind{"Full", SQLITE_FULL, false},
                                           Kind{"FullFromThenOn", SQLITE_FULL, true},
                                           Kind{"DeadFromThenOn", SQLITE_IOERR, true}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace attune
