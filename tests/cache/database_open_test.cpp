// What may be at a path, and what then happens.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/core/error.hpp>

#include "child_process.hpp"
#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

using test::in_child;
using test::keep_journal;
using test::raw_sql;
using test::sample_key;
using test::sample_row;
using test::text_of;
using Mode = ConfigDatabase::Mode;

class Opening : public ::testing::Test {
 protected:
  void make_sound() { ConfigDatabase(path, Mode::kReadWrite).put(sample_row(0)); }

  /// The message of the CacheError, or "opened".
  std::string refusal(Mode mode) const {
    try {
      const ConfigDatabase db(path, mode);
      return "opened";
    } catch (const CacheError& error) {
      return error.what();
    }
  }
  void expect_refused(const std::string& reason) const {
    for (const Mode mode : {Mode::kReadOnly, Mode::kReadWrite}) {
      EXPECT_NE(refusal(mode).find(reason), std::string::npos) << refusal(mode);
      EXPECT_NE(refusal(mode).find(path), std::string::npos) << "the file is not named";
    }
  }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder.path()), {});
  }
  mode_t permissions(const fs::path& of) const {
    struct stat status {};
    stat(of.c_str(), &status);
    return status.st_mode & 07777U;
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("attune.db");
};

TEST_F(Opening, MakesTheFileAndItsFoldersForTheirOwnerOnly) {
  path = folder.file("data/attune/attune.db");
  make_sound();
  EXPECT_EQ(permissions(path), 0600U);
  EXPECT_EQ(permissions(folder.path() / "data"), 0700U);
  EXPECT_EQ(permissions(folder.path() / "data/attune"), 0700U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "data/attune"), {}), 1)
      << "a journal was left behind";
}

TEST_F(Opening, ReadsOnlyWhatIsThere) {
  EXPECT_NE(refusal(Mode::kReadOnly).find("is not there"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Opening, InitialisesAnEmptyFileForWritingOnly) {
  std::ofstream(path).close();
  EXPECT_NE(refusal(Mode::kReadOnly).find("is empty"), std::string::npos);
  make_sound();
  EXPECT_EQ(text_of(ConfigDatabase(path, Mode::kReadOnly).read().rows.at(0)),
            text_of(sample_row(0)));
}

TEST_F(Opening, RefusesAFolder) {
  fs::create_directory(path);
  expect_refused("is a folder");
}

TEST_F(Opening, RefusesAPipeWithoutWaitingForIt) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused("is not a regular file");
}

TEST_F(Opening, RefusesText) {
  std::ofstream(path) << "op,config\nsoftmax,4\n";
  expect_refused("not a SQLite database");
  std::ofstream(path) << std::string(100'000, 'x');
  expect_refused("not a SQLite database");
}

TEST_F(Opening, RefusesAFileBeyondAllMeasure) {
  make_sound();
  fs::resize_file(path, (std::uintmax_t{1} << 30U) + 1);  // sparse
  expect_refused("larger than 1 GiB");
}

TEST_F(Opening, ReadsThroughASymbolicLinkButDoesNotWrite) {
  const std::string target = folder.file("target.db");
  ConfigDatabase(target, Mode::kReadWrite).put(sample_row(0));
  fs::create_symlink(target, path);
  EXPECT_NE(refusal(Mode::kReadWrite).find("symbolic link"), std::string::npos);
  EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).read().rows.size(), 1U);
}

TEST_F(Opening, WritesInAFolderThatIsASymbolicLink) {
  fs::create_directory(folder.path() / "real");
  fs::create_directory_symlink(folder.path() / "real", folder.path() / "link");
  path = folder.file("link/attune.db");
  make_sound();
  EXPECT_TRUE(fs::is_regular_file(folder.path() / "real/attune.db"));
}

TEST_F(Opening, RefusesAnotherProgramsDatabase) {
  raw_sql(path, "CREATE TABLE t(x); PRAGMA application_id=77");
  expect_refused("not one of attune's (application id 77)");
  raw_sql(path, "PRAGMA application_id=0; PRAGMA user_version=1");
  expect_refused("not one of attune's");
}

