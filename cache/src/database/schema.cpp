#include "database/schema.hpp"

#include <algorithm>

#include <attune/cache/config_database.hpp>
#include <attune/core/params.hpp>
#include <attune/core/version.hpp>

namespace attune {
namespace {

// Never edited once released: a change is a further step. The columns are those of row_tables.hpp;
// key_hash and checksum are explained in docs/cache_format.md.
constexpr Migration kVersion1 = R"sql(
CREATE TABLE meta(
  key TEXT PRIMARY KEY NOT NULL CHECK(length(key) BETWEEN 1 AND 64),
  value TEXT NOT NULL CHECK(length(value) <= 4096)
) STRICT, WITHOUT ROWID;

CREATE TABLE decision(
  key_hash BLOB PRIMARY KEY NOT NULL CHECK(length(key_hash) = 16),
  op TEXT NOT NULL CHECK(length(op) BETWEEN 1 AND 128),
  device_class TEXT NOT NULL CHECK(length(device_class) BETWEEN 1 AND 512),
  platform TEXT NOT NULL CHECK(length(platform) BETWEEN 1 AND 64),
  problem TEXT NOT NULL CHECK(length(problem) <= 2048),
  bucket TEXT NOT NULL CHECK(length(bucket) <= 2048),
  kernel TEXT NOT NULL CHECK(length(kernel) BETWEEN 1 AND 256),
  kernel_version INTEGER NOT NULL CHECK(kernel_version >= 0),
  config TEXT NOT NULL CHECK(length(config) <= 4096),
  median_ps INTEGER NOT NULL CHECK(median_ps BETWEEN 1 AND 1000000000000000),
  default_ps INTEGER NOT NULL CHECK(default_ps BETWEEN 1 AND 1000000000000000),
  default_config TEXT NOT NULL CHECK(length(default_config) <= 4096),
  spread REAL NOT NULL CHECK(spread BETWEEN 0 AND 1e300),
  samples INTEGER NOT NULL CHECK(samples >= 0),
  error REAL NOT NULL CHECK(error BETWEEN 0 AND 1e300),
  candidates_tried INTEGER NOT NULL CHECK(candidates_tried >= 0),
  candidates_refused INTEGER NOT NULL CHECK(candidates_refused >= 0),
  noise INTEGER NOT NULL CHECK(noise BETWEEN 0 AND 2),
  library_version TEXT NOT NULL CHECK(length(library_version) <= 64),
  toolkit TEXT NOT NULL CHECK(length(toolkit) <= 256),
  device_name TEXT NOT NULL CHECK(length(device_name) <= 256),
  created INTEGER NOT NULL CHECK(created >= 0),
  checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE trial(
  key_hash BLOB NOT NULL CHECK(length(key_hash) = 16),
  position INTEGER NOT NULL CHECK(position >= 0),
  kernel TEXT NOT NULL CHECK(length(kernel) BETWEEN 1 AND 256),
  config TEXT NOT NULL CHECK(length(config) <= 4096),
  outcome TEXT NOT NULL CHECK(length(outcome) BETWEEN 1 AND 32),
  reason TEXT NOT NULL CHECK(length(reason) <= 1024),
  median_ps INTEGER NOT NULL CHECK(median_ps BETWEEN 0 AND 1000000000000000),
  samples INTEGER NOT NULL CHECK(samples >= 0),
  error REAL NOT NULL CHECK(error >= 0),
  created INTEGER NOT NULL CHECK(created >= 0),
  checksum INTEGER NOT NULL,
  PRIMARY KEY(key_hash, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE pin(
  key_hash BLOB PRIMARY KEY NOT NULL CHECK(length(key_hash) = 16),
  op TEXT NOT NULL CHECK(length(op) BETWEEN 1 AND 128),
  device_class TEXT NOT NULL CHECK(length(device_class) BETWEEN 1 AND 512),
  platform TEXT NOT NULL CHECK(length(platform) BETWEEN 1 AND 64),
  problem TEXT NOT NULL CHECK(length(problem) <= 2048),
  kernel TEXT NOT NULL CHECK(length(kernel) BETWEEN 1 AND 256),
  config TEXT NOT NULL CHECK(length(config) <= 4096),
  reason TEXT NOT NULL CHECK(length(reason) <= 1024),
  created INTEGER NOT NULL CHECK(created >= 0),
  expires INTEGER NOT NULL CHECK(expires >= 0),
  checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE quarantine(
  key_hash BLOB PRIMARY KEY NOT NULL CHECK(length(key_hash) = 16),
  op TEXT NOT NULL CHECK(length(op) BETWEEN 1 AND 128),
  device_class TEXT NOT NULL CHECK(length(device_class) BETWEEN 1 AND 512),
  kernel TEXT NOT NULL CHECK(length(kernel) BETWEEN 1 AND 256),
  kernel_version INTEGER NOT NULL CHECK(kernel_version >= 0),
  config TEXT NOT NULL CHECK(length(config) <= 4096),
  problem TEXT NOT NULL CHECK(length(problem) <= 2048),
  reason TEXT NOT NULL CHECK(length(reason) <= 1024),
  created INTEGER NOT NULL CHECK(created >= 0),
  checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lease(
  key_hash BLOB PRIMARY KEY NOT NULL CHECK(length(key_hash) = 16),
  pid INTEGER NOT NULL CHECK(pid > 0),
  started INTEGER NOT NULL,
  boot TEXT NOT NULL CHECK(length(boot) <= 128),
  acquired INTEGER NOT NULL,
  expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES('min_reader', '1');
)sql";

constexpr Migration kMigrations[] = {kVersion1};
static_assert(std::size(kMigrations) == ConfigDatabase::kSchemaVersion);

struct SchemaEntry {
  std::string type, name, sql;
  friend bool operator==(const SchemaEntry&, const SchemaEntry&) = default;
};

/// What a file says it is.
struct Identity {
  std::int64_t application_id = 0;
  std::int64_t version = 0;
  std::vector<SchemaEntry> entries;
  bool blank() const { return application_id == 0 && version == 0 && entries.empty(); }
};

std::vector<SchemaEntry> schema_of(sqlite::Db& db) {
  std::vector<SchemaEntry> entries;
  sqlite::Statement statement(db, "SELECT type, name, sql FROM sqlite_schema ORDER BY name, type");
  while (statement.step()) {
    entries.push_back({statement.text(0), statement.text(1), statement.text(2)});
  }
  return entries;
}

/// The caller has begun a transaction, or the three may be of different moments.
Identity identity_of(sqlite::Db& db) {
  return {db.integer("PRAGMA application_id"), db.integer("PRAGMA user_version"), schema_of(db)};
}

/// SQLite itself says what the steps make.
std::vector<SchemaEntry> schema_after(std::span<const Migration> steps) {
  sqlite::Db scratch = sqlite::Db::in_memory();
  for (const Migration step : steps) scratch.execute(step);
  return schema_of(scratch);
}

[[noreturn]] void fail(const sqlite::Db& db, const std::string& reason) {
  throw CacheError(str("config database ", db.path(), ": ", reason));
}

void check_owner(const sqlite::Db& db, const Identity& identity) {
  if (identity.application_id == ConfigDatabase::kApplicationId) return;
  fail(db, str("is a SQLite database, but not one of attune's (application id ",
               identity.application_id, ")"));
}

void check_entries(const sqlite::Db& db, const Identity& identity,
                   std::span<const Migration> steps) {
  const std::vector<SchemaEntry> expected = schema_after(steps);
  if (identity.entries == expected) return;
  fail(db, str("says it has attune's schema ", identity.version, ", but its tables differ: ",
               identity.entries.size(), " entries, expected ", expected.size()));
}

void check_version(const sqlite::Db& db, const Identity& identity, std::int64_t ours) {
  if (identity.version < 0) fail(db, str("has schema ", identity.version, ", which cannot be"));
  if (identity.version <= ours) return;
  fail(db, str("has schema ", identity.version, ", newer than this attune's ", ours,
               "; it is not written"));
}

/// Brings the file up to date, inside of the caller's transaction.
void migrate(sqlite::Db& db, std::int64_t from, std::span<const Migration> steps) {
  for (const Migration step : steps.subspan(static_cast<std::size_t>(from))) db.execute(step);
  db.execute(str("PRAGMA user_version=", steps.size(),
                 "; PRAGMA application_id=", ConfigDatabase::kApplicationId));
  if (from > 0) return;
  sqlite::Statement created(db, "INSERT INTO meta VALUES('created_by', ?)");
  created.bind_all(std::string_view(kVersion));
  created.run();
}

/// A newer file promises by `min_reader` that older versions find their tables and columns in it,
/// with the same meaning. It may have more of them, but nothing that runs by itself.
void check_newer(sqlite::Db& db, const Identity& identity, std::int64_t ours) {
  for (const SchemaEntry& entry : identity.entries) {
    const bool plain =
        entry.type == "index" || (entry.type == "table" && entry.sql.starts_with("CREATE TABLE "));
    if (!plain) fail(db, "has something other than tables and indexes, as no schema of attune's");
  }
  sqlite::Statement statement(db, "SELECT value FROM meta WHERE key = 'min_reader'");
  std::int64_t least = 0;
  const bool known = statement.step() && parse_integer(statement.text(0), least);
  if (!known || least > ours) {
    fail(db, str("has schema ", identity.version, ", which this attune (schema ", ours,
                 ") cannot read; update attune"));
  }
}

}  // namespace

std::span<const Migration> migrations() { return kMigrations; }

void prepare_for_writing(sqlite::Db& db, std::span<const Migration> steps) {
  const auto last = static_cast<std::int64_t>(steps.size());
  const auto is_current = [&] {
    const Identity identity = identity_of(db);
    if (identity.blank()) return false;
    check_owner(db, identity);
    check_version(db, identity, last);
    if (identity.version < last) return false;
    check_entries(db, identity, steps);
    return true;
  };
  {
    sqlite::Transaction reading(db, sqlite::Transaction::Kind::kRead);
    if (is_current()) return;
  }
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  if (is_current()) return;  // another process was faster
  const Identity identity = identity_of(db);
  check_entries(db, identity, steps.first(static_cast<std::size_t>(identity.version)));
  migrate(db, identity.version, steps);
  writing.commit();
}

void check_for_reading(sqlite::Db& db, std::span<const Migration> steps) {
  const auto ours = static_cast<std::int64_t>(steps.size());
  sqlite::Transaction reading(db, sqlite::Transaction::Kind::kRead);
  const Identity identity = identity_of(db);
  if (identity.blank()) fail(db, "is empty");
  check_owner(db, identity);
  if (identity.version > ours) return check_newer(db, identity, ours);
  if (identity.version < ours) {
    fail(db, str("has schema ", identity.version, ", older than this attune's ", ours,
                 "; it is brought up to date when it is opened for writing"));
  }
  check_entries(db, identity, steps);
}

}  // namespace attune
