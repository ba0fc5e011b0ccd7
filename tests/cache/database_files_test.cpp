// Whole files: what may lie at a path that a database or its text is written to.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>
#include <attune/cache/database_text.hpp>

#include "child_process.hpp"
#include "raw_sqlite.hpp"
#include "sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

using test::sample_content;

class Files : public ::testing::Test {
 protected:
  test::TemporaryFolder folder;
};

TEST_F(Files, OfEachFormatReadBackWhatWasWritten) {
  for (const char* name : {"a.db", "a.jsonl", "a.csv"}) {
    const std::string path = folder.file(name);
    write_database_file(path, {});
    write_database_file(path, sample_content());
    EXPECT_EQ(read_database_file(path), sample_content()) << name;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3)
      << "nothing temporary is left";
}

TEST_F(Files, ThatAreReadOnlyAreDatabasesLikeOthers) {
  const std::string path = folder.file("shipped.db");
  write_database_file(path, sample_content(), true);
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::owner_write,
            std::filesystem::perms::none);
  EXPECT_EQ(read_database_file(path), sample_content());
  EXPECT_TRUE(ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).verify().ok());
  write_database_file(path, {}, true);
  EXPECT_EQ(read_database_file(path), DatabaseContent()) << "replaced all the same";
}

TEST_F(Files, StayAsTheyAreWhenWritingFails) {
  const std::string path = folder.file("a.db");
  write_database_file(path, sample_content());
  DatabaseContent bad = sample_content();
  bad.pins[0].config = "a\nb";
  EXPECT_THROW(write_database_file(path, bad), InvalidArgument);
  EXPECT_EQ(read_database_file(path), sample_content());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_THROW(write_database_file(folder.file("no/such/a.jsonl"), {}), CacheError);
  EXPECT_THROW(write_database_file(folder.path().string(), {}), CacheError);
}

/// A journal of `path` that was left by a program which was killed as it wrote.
void leave_a_journal(const std::string& path) {
  EXPECT_FALSE(test::in_child([&] {
    test::raw_sql(path, "PRAGMA cache_size=1; BEGIN; UPDATE decision SET samples = 1",
                  [] { raise(SIGKILL); });
    return true;
  }));
  ASSERT_TRUE(std::filesystem::exists(path + "-journal"));
}

// Whoever opened the new file would undo in it what was begun in another.
TEST_F(Files, AreNotUndoneByAJournalThatLiesWhereTheyAreMade) {
  const std::string other = folder.file("other.db");
  for (std::int64_t i = 0; i < 30; ++i) {
    ConfigDatabase(other, ConfigDatabase::Mode::kReadWrite).put(test::sample_row(i));
  }
  leave_a_journal(other);
  const std::string path = folder.file("a.db");
  std::filesystem::rename(other + "-journal", path + "-journal");
  std::ofstream(path + "-wal") << std::string(5000, 'x');
  write_database_file(path, sample_content());
  EXPECT_FALSE(std::filesystem::exists(path + "-journal"));
  EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  EXPECT_EQ(ConfigDatabase(path, ConfigDatabase::Mode::kReadWrite).content(), sample_content());
}

TEST_F(Files, TakeThePlaceOfWhatAKilledWriterLeft) {
  const std::string path = folder.file("a.db");
  for (std::int64_t i = 0; i < 30; ++i) {
    ConfigDatabase(path, ConfigDatabase::Mode::kReadWrite).put(test::sample_row(i));
  }
  leave_a_journal(path);
  write_database_file(path, sample_content());
  EXPECT_EQ(read_database_file(path), sample_content());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST_F(Files, ThatOthersHaveOpenAreTheSameFileAfterwards) {
  const std::string path = folder.file("a.db");
  ConfigDatabase open(path, ConfigDatabase::Mode::kReadWrite);
  write_database_file(path, sample_content());
  EXPECT_EQ(open.content(), sample_content());
  open.put(test::sample_row(77));
  EXPECT_EQ(read_database_file(path).decisions.size(), sample_content().decisions.size() + 1);
}

TEST_F(Files, ThatAreReadOnlyAreReplacedByShippingAgain) {
  const std::string path = folder.file("a.db");
  write_database_file(path, {}, true);
  write_database_file(path, sample_content(), true);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U & 0222U, 0U);
  EXPECT_EQ(read_database_file(path), sample_content());
  EXPECT_TRUE(ConfigDatabase(path, ConfigDatabase::Mode::kReadOnly).verify().ok());
  std::ofstream(path + "-journal") << "left";
  EXPECT_THROW(write_database_file(path, {}, true), CacheError);
  std::filesystem::remove(path + "-journal");
  EXPECT_EQ(read_database_file(path), sample_content());
}

TEST_F(Files, OfSomebodyElseAreLeftAsTheyAre) {
  for (const char* name : {"a.db", "a.jsonl", "a.csv"}) {
    const std::string path = folder.file(name);
    std::ofstream(path) << "Dear diary,\n";
    EXPECT_THROW(write_database_file(path, sample_content()), CacheError) << name;
    std::ostringstream now;
    now << std::ifstream(path).rdbuf();
    EXPECT_EQ(now.str(), "Dear diary,\n") << name;
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_THROW(write_database_file(path, sample_content()), CacheError) << name;
    EXPECT_THROW(read_database_file(path), CacheError) << name;
    EXPECT_TRUE(std::filesystem::is_fifo(path)) << name;
    std::filesystem::remove(path);
  }
  std::filesystem::create_symlink("b.jsonl", folder.file("link.jsonl"));
  std::ofstream(folder.file("b.jsonl")).close();
  write_database_file(folder.file("link.jsonl"), sample_content());
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link.jsonl")));
  EXPECT_EQ(read_database_file(folder.file("b.jsonl")), sample_content());
}

TEST_F(Files, ThatCannotBeReadSayWhy) {
  EXPECT_THROW(read_database_file(folder.file("none.jsonl")), CacheError);
  EXPECT_THROW(read_database_file(folder.file("none.db")), CacheError);
  std::filesystem::create_directory(folder.path() / "folder.jsonl");
  EXPECT_THROW(read_database_file(folder.file("folder.jsonl")), CacheError);
  std::ofstream(folder.file("text.db")) << "{}";
  EXPECT_THROW(read_database_file(folder.file("text.db")), CacheError);
}

}  // namespace
}  // namespace attune
