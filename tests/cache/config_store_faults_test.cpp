// Databases that cannot be used, or not be written: no file is ever fatal.
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "raw_sqlite.hpp"
#include "store_fixture.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

using test::kBucket;
using test::raw_sql;
using test::sample_key;
using test::sample_quarantine;
using test::sample_row;
using Mode = ConfigDatabase::Mode;

class StoreWithFaults : public test::StoreFixture {};

TEST_F(StoreWithFaults, ReadOnlyNeitherWritesNorMakes) {
  StoreSettings read_only = user_only();
  read_only.read_only = true;
  {
    ConfigStore store(read_only);
    EXPECT_NE(store.put(sample_row(0), {}), "");
    EXPECT_TRUE(store.acquire_lease(sample_key(0), 60));
    EXPECT_FALSE(fs::exists(folder.path() / "home"));
  }
  fill(user, {sample_row(1)});
  ConfigStore store(read_only);
  EXPECT_NE(store.put(sample_row(0), {}), "");
  EXPECT_EQ(store.find(sample_key(0), "").size(), 1U) << "kept in memory";
  EXPECT_EQ(ConfigDatabase(user, Mode::kReadOnly).read().rows.size(), 1U);
  EXPECT_TRUE(store.status().at(0).used);
  EXPECT_FALSE(store.status().at(0).writable);
  EXPECT_TRUE(warnings.empty()) << "it was asked for: " << warnings[0];
}

TEST_F(StoreWithFaults, KeepsResultsInMemoryWhenThereIsNoDatabase) {
  std::ofstream(folder.file("home")).close();  // a file where the folder would be
  ConfigStore store(user_only());
  const std::string reason = store.put(sample_row(0), {});
  EXPECT_NE(reason.find(user), std::string::npos) << reason;
  store.put(sample_row(1), {});
  store.quarantine(sample_quarantine(0));
  EXPECT_TRUE(store.acquire_lease(sample_key(0), 60));
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), 2U);
  EXPECT_EQ(hits[0].path, "") << "of no file";
  store.reload_user();
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 2U) << "a reload keeps what only memory has";
  EXPECT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings.at(0).find("kept in memory"), std::string::npos);
}

TEST_F(StoreWithFaults, WorksWithoutAUserDatabase) {
  ConfigStore store(StoreSettings{});
  EXPECT_NE(store.put(sample_row(0), {}), "");
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 1U);
  EXPECT_NE(store.status().at(0).reason, "");
}

TEST_F(StoreWithFaults, LeavesADamagedDatabaseAndSaysHowToGoOn) {
  fs::create_directory(folder.path() / "home");
  const std::string garbage(8192, 'x');
  std::ofstream(user) << garbage;
  ConfigStore store(user_only());
  EXPECT_TRUE(store.find(sample_key(0), kBucket).empty());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("Move it away"), std::string::npos) << warnings[0];
  EXPECT_NE(store.put(sample_row(0), {}), "");
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 1U);
  EXPECT_FALSE(store.status().at(0).used);
  std::ifstream file(user);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), garbage);

  fs::rename(user, folder.file("moved.db"));
  store.reload_user();
  EXPECT_EQ(store.put(sample_row(1), {}), "") << "as it was told";
}

TEST_F(StoreWithFaults, ReadsANewerDatabaseAndDoesNotWriteIt) {
  fill(user, {sample_row(0)});
  raw_sql(user, "PRAGMA user_version=2");
  ConfigStore store(user_only());
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 1U);
  EXPECT_NE(store.put(sample_row(1), {}).find("newer"), std::string::npos);
  EXPECT_TRUE(store.status().at(0).used);
  EXPECT_FALSE(store.status().at(0).writable);
  EXPECT_EQ(store.find(sample_key(1), kBucket).size(), 2U);
}

TEST_F(StoreWithFaults, LeavesOutBadRowsWithOneWarning) {
  fill(user, {sample_row(0), sample_row(1)});
  raw_sql(user, "UPDATE decision SET samples = 5 WHERE problem LIKE 'rows=100 %'");
  ConfigStore store(user_only());
  EXPECT_EQ(store.find(sample_key(0), kBucket).size(), 1U);
  EXPECT_EQ(store.status().at(0).bad_rows, 1);
  store.reload_user();
  EXPECT_EQ(warnings.size(), 1U);
}

TEST_F(StoreWithFaults, ReadsFoldersByNameAndSkipsWhatIsNotAttunes) {
  fs::create_directory(folder.path() / "site");
  fill(folder.file("site/20.db"), {row_of(0, "second=1")});
  fill(folder.file("site/10.db"), {row_of(0, "first=1")});
  std::ofstream(folder.file("site/15.db")) << "not a database";
  std::ofstream(folder.file("site/readme.txt")) << "not looked at";
  const ConfigStore store({"", {folder.file("site")}, {}, false});
  const auto hits = store.find(sample_key(0), kBucket);
  ASSERT_EQ(hits.size(), 2U);
  EXPECT_EQ(hits[0].row.config, "first=1");
  EXPECT_EQ(hits[1].row.config, "second=1");
  const auto status = store.status();
  ASSERT_EQ(status.size(), 4U);
  EXPECT_FALSE(status[2].used);
  EXPECT_NE(status[2].reason.find("not a SQLite database"), std::string::npos);
}

TEST_F(StoreWithFaults, MissesASiteDatabaseAloudAndAShippedOneSilently) {
  const ConfigStore store({"", {folder.file("site.db")}, {folder.file("shipped")}, false});
  const auto status = store.status();
  ASSERT_EQ(status.size(), 2U);
  EXPECT_NE(status[1].reason.find("is not there"), std::string::npos);
  EXPECT_EQ(warnings.size(), 1U);
}

TEST_F(StoreWithFaults, RefusesARowThatMayNotBeStoredByItsReason) {
  ConfigStore store(user_only());
  ConfigRow row = sample_row(0);
  row.config = "a\nb";
  EXPECT_NE(store.put(row, {}).find("control character"), std::string::npos);
}

}  // namespace
}  // namespace attune