// Each of these would otherwise run, or be believed, when the file is used.
TEST_F(Opening, RefusesTablesThatAreNotExactlyItsOwn) {
  for (const char* change :
       {"CREATE TRIGGER t AFTER INSERT ON decision BEGIN DELETE FROM decision; END",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE decision; CREATE VIEW decision AS WITH RECURSIVE c(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c",
        "CREATE INDEX i ON decision(op)", "CREATE TABLE extra(x)", "DROP TABLE pin",
        "ALTER TABLE pin ADD COLUMN who TEXT"}) {
    fs::remove(path);
    make_sound();
    raw_sql(path, change);
    expect_refused("its tables differ");
  }
}

TEST_F(Opening, RefusesAVersionThatCannotBe) {
  make_sound();
  for (const char* version : {"-1", "0"}) {
    raw_sql(path, std::string("PRAGMA user_version=") + version);
    EXPECT_NE(refusal(Mode::kReadOnly), "opened") << version;
    EXPECT_NE(refusal(Mode::kReadWrite), "opened") << version;
  }
}

TEST_F(Opening, ReadsANewerSchemaThatAllowsItAndNeverWritesIt) {
  make_sound();
  raw_sql(path,
          "PRAGMA user_version=2; CREATE TABLE later(x); ALTER TABLE pin ADD COLUMN who TEXT");
  EXPECT_NE(refusal(Mode::kReadWrite).find("newer"), std::string::npos);
  EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).read().rows.size(), 1U);
}

TEST_F(Opening, RefusesANewerSchemaThatDoesNotAllowIt) {
  make_sound();
  raw_sql(path, "PRAGMA user_version=2; UPDATE meta SET value='2' WHERE key='min_reader'");
  EXPECT_NE(refusal(Mode::kReadOnly).find("cannot read"), std::string::npos);
  raw_sql(path, "DELETE FROM meta");
  EXPECT_NE(refusal(Mode::kReadOnly).find("cannot read"), std::string::npos);
}

TEST_F(Opening, RefusesANewerSchemaThatRunsCode) {
  make_sound();
  raw_sql(path,
          "PRAGMA user_version=2; DROP TABLE decision; CREATE VIEW decision AS WITH RECURSIVE c(x) "
          "AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM c");
  EXPECT_NE(refusal(Mode::kReadOnly).find("other than tables"), std::string::npos);
}

TEST_F(Opening, PutsARollbackJournalInPlaceOfAnyOther) {
  make_sound();
  raw_sql(path, "PRAGMA journal_mode=WAL");
  ConfigDatabase(path, Mode::kReadWrite).put(sample_row(1));
  std::ifstream file(path);
  char header[20] = {};
  file.read(header, sizeof header);
  EXPECT_EQ(header[18], 1) << "the file's write version: 2 would be WAL";
  EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).read().rows.size(), 2U);
}

// The child is gone in the middle of a transaction whose pages are in the file already.
TEST_F(Opening, UndoesAnInterruptedWriteUnlessForReading) {
  for (std::int64_t i = 0; i < 30; ++i) ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
  EXPECT_FALSE(in_child([&] {
    raw_sql(path, "PRAGMA cache_size=1; BEGIN; UPDATE decision SET samples = 1",
            [] { raise(SIGKILL); });
    return true;
  }));
  ASSERT_TRUE(fs::exists(path + "-journal"));
  EXPECT_NE(refusal(Mode::kReadOnly).find("a writer was interrupted"), std::string::npos);
  const ConfigSnapshot snapshot = ConfigDatabase(path, Mode::kReadWrite).read();
  EXPECT_EQ(snapshot.rows.size(), 30U);
  EXPECT_EQ(snapshot.bad_rows, 0);
  EXPECT_EQ(refusal(Mode::kReadOnly), "opened");
}

/// What a program that is killed leaves beside a database it has open.
void leave_behind(const std::string& path, const std::string& sql) {
  EXPECT_FALSE(in_child([&] {
    raw_sql(path, sql, [] { raise(SIGKILL); });
    return true;
  }));
}
constexpr const char* kHalfAWrite = "PRAGMA cache_size=1; BEGIN; UPDATE decision SET samples = 1";
constexpr const char* kOneRowLessInTheLog =
    "PRAGMA journal_mode=WAL; DELETE FROM decision WHERE key_hash = (SELECT min(key_hash) FROM "
    "decision)";

