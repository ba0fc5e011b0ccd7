#include "rows/row_storage.hpp"

namespace attune {

std::string hash_of(const RowKey& key) {
  visit_key(key, [](const Column& column, const std::string& value) {
    const std::string problem = violation(column, value);
    if (!problem.empty()) throw InvalidArgument(str("key: ", problem));
  });
  return key_hash(canonical_text(key));
}

int remove_row(sqlite::Db& db, std::string_view table, const std::string& hash) {
  sqlite::Statement statement(db, str("DELETE FROM ", table, " WHERE key_hash = ?"));
  statement.bind(1, std::as_bytes(std::span(hash)));
  statement.run();
  return db.changes();
}

StorableDecision::StorableDecision(const ConfigRow& row, std::span<const TrialRow> trials)
    : cells_(to_cells(row)), hash_(hash_of(row.key)) {
  for (const TrialRow& trial : trials) {
    StoredTrial stored{static_cast<std::int64_t>(trials_.size()), trial};
    stored.row.reason = storable(trial.reason, kMaxReasonBytes);
    trials_.push_back(to_cells(stored));
  }
}

void StorableDecision::store(sqlite::Db& db) const {
  remove_row(db, RowTable<StoredTrial>::kName, hash_);
  attune::store<ConfigRow>(db, hash_, cells_);
  for (const std::vector<Cell>& trial : trials_) attune::store<StoredTrial>(db, hash_, trial);
}

bool is_damage(const sqlite::Failure& failure) {
  const int code = failure.primary_code();
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_TOOBIG ||
         code == SQLITE_IOERR;
}

}  // namespace attune
