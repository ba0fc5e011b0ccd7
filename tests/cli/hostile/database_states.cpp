#include "database_states.hpp"

#include <sqlite3.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include <attune/cache/database_text.hpp>
#include <attune/core/error.hpp>

#include "cache/child_process.hpp"
#include "cache/raw_sqlite.hpp"
#include "cache/sample_rows.hpp"
#include "support/temporary_folder.hpp"

namespace attune::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSideFiles[] = {"-journal", "-wal", "-shm"};

void copy_with_side_files(const std::string& from, const std::string& to) {
  fs::copy_file(from, to);
  for (const char* suffix : kSideFiles) {
    if (fs::exists(from + suffix)) fs::copy_file(from + suffix, to + suffix);
  }
}

/// Runs the statements in a process that dies before it closes the file, which is then copied, with
/// all that lies beside it, to `to`.
void leave_behind(const std::string& work, const std::string& sql, const std::string& to) {
  const auto die = [&] {
    copy_with_side_files(work, to);
    _exit(0);
  };
  if (!in_child([&] {
        raw_sql(work, sql, die);
        return false;
      })) {
    throw std::runtime_error("cannot make " + to);
  }
}

/// Many rows with `op`, so that a transaction on them does not stay in memory.
DatabaseContent many_rows(const std::string& op, std::int64_t first) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + 200; ++i) {
    StoredDecision decision{.row = sample_row(i), .trials = {}};
    decision.row.key.op = op;
    content.decisions.push_back(decision);
  }
  content.sort();
  return content;
}

std::set<std::string> names(const DatabaseContent& content) {
  std::set<std::string> all;
  for (const auto& [row, trials] : content.decisions)
    all.insert(row.key.op + ' ' + row.key.problem);
  return all;
}

}  // namespace

DatabaseStates::DatabaseStates(std::string folder, const DatabaseContent& sound)
    : folder_(std::move(folder)), committed_(names(sound)) {
  const DatabaseContent added = many_rows("added_in_the_wal", 1000);
  committed_with_wal_ = committed_;
  committed_with_wal_.merge(names(added));
  write_database_file(file("sound.db"), sound);
  write_database_file(file("added.db"), added);
  write_database_file(file("never.db"), many_rows(kNeverCommitted, 2000));
  write_database_file(file("other.db"), many_rows("another_database", 3000));
  fs::copy_file(file("sound.db"), file("quiet.db"));
  raw_sql(file("quiet.db"), "PRAGMA journal_mode=WAL");
  make_wal("sound.db", "wal.db");
  make_wal("other.db", "other_wal.db");
  make_hot("sound.db", "hot.db");
  make_hot("other.db", "other_hot.db");
  raw_sql(file("foreign.db"),
          "CREATE TABLE bookmarks (title TEXT); INSERT INTO bookmarks VALUES ('attune')");
}

void DatabaseStates::make_hot(const std::string& from, const std::string& name) const {
  fs::copy_file(file(from), file("work.db"));
  // A cache of one page has the rows written to the file before they are committed.
  leave_behind(file("work.db"),
               str("PRAGMA cache_size=1; PRAGMA synchronous=FULL; ATTACH '", file("never.db"),
                   "' AS never; BEGIN IMMEDIATE; DELETE FROM decision; DELETE FROM trial; "
                   "INSERT INTO decision SELECT * FROM never.decision"),
               file(name));
  if (!fs::exists(file(name) + "-journal")) throw std::runtime_error(name + " is not hot");
  for (const char* suffix : {"", "-journal"}) fs::remove(file("work.db") + suffix);
}

void DatabaseStates::make_wal(const std::string& from, const std::string& name) const {
  fs::copy_file(file(from), file("work.db"));
  leave_behind(
      file("work.db"),
      str("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; ATTACH '", file("added.db"),
          "' AS added; INSERT INTO decision SELECT * FROM added.decision"),
      file(name));
  if (!fs::exists(file(name) + "-wal")) throw std::runtime_error(name + " has no -wal");
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(file("work.db") + suffix);
}

void DatabaseStates::put(State state, const std::string& path) const {
  switch (state) {
    case State::kSound:
      return copy_with_side_files(file("sound.db"), path);
    case State::kQuietWal:
      return copy_with_side_files(file("quiet.db"), path);
    case State::kWalOfTheDead:
      return copy_with_side_files(file("wal.db"), path);
    case State::kHotJournal:
      return copy_with_side_files(file("hot.db"), path);
    case State::kForeignJournal:
      copy_with_side_files(file("sound.db"), path);
      return put_foreign_journal(path);
    case State::kForeignWal:
      copy_with_side_files(file("sound.db"), path);
      return put_foreign_wal(path);
  }
}

void DatabaseStates::put_foreign_journal(const std::string& path) const {
  fs::copy_file(file("other_hot.db-journal"), path + "-journal");
}

void DatabaseStates::put_foreign_wal(const std::string& path) const {
  fs::copy_file(file("other_wal.db-wal"), path + "-wal");
}

void DatabaseStates::put_another_programs(const std::string& path) const {
  fs::copy_file(file("foreign.db"), path);
}

const std::set<std::string>& DatabaseStates::committed(State state) const {
  return state == State::kWalOfTheDead ? committed_with_wal_ : committed_;
}

std::set<std::string> decisions_at(const std::string& path) {
  const TemporaryFolder scratch;
  const std::string copy = scratch.file("copy.db");
  fs::copy_file(path, copy);
  fs::permissions(copy, fs::perms::owner_read | fs::perms::owner_write);
  for (const char* suffix : {"-journal", "-wal"}) {  // a -shm is made of the -wal
    if (fs::exists(path + suffix)) fs::copy_file(path + suffix, copy + suffix);
  }
  std::set<std::string> found;
  const auto add = [](void* to, int, char** values, char**) {
    static_cast<std::set<std::string>*>(to)->insert(values[0]);
    return 0;
  };
  sqlite3* db = nullptr;
  if (sqlite3_open(copy.c_str(), &db) == SQLITE_OK) {
    sqlite3_exec(db, "SELECT op || ' ' || problem FROM decision", add, &found, nullptr);
  }
  sqlite3_close(db);
  return found;
}

}  // namespace attune::test