TEST_F(Opening, ToRecoverUndoesAnInterruptedWriteAndReads) {
  for (std::int64_t i = 0; i < 30; ++i) ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
  leave_behind(path, kHalfAWrite);
  ASSERT_TRUE(fs::exists(path + "-journal"));
  const ConfigDatabase db(path, Mode::kRecover);
  EXPECT_FALSE(db.writable());
  EXPECT_EQ(db.read().rows.size(), 30U);
  EXPECT_EQ(db.read().bad_rows, 0);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Opening, ToRecoverMakesNothing) {
  EXPECT_NE(refusal(Mode::kRecover).find("is not there"), std::string::npos);
  std::ofstream(path + "-journal") << "of nothing";
  EXPECT_NE(refusal(Mode::kRecover).find("is not there"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Opening, ReadsAFileInWalModeAndLeavesNothingBeside) {
  make_sound();
  raw_sql(path, "PRAGMA journal_mode=WAL");
  for (const Mode mode : {Mode::kReadOnly, Mode::kRecover}) {
    EXPECT_EQ(ConfigDatabase(path, mode).read().rows.size(), 1U);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(Opening, DoesNotReadAFileWithoutTheChangesInItsLog) {
  for (std::int64_t i = 0; i < 3; ++i) ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
  leave_behind(path, kOneRowLessInTheLog);
  EXPECT_NE(refusal(Mode::kReadOnly).find("write-ahead log"), std::string::npos);
  EXPECT_EQ(ConfigDatabase(path, Mode::kRecover).read().rows.size(), 2U);
  EXPECT_EQ(entries(), 1);
}

TEST_F(Opening, WaitsForOthersWhoHaveTheFileInWalMode) {
  make_sound();
  raw_sql(path, "PRAGMA journal_mode=WAL");
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "SELECT * FROM meta", nullptr, nullptr, nullptr), SQLITE_OK);
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sqlite3_close(other);
  });
  EXPECT_EQ(refusal(Mode::kReadWrite), "opened");
  leaves.join();
}

// As after `mv new.db attune.db`, where the old attune.db had been left in the middle of a write.
TEST_F(Opening, RefusesAJournalThatIsNotTheFilesOwn) {
  const std::string other = folder.file("other.db");
  // Whole transactions write page 1 at their end; half of one is known by the size from before.
  // A journal that is not synchronised counts from its first write on.
  constexpr const char* kToPageOne =
      "PRAGMA synchronous=OFF; BEGIN; UPDATE decision SET samples = 1; PRAGMA user_version=7";
  const std::pair<int, const char*> writes[] = {
      {0, kToPageOne}, {2, kToPageOne}, {12, kToPageOne}, {30, kToPageOne}, {30, kHalfAWrite}};
  for (const auto& [rows, write] : writes) {
    SCOPED_TRACE(str(rows, ' ', write));
    for (const std::string& file : {path, other}) fs::remove(file);
    for (std::int64_t i = 0; i < 5; ++i) ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
    ConfigDatabase there(other, Mode::kReadWrite);
    for (std::int64_t i = 0; i < rows; ++i) there.put(sample_row(100 + i));
    keep_journal(other, write, path + "-journal");
    expect_refused("a journal of another file");
    fs::remove(path + "-journal");
    EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).read().rows.size(), 5U);
  }
}

// A reader looks while others write: their journal is never taken for a stranger's.
TEST_F(Opening, KnowsTheJournalOfALivingWriter) {
  make_sound();
  const pid_t writer = test::start_child([&] {
    ConfigDatabase db(path, Mode::kReadWrite);
    for (std::int64_t i = 0; i < 300; ++i) db.put(sample_row(i % 20));
    return true;
  });
  for (int i = 0; i < 300; ++i) EXPECT_EQ(refusal(Mode::kReadOnly), "opened");
  EXPECT_TRUE(test::wait_for(writer));
}

// SQLite would write what is in it to the file, whoever it was made for.
TEST_F(Opening, RefusesALogThatIsNotTheFilesOwn) {
  const std::string other = folder.file("other.db");
  for (std::int64_t i = 0; i < 3; ++i) ConfigDatabase(other, Mode::kReadWrite).put(sample_row(i));
  leave_behind(other, kOneRowLessInTheLog);
  make_sound();
  fs::copy_file(other + "-wal", path + "-wal");
  expect_refused("not its own");
  fs::remove(path + "-wal");
  EXPECT_EQ(ConfigDatabase(path, Mode::kReadOnly).read().rows.size(), 1U);
}

