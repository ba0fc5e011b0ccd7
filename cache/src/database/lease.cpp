#include "database/lease.hpp"

#include <ctime>
#include <span>

#include <attune/core/error.hpp>

#include "database/process_identity.hpp"

namespace attune {
namespace {

sqlite::Blob as_blob(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

bool is_taken(sqlite::Db& db, const std::string& key_hash, std::int64_t now,
              const ProcessIdentity& us) {
  sqlite::Statement select(db, "SELECT pid, started, boot, expires FROM lease WHERE key_hash = ?");
  select.bind(1, as_blob(key_hash));
  if (!select.step()) return false;
  const ProcessIdentity owner{select.integer(0), select.integer(1), select.text(2)};
  const std::int64_t expires = select.integer(3);
  const bool in_force = now < expires && expires <= now + kLongestLeaseSeconds;
  return in_force && owner != us && !has_ended(owner);
}

}  // namespace

bool take_lease(sqlite::Db& db, const std::string& key_hash, std::int64_t seconds) {
  if (seconds < 1 || seconds > kLongestLeaseSeconds) {
    throw InvalidArgument(
        str("acquire_lease: seconds: ", seconds, ", expected 1 to ", kLongestLeaseSeconds));
  }
  const ProcessIdentity us = this_process();
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  const std::int64_t now = std::time(nullptr);
  if (is_taken(db, key_hash, now, us)) return false;
  sqlite::Statement insert(db,
                           "INSERT OR REPLACE INTO "
                           "lease(key_hash, pid, started, boot, acquired, expires) "
                           "VALUES(?, ?, ?, ?, ?, ?)");
  insert.bind_all(as_blob(key_hash), us.pid, us.started, std::string_view(us.boot), now,
                  now + seconds);
  insert.run();
  writing.commit();
  return true;
}

void give_lease_back(sqlite::Db& db, const std::string& key_hash) {
  const ProcessIdentity us = this_process();
  sqlite::Transaction writing(db, sqlite::Transaction::Kind::kImmediate);
  sqlite::Statement remove(
      db, "DELETE FROM lease WHERE key_hash = ? AND pid = ? AND started = ? AND boot = ?");
  remove.bind_all(as_blob(key_hash), us.pid, us.started, std::string_view(us.boot));
  remove.run();
  writing.commit();
}

}  // namespace attune
