// A database as a whole: reading all of it, and changing much of it at once.
#include <sqlite3.h>

#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <attune/cache/config_database.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>

#include "content/content.hpp"
#include "database/connection.hpp"
#include "database/schema.hpp"
#include "database/sqlite.hpp"
#include "rows/row_storage.hpp"

namespace attune {
namespace {

void read_all_trials(sqlite::Db& db, Damage& damage, std::vector<StoredDecision>& decisions) {
  std::map<std::string, StoredDecision*> by_hash;
  for (StoredDecision& decision : decisions) by_hash[hash_of(decision.row.key)] = &decision;
  std::map<StoredDecision*, std::map<std::int64_t, TrialRow>> found;
  read_table<StoredTrial>(db, damage, [&](const std::string& hash, StoredTrial trial) {
    const auto decision = by_hash.find(hash);
    if (decision == by_hash.end()) return;  // its decision is damaged, which is counted
    trial.row.key = decision->second->row.key;
    found[decision->second][trial.position] = std::move(trial.row);
  });
  for (auto& [decision, trials] : found) {
    for (auto& [position, trial] : trials) decision->trials.push_back(std::move(trial));
  }
}

DatabaseContent read_content(sqlite::Db& db) {
  DatabaseContent content;
  Damage damage;
  bool whole = read_table<ConfigRow>(db, damage, [&](ConfigRow row) {
    content.decisions.push_back({std::move(row), {}});
  });
  whole =
      read_table<PinRow>(db, damage, [&](PinRow row) { content.pins.push_back(std::move(row)); }) &&
      whole;
  whole =
      read_table<QuarantineRow>(
          db, damage, [&](QuarantineRow row) { content.quarantine.push_back(std::move(row)); }) &&
      whole;
  if (content.empty() && !whole) {
    throw CacheError(
        str("config database ", db.path(), ": nothing can be read: ", damage.reasons.at(0)));
  }
  read_all_trials(db, damage, content.decisions);
  content.bad_rows = damage.rows;
  content.bad_reasons = std::move(damage.reasons);
  content.sort();
  return content;
}

std::string hash_of_row(const StoredDecision& decision) { return hash_of(decision.row.key); }
template <class Row>
std::string hash_of_row(const Row& row) {
  return key_hash(RowTable<Row>::key(row));
}

void store_row(sqlite::Db& db, const StoredDecision& decision) {
  StorableDecision(decision.row, decision.trials).store(db);
}
template <class Row>
void store_row(sqlite::Db& db, const Row& row) {
  StorableRow<Row>(row).store(db);
}

/// Makes `table` hold `after` where it held `before`; other rows of it are left alone.
template <class Row>
void store_difference(sqlite::Db& db, std::string_view table, const std::vector<Row>& before,
                      const std::vector<Row>& after) {
  using Key = std::decay_t<decltype(content_key(before.front()))>;
  std::map<Key, const Row*> old;
  for (const Row& row : before) old.emplace(content_key(row), &row);
  std::set<Key> seen;
  for (const Row& row : after) {
    const Key key = content_key(row);
    if (!seen.insert(key).second) {
      throw InvalidArgument(str(table, ": two rows have the same key"));
    }
    const auto known = old.find(key);
    if (known == old.end() || !(*known->second == row)) store_row(db, row);
  }
  for (const auto& [key, row] : old) {
    if (seen.contains(key)) continue;
    const std::string hash = hash_of_row(*row);
    if constexpr (std::is_same_v<Row, StoredDecision>) {
      remove_row(db, RowTable<StoredTrial>::kName, hash);
    }
    remove_row(db, table, hash);
  }
}

void store_changes(sqlite::Db& db, const DatabaseContent& before, const DatabaseContent& after) {
  store_difference(db, RowTable<ConfigRow>::kName, before.decisions, after.decisions);
  store_difference(db, RowTable<PinRow>::kName, before.pins, after.pins);
  store_difference(db, RowTable<QuarantineRow>::kName, before.quarantine, after.quarantine);
}

void remove_all(sqlite::Db& db) {
  for (const std::string_view table : {RowTable<StoredTrial>::kName, RowTable<ConfigRow>::kName,
                                       RowTable<PinRow>::kName, RowTable<QuarantineRow>::kName}) {
    db.execute(str("DELETE FROM ", table));
  }
}

/// Gives back the pages of removed rows when they are a quarter of the file or more. A failure
/// leaves the file as it is, which is sound: its rows are stored already.
void shrink(sqlite::Db& db) {
  constexpr std::int64_t kWorthIt = 4;
  try {
    if (kWorthIt * db.integer("PRAGMA freelist_count") < db.integer("PRAGMA page_count")) return;
    sqlite3_limit(db.handle(), SQLITE_LIMIT_ATTACHED, 1);  // the copy that VACUUM makes
    db.execute("VACUUM");
  } catch (const CacheError& error) {
    log(LogLevel::kDebug, error.what());
  }
  sqlite3_limit(db.handle(), SQLITE_LIMIT_ATTACHED, 0);
}

}  // namespace

DatabaseContent ConfigDatabase::content() const {
  const auto lock = connection_->use();
  const sqlite::Transaction reading(connection_->db, sqlite::Transaction::Kind::kRead);
  return read_content(connection_->db);
}

void ConfigDatabase::edit(const std::function<void(DatabaseContent&)>& change, BadRows bad) {
  const auto lock = connection_->use_for_writing();
  sqlite::Db& db = connection_->db;
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  DatabaseContent before = read_content(db);
  DatabaseContent after = before;
  change(after);
  if (bad == BadRows::kRemove) {
    remove_all(db);
    before = {};
  }
  store_changes(db, before, after);
  writing.commit();
  if (bad == BadRows::kRemove) shrink(db);
}

std::string image_of(const DatabaseContent& content) {
  sqlite::Db db = sqlite::Db::in_memory();
  prepare_for_writing(db);
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  store_changes(db, {}, content);
  writing.commit();
  return db.image();
}

}  // namespace attune