// The same for a file that is not attune's: it is as it was, with all that lies beside it.
TEST_F(Opening, LeavesAnotherProgramsDatabaseAndItsJournalsAlone) {
  for (const char* journal : {"PRAGMA journal_mode=WAL; INSERT INTO t VALUES(2)",
                              "PRAGMA cache_size=1; BEGIN; UPDATE t SET x = zeroblob(5000)"}) {
    fs::remove(path);
    raw_sql(path,
            "CREATE TABLE t(x); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c "
            "LIMIT 3000) INSERT INTO t SELECT x FROM c");
    leave_behind(path, journal);
    const auto bytes = [&] {
      std::string all;
      for (const char* suffix : {"", "-journal", "-wal", "-shm"}) {
        std::ifstream file(path + suffix, std::ios::binary);
        all.append(std::istreambuf_iterator<char>(file), {}) += '|';
      }
      return all;
    };
    const std::string before = bytes();
    for (const Mode mode : {Mode::kReadOnly, Mode::kRecover, Mode::kReadWrite}) {
      EXPECT_NE(refusal(mode).find("not one of attune's"), std::string::npos) << refusal(mode);
      EXPECT_TRUE(bytes() == before);
    }
    for (const char* suffix : {"-journal", "-wal", "-shm"}) fs::remove(path + suffix);
  }
}

TEST_F(Opening, ForReadingChangesNothing) {
  make_sound();
  const auto before = fs::last_write_time(path);
  ConfigDatabase db(path, Mode::kReadOnly);
  EXPECT_FALSE(db.writable());
  EXPECT_THROW(db.put(sample_row(1)), CacheError);
  EXPECT_THROW(db.erase(sample_key(0)), CacheError);
  EXPECT_THROW(db.acquire_lease(sample_key(0), 10), CacheError);
  EXPECT_EQ(db.read().rows.size(), 1U);
  EXPECT_EQ(fs::last_write_time(path), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

/// Root may write anything, so the rest of the test is done by nobody.
bool become_nobody() {
  if (geteuid() != 0) return true;
  constexpr uid_t kNobody = 65534;
  return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
}

TEST_F(Opening, ReadsAFileThatItMayNotWrite) {
  path = folder.file("a folder % with ? marks #/attune.db");
  make_sound();
  fs::permissions(fs::path(path).parent_path(), static_cast<fs::perms>(0555));
  fs::permissions(folder.path(), static_cast<fs::perms>(0755));
  fs::permissions(path, static_cast<fs::perms>(0444));
  EXPECT_TRUE(in_child([&] {
    if (!become_nobody()) throw std::runtime_error("cannot become nobody");
    const bool refused = refusal(Mode::kReadWrite).find("cannot be written") != std::string::npos;
    return refused && ConfigDatabase(path, Mode::kReadOnly).read().rows.size() == 1;
  }));
  fs::permissions(fs::path(path).parent_path(), static_cast<fs::perms>(0755));
}

// Where nothing may be written nothing can be undone, and half a write is not what was stored.
TEST_F(Opening, NeverServesAnInterruptedWriteFromWhereItCannotBeUndone) {
  path = folder.file("sealed/attune.db");
  for (std::int64_t i = 0; i < 30; ++i) ConfigDatabase(path, Mode::kReadWrite).put(sample_row(i));
  leave_behind(path, kHalfAWrite);
  fs::permissions(folder.path(), static_cast<fs::perms>(0755));
  fs::permissions(path, static_cast<fs::perms>(0444));
  fs::permissions(path + "-journal", static_cast<fs::perms>(0444));
  fs::permissions(fs::path(path).parent_path(), static_cast<fs::perms>(0555));
  EXPECT_TRUE(in_child([&] {
    if (!become_nobody()) throw std::runtime_error("cannot become nobody");
    return refusal(Mode::kReadOnly).find("a writer was interrupted") != std::string::npos &&
           refusal(Mode::kRecover).find("a writer was interrupted") != std::string::npos;
  }));
  fs::permissions(fs::path(path).parent_path(), static_cast<fs::perms>(0755));
}

TEST_F(Opening, SaysWhyAFolderCannotBeMade) {
  std::ofstream(folder.file("file")).close();
  path = folder.file("file/attune.db");
  EXPECT_NE(refusal(Mode::kReadWrite).find(path), std::string::npos);
  path = folder.file("file/below/attune.db");
  EXPECT_NE(refusal(Mode::kReadWrite).find("cannot make the folder"), std::string::npos);
}

}  // namespace
}  // namespace attune
