// Databases as killed and foreign writers leave them: each state that SQLite has, made by SQLite.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <attune/cache/database_content.hpp>

namespace attune::test {

/// What stands in decisions that no transaction ever committed: whoever shows it, or keeps it, took
/// half of somebody's work for the whole.
inline constexpr const char* kNeverCommitted = "never_committed";

/// A database and what lies beside it; copies of it are put where attune will look.
class DatabaseStates {
 public:
  /// Makes all states in `folder`, which is empty, from sound rows.
  DatabaseStates(std::string folder, const DatabaseContent& sound);

  enum class State {
    kSound,           // nothing beside it
    kQuietWal,        // in WAL mode, closed as it should be
    kWalOfTheDead,    // in WAL mode, with a -wal that holds committed rows, and a -shm
    kHotJournal,      // half a transaction is in the file; the journal undoes it
    kForeignJournal,  // sound, beside a hot journal of another database
    kForeignWal,      // sound, beside a -wal of another database
  };
  /// Puts a database in that state at `path`.
  void put(State state, const std::string& path) const;

  /// Puts the journal or -wal of another database beside `path`, where nothing needs to be.
  void put_foreign_journal(const std::string& path) const;
  void put_foreign_wal(const std::string& path) const;
  /// Another program's database.
  void put_another_programs(const std::string& path) const;

  /// The decisions that were committed in that state.
  const std::set<std::string>& committed(State state) const;

 private:
  std::string file(const std::string& name) const { return folder_ + '/' + name; }
  void make_hot(const std::string& from, const std::string& name) const;
  void make_wal(const std::string& from, const std::string& name) const;

  std::string folder_;
  std::set<std::string> committed_, committed_with_wal_;
};

/// The decisions in the database at `path`, as SQLite alone gives them after undoing or completing
/// what its writers left; that is done to a copy. Nothing when SQLite cannot read it.
std::set<std::string> decisions_at(const std::string& path);

}  // namespace attune::test
