// Migrations and the wrapper of SQLite, by steps made up for the test.
#include "database/schema.hpp"

#include <gtest/gtest.h>

#include <attune/cache/config_database.hpp>

#include "database/open_file.hpp"
#include "rows/row_cells.hpp"
#include "rows/row_tables.hpp"
#include "support/temporary_folder.hpp"

namespace attune {
namespace {

constexpr Migration kSteps[] = {
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT) STRICT;"
    "CREATE TABLE colour(name TEXT NOT NULL) STRICT;"
    "INSERT INTO meta VALUES('min_reader', '1')",
    "ALTER TABLE colour ADD COLUMN shade INTEGER NOT NULL DEFAULT 7",
    "CREATE TABLE taste(name TEXT) STRICT; INSERT INTO taste SELECT name FROM colour",
};

constexpr Migration kFailing[] = {
    kSteps[0],
    "CREATE TABLE half(x INTEGER) STRICT; INSERT INTO nowhere VALUES(1)",
};

class Migrations : public ::testing::Test {
 protected:
  sqlite::Db open(std::span<const Migration> steps) {
    sqlite::Db db = open_for_writing(path);
    prepare_for_writing(db, steps);
    return db;
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("attune.db");
};

TEST_F(Migrations, BringAnEmptyFileToTheLastVersion) {
  sqlite::Db db = open(kSteps);
  EXPECT_EQ(db.integer("PRAGMA user_version"), 3);
  EXPECT_EQ(db.integer("PRAGMA application_id"), ConfigDatabase::kApplicationId);
  EXPECT_EQ(db.integer("SELECT count(*) FROM taste"), 0);
}

TEST_F(Migrations, CarryTheRowsOfEachOlderVersion) {
  for (const std::size_t from : {1U, 2U}) {
    path = folder.file(str("from_", from));
    open(std::span(kSteps).first(from)).execute("INSERT INTO colour(name) VALUES('green')");
    sqlite::Db db = open(kSteps);
    EXPECT_EQ(db.integer("PRAGMA user_version"), 3);
    EXPECT_EQ(db.integer("SELECT shade FROM colour WHERE name = 'green'"), 7);
    EXPECT_EQ(db.integer("SELECT count(*) FROM taste WHERE name = 'green'"), 1);
  }
}

TEST_F(Migrations, ThatFailLeaveTheOldVersion) {
  open(std::span(kSteps).first(1)).execute("INSERT INTO colour(name) VALUES('green')");
  EXPECT_THROW(open(kFailing), CacheError);
  sqlite::Db db = open(std::span(kSteps).first(1));
  EXPECT_EQ(db.integer("PRAGMA user_version"), 1);
  EXPECT_EQ(db.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'half'"), 0);
}

TEST_F(Migrations, DoNotTouchAFileWhoseTablesDiffer) {
  open(std::span(kSteps).first(1)).execute("CREATE TABLE guest(x)");
  EXPECT_THROW(open(kSteps), CacheError);
  EXPECT_EQ(open_for_reading(path).integer("PRAGMA user_version"), 1);
}

TEST_F(Migrations, AreNotForReaders) {
  open(std::span(kSteps).first(2));
  sqlite::Db db = open_for_reading(path);
  EXPECT_THROW(check_for_reading(db, kSteps), CacheError);
  EXPECT_NO_THROW(check_for_reading(db, std::span(kSteps).first(2)));
  EXPECT_NO_THROW(check_for_reading(db, std::span(kSteps).first(1)))
      << "newer, and min_reader is 1";
}

// The checksum is over the columns in this order, and the format says that it is the table's.
template <class Row>
void expect_columns_of_table() {
  sqlite::Db db = sqlite::Db::in_memory();
  for (const Migration step : migrations()) db.execute(step);
  sqlite::Statement info(db, "SELECT name, type FROM pragma_table_info(?)");
  info.bind_all(RowTable<Row>::kName);
  std::string table;
  while (info.step()) table += info.text(0) + ' ' + info.text(1) + '\n';

  constexpr const char* kTypes[] = {"TEXT", "INTEGER", "REAL"};
  std::string declared = "key_hash BLOB\n";
  for (const Column& column : columns_of<Row>()) {
    declared += str(column.name, ' ', kTypes[static_cast<std::size_t>(column.kind)], '\n');
  }
  EXPECT_EQ(table, declared + "checksum INTEGER\n");
}

TEST(RowTables, DeclareTheColumnsOfTheSchemaInItsOrder) {
  expect_columns_of_table<ConfigRow>();
  expect_columns_of_table<StoredTrial>();
  expect_columns_of_table<PinRow>();
  expect_columns_of_table<QuarantineRow>();
}

TEST(Sqlite, StopsAStatementThatTakesTooLong) {
  sqlite::Db db = sqlite::Db::in_memory();
  db.allow_seconds(0.02);
  try {
    db.integer(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c");
    FAIL() << "it ended";
  } catch (const sqlite::Failure& failure) {
    EXPECT_EQ(failure.code(), SQLITE_INTERRUPT);
  }
}

TEST(Sqlite, UndoesATransactionThatIsNotCommitted) {
  sqlite::Db db = sqlite::Db::in_memory();
  db.execute("CREATE TABLE t(x)");
  {
    const sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
    db.execute("INSERT INTO t VALUES(1)");
  }
  EXPECT_EQ(db.integer("SELECT count(*) FROM t"), 0);
  {
    sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
    db.execute("INSERT INTO t VALUES(1)");
    writing.commit();
  }
  EXPECT_EQ(db.integer("SELECT count(*) FROM t"), 1);
}

TEST(Sqlite, RefusesValuesBeyondItsLimits) {
  sqlite::Db db = sqlite::Db::in_memory();
  EXPECT_THROW(db.integer("SELECT length(zeroblob(2000000))"), sqlite::Failure);
  EXPECT_THROW(db.execute("ATTACH ':memory:' AS other"), sqlite::Failure);
  EXPECT_THROW(db.execute("SELECT \"not a column\""), sqlite::Failure);
}

// Files in the world are of this version: whatever changes is a further step.
TEST(Schema, OfAReleasedVersionIsNeverEdited) {
  ASSERT_GE(migrations().size(), 1U);
  EXPECT_EQ(to_hex(key_hash(migrations()[0])), "ab38ea8db88a75e94381bfbb");
}

}  // namespace
}  // namespace attune
