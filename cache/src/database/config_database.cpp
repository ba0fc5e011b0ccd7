#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <attune/cache/config_database.hpp>
#include <attune/core/count_text.hpp>

#include "database/connection.hpp"
#include "database/lease.hpp"
#include "database/open_file.hpp"
#include "database/schema.hpp"
#include "database/sqlite.hpp"
#include "rows/row_storage.hpp"

namespace attune {
namespace {

// Of processor time, for one call. A file of the largest size that is accepted takes about two.
constexpr double kMaxSeconds = 10;

template <class Row>
void store_alone(sqlite::Db& db, const Row& row) {
  const StorableRow<Row> storable(row);
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  storable.store(db);
  writing.commit();
}

sqlite::Db open(const std::string& path, ConfigDatabase::Mode mode) {
  const bool write = mode == ConfigDatabase::Mode::kReadWrite;
  if (mode == ConfigDatabase::Mode::kRecover) recover(path);
  sqlite::Db db = write ? open_for_writing(path) : open_for_reading(path);
  db.allow_seconds(kMaxSeconds);
  if (write) {
    prepare_for_writing(db);
    use_rollback_journal(db);
  } else {
    check_for_reading(db);
  }
  return db;
}

}  // namespace

ConfigDatabase::Connection::Connection(std::string file, Mode how)
    : path(std::move(file)), mode(how), db(open(path, mode)) {}

std::unique_lock<std::mutex> ConfigDatabase::Connection::use() {
  db.check_process();
  std::unique_lock lock(mutex);
  db.allow_seconds(kMaxSeconds);
  return lock;
}

std::unique_lock<std::mutex> ConfigDatabase::Connection::use_for_writing() {
  if (mode != Mode::kReadWrite) {
    throw CacheError(str("config database ", path, ": is open for reading only"));
  }
  return use();
}

ConfigDatabase::ConfigDatabase(std::string path, Mode mode)
    : connection_(std::make_unique<Connection>(std::move(path), mode)) {}
ConfigDatabase::~ConfigDatabase() = default;
ConfigDatabase::ConfigDatabase(ConfigDatabase&&) noexcept = default;
ConfigDatabase& ConfigDatabase::operator=(ConfigDatabase&&) noexcept = default;

const std::string& ConfigDatabase::path() const { return connection_->path; }
bool ConfigDatabase::writable() const { return connection_->mode == Mode::kReadWrite; }

std::int64_t ConfigDatabase::changes_by_others() const {
  const auto lock = connection_->use();
  sqlite::Statement version(connection_->db, "PRAGMA data_version");
  return version.step() ? version.integer(0) : 0;
}

ConfigSnapshot ConfigDatabase::read() const {
  const auto lock = connection_->use();
  sqlite::Db& db = connection_->db;
  ConfigSnapshot snapshot;
  Damage damage;
  const auto into = [](auto& rows) {
    return [&rows](auto row) { rows.push_back(std::move(row)); };
  };
  sqlite::Transaction reading(db, sqlite::Transaction::Kind::kRead);
  bool whole = read_table<ConfigRow>(db, damage, into(snapshot.rows));
  whole = read_table<PinRow>(db, damage, into(snapshot.pins)) && whole;
  whole = read_table<QuarantineRow>(db, damage, into(snapshot.quarantine)) && whole;
  const bool nothing =
      snapshot.rows.empty() && snapshot.pins.empty() && snapshot.quarantine.empty();
  if (nothing && !whole) {
    throw CacheError(str("config database ", path(), ": nothing can be read: ", damage.reasons[0]));
  }
  snapshot.bad_rows = damage.rows;
  snapshot.bad_reasons = std::move(damage.reasons);
  snapshot.index();
  return snapshot;
}

void ConfigDatabase::put(const ConfigRow& row, std::span<const TrialRow> trials) {
  const StorableDecision storable(row, trials);
  const auto lock = connection_->use_for_writing();
  sqlite::Transaction writing(connection_->db, sqlite::Transaction::Kind::kImmediate);
  storable.store(connection_->db);
  writing.commit();
}

bool ConfigDatabase::erase(const RowKey& key) {
  const std::string hash = hash_of(key);
  const auto lock = connection_->use_for_writing();
  sqlite::Transaction writing(connection_->db, sqlite::Transaction::Kind::kImmediate);
  remove_row(connection_->db, "trial", hash);
  const bool found = remove_row(connection_->db, "decision", hash) > 0;
  writing.commit();
  return found;
}

std::vector<TrialRow> ConfigDatabase::trials(const RowKey& key,
                                             std::vector<std::string>* damage) const {
  const std::string hash = hash_of(key);
  const auto lock = connection_->use();
  std::map<std::int64_t, TrialRow> rows;
  Damage found;
  read_trials(connection_->db, hash, found, [&](StoredTrial stored) {
    stored.row.key = key;
    rows.insert_or_assign(stored.position, std::move(stored.row));
  });
  if (damage != nullptr) std::ranges::move(found.reasons, std::back_inserter(*damage));
  std::vector<TrialRow> sorted;
  for (auto& [position, row] : rows) sorted.push_back(std::move(row));
  return sorted;
}

void ConfigDatabase::pin(const PinRow& pin) {
  const auto lock = connection_->use_for_writing();
  store_alone(connection_->db, pin);
}

bool ConfigDatabase::unpin(const RowKey& key) {
  const std::string hash = hash_of(key);
  const auto lock = connection_->use_for_writing();
  sqlite::Transaction writing(connection_->db, sqlite::Transaction::Kind::kImmediate);
  const bool found = remove_row(connection_->db, "pin", hash) > 0;
  writing.commit();
  return found;
}

void ConfigDatabase::quarantine(const QuarantineRow& row) {
  const auto lock = connection_->use_for_writing();
  store_alone(connection_->db, row);
}

bool ConfigDatabase::acquire_lease(const RowKey& key, std::int64_t seconds) {
  const std::string hash = hash_of(key);
  const auto lock = connection_->use_for_writing();
  return take_lease(connection_->db, hash, seconds);
}

void ConfigDatabase::release_lease(const RowKey& key) {
  const std::string hash = hash_of(key);
  const auto lock = connection_->use_for_writing();
  give_lease_back(connection_->db, hash);
}

namespace {

void check_structure(sqlite::Db& db, std::vector<std::string>& problems) {
  try {
    sqlite::Statement check(db, "PRAGMA integrity_check(100)");
    while (check.step()) {
      if (const std::string line = check.text(0); line != "ok") {
        problems.push_back(storable(line, 1024));
      }
    }
  } catch (const sqlite::Failure& failure) {
    if (!is_damage(failure)) throw;
    problems.emplace_back(failure.what());
  }
}

void check_rows(sqlite::Db& db, Verification& found) {
  Damage damage;
  const auto ignore = [](const auto&) {};
  read_table<ConfigRow>(db, damage, [&](const ConfigRow&) { ++found.rows; });
  read_table<PinRow>(db, damage, ignore);
  read_table<QuarantineRow>(db, damage, ignore);
  read_table<StoredTrial>(db, damage, ignore);
  found.bad_rows = damage.rows;
  for (std::string& reason : damage.reasons) found.problems.push_back(std::move(reason));
  try {
    const std::int64_t orphans = db.integer(
        "SELECT count(*) FROM trial WHERE key_hash NOT IN (SELECT key_hash FROM decision)");
    if (orphans > 0)
      found.problems.push_back(str("trial: ", count_text(orphans, "row"), " without a decision"));
  } catch (const sqlite::Failure& failure) {
    if (!is_damage(failure)) throw;  // which the tables have told of
  }
}

}  // namespace

Verification ConfigDatabase::verify() const {
  Verification found;
  const auto lock = connection_->use();
  sqlite::Db& db = connection_->db;
  try {
    sqlite::Transaction reading(db, sqlite::Transaction::Kind::kRead);
    found.schema_version = db.integer("PRAGMA user_version");
    check_structure(db, found.problems);
    check_rows(db, found);
    found.readable = true;
  } catch (const CacheError& error) {
    found.error = error.what();
  }
  return found;
}

}  // namespace attune
