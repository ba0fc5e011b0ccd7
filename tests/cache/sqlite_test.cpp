// SQLite under RAII: whose a connection is, and what is left when it ends.
#include "database/sqlite.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "child_process.hpp"
#include "support/temporary_folder.hpp"

namespace attune::sqlite {
namespace {

namespace fs = std::filesystem;

class SqliteConnection : public testing::Test {
 protected:
  Db open() const { return {path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, path}; }
  /// How often this process has the file open.
  int descriptors() const {
    int count = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the folder's own
      count += fs::read_symlink(entry.path(), gone) == fs::path(path) ? 1 : 0;
    }
    return count;
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("file.db");
};

TEST_F(SqliteConnection, ClosesItsFileWhenItEnds) {
  {
    Db db = open();
    db.execute("CREATE TABLE t(x)");
    EXPECT_GT(descriptors(), 0);
  }
  EXPECT_EQ(descriptors(), 0);
  EXPECT_THROW(Db(folder.path().string(), SQLITE_OPEN_READWRITE, "a folder"), Failure);
  EXPECT_EQ(descriptors(), 0);
}

TEST_F(SqliteConnection, OfAParentKeepsItsTransactionWhenAForkedChildEnds) {
  std::optional<Db> db(open());
  db->execute("CREATE TABLE t(x); INSERT INTO t VALUES(1)");
  std::optional<Transaction> writing(std::in_place, *db, Transaction::Kind::kImmediate);
  db->execute("UPDATE t SET x = 2");
  const std::string journal = path + "-journal";
  ASSERT_TRUE(fs::exists(journal));
  EXPECT_TRUE(test::in_child([&] {
    db.reset();  // as a child does that ends with exit()
    return fs::exists(journal);
  }));
  EXPECT_TRUE(fs::exists(journal)) << "without it, nobody could undo the transaction";
  writing.reset();
  EXPECT_EQ(db->integer("SELECT x FROM t"), 1);
}

TEST_F(SqliteConnection, OfAParentIsNotForAForkedChild) {
  Db db = open();
  db.execute("CREATE TABLE t(x)");
  Statement statement(db, "SELECT count(*) FROM t");
  EXPECT_TRUE(test::in_child([&] {
    for (const auto& use : {std::function<void()>([&] { db.execute("DELETE FROM t"); }),
                            std::function<void()>([&] { statement.step(); }),
                            std::function<void()>([&] { db.integer("SELECT 1"); })}) {
      try {
        use();
        return false;
      } catch (const CacheError& error) {
        if (std::string(error.what()).find("used after fork()") == std::string::npos) return false;
      }
    }
    return true;
  }));
  EXPECT_EQ(db.integer("SELECT 7"), 7);
}

TEST_F(SqliteConnection, UndoesATransactionThatIsNotCommitted) {
  Db db = open();
  db.execute("CREATE TABLE t(x)");
  {
    Transaction undone(db, Transaction::Kind::kImmediate);
    db.execute("INSERT INTO t VALUES(1)");
  }
  EXPECT_EQ(db.integer("SELECT count(*) FROM t"), 0);
  {
    Transaction kept(db, Transaction::Kind::kImmediate);
    db.execute("INSERT INTO t VALUES(1)");
    kept.commit();
  }
  EXPECT_EQ(db.integer("SELECT count(*) FROM t"), 1);
  EXPECT_EQ(db.changes(), 1);
}

TEST_F(SqliteConnection, ThatReadsDoesNotKeepAnotherOut) {
  Db first = open();
  first.execute("CREATE TABLE t(x)");
  Db second = open();
  const Transaction reading(first, Transaction::Kind::kRead);
  EXPECT_EQ(first.integer("SELECT count(*) FROM t"), 0);
  const Transaction too(second, Transaction::Kind::kRead);
  EXPECT_EQ(second.integer("SELECT count(*) FROM t"), 0);
}

TEST_F(SqliteConnection, GivesValuesBackAsTheyWere) {
  Db db = Db::in_memory();
  db.execute("CREATE TABLE t(i, r, s, b, e)");
  const std::string bytes("a\0b", 3);
  Statement insert(db, "INSERT INTO t VALUES(?, ?, ?, ?, ?)");
  insert.bind_all(std::int64_t{-5}, 0.1, std::string_view("\xc3\xbc"),
                  std::as_bytes(std::span(bytes)), std::string_view());
  insert.run();
  Statement select(db, "SELECT i, r, s, b, e, NULL FROM t");
  ASSERT_TRUE(select.step());
  EXPECT_EQ(select.integer(0), -5);
  EXPECT_EQ(select.real(1), 0.1);
  EXPECT_EQ(select.text(2), "\xc3\xbc");
  EXPECT_EQ(select.blob(3), bytes);
  EXPECT_EQ(select.type(4), SQLITE_TEXT) << "an empty text is no NULL";
  EXPECT_EQ(select.text(5), "");
  EXPECT_EQ(select.blob(5), "");
  EXPECT_FALSE(select.step());
}

TEST_F(SqliteConnection, SaysWhetherItMayWrite) {
  EXPECT_FALSE(open().read_only());
  EXPECT_TRUE(Db(path, SQLITE_OPEN_READONLY, path).read_only());
}

}  // namespace
}  // namespace attune::sqlite
