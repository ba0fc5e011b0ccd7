// One config database: a SQLite file of decisions (docs/cache_format.md).
//
// Nothing here is on the launch path. Rows are read once into an immutable snapshot; each write is
// one transaction (BEGIN IMMEDIATE, rollback journal, busy timeout), so any number of processes may
// share a file. Every row carries a checksum over its content, since SQLite does not notice bit
// rot; a row whose checksum or fields are bad is counted and left out, never used.
//
// A connection belongs to the process that opened it: after fork() the child's calls throw
// CacheError. All methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/cache/config_row.hpp>
#include <attune/cache/database_content.hpp>
#include <attune/core/error.hpp>

namespace attune {

/// Whether there is anything at the path, be it a link that leads nowhere. True as well when that
/// cannot be known, as in a folder that may not be entered.
bool is_there(const std::string& path);

/// What a file holds at one moment. Does not change once index() was called.
class ConfigSnapshot {
 public:
  std::vector<ConfigRow> rows;
  std::vector<PinRow> pins;
  std::vector<QuarantineRow> quarantine;
  std::int64_t bad_rows = 0;             // failed their checksum or a check of their fields
  std::vector<std::string> bad_reasons;  // one for each of the first hundred

  /// Builds the indexes that the look-ups use; called once when the vectors are filled.
  void index();

  const ConfigRow* find(const RowKey& key) const;
  /// Rows of the same op, device class, platform and bucket, by their keys.
  std::vector<const ConfigRow*> find_bucket(const RowKey& key, const std::string& bucket) const;
  /// Rows of one problem for any device class and platform, by their keys.
  std::vector<const ConfigRow*> find_problem(const std::string& op,
                                             const std::string& problem) const;
  /// The pin that holds at time `now`.
  const PinRow* find_pin(const RowKey& key, std::int64_t now) const;
  /// The reason a candidate is quarantined, or nullptr.
  const QuarantineRow* find_quarantine(const RowKey& key, const std::string& kernel,
                                       std::int64_t kernel_version,
                                       const std::string& config) const;

 private:
  std::map<RowKey, std::size_t> by_key_;
  std::multimap<RowKey, std::size_t> by_bucket_;  // key.problem holds the bucket's text
  // Sorted, of the vectors above: by op, problem and key; by key; and by all that names a
  // candidate.
  std::vector<std::size_t> rows_by_problem_, pins_by_key_, quarantine_by_key_;
};

/// What verify() found.
struct Verification {
  bool readable = false;
  std::string error;  // why it is not
  std::int64_t schema_version = 0;
  std::int64_t rows = 0;              // decisions that are good
  std::int64_t bad_rows = 0;          // of all tables
  std::vector<std::string> problems;  // one line each
  bool ok() const { return readable && bad_rows == 0 && problems.empty(); }
};

class ConfigDatabase {
 public:
  enum class Mode {
    kReadWrite,  // made, with its folders, when it is not there
    kReadOnly,   // never written, nor anything beside it
    kRecover,    // as kReadOnly, after undoing what an interrupted writer left, where that may be
  };

  static constexpr std::int64_t kSchemaVersion = 1;
  static constexpr std::int64_t kApplicationId = 0x4154554E;  // "ATUN"

  /// Throws CacheError, saying what the file is instead, when it cannot be used: a folder, not a
  /// database, not attune's, damaged, locked for longer than the timeout, or of a newer schema
  /// (which is read when the file allows it). An existing file that is empty is initialised in
  /// kReadWrite. kReadOnly refuses a file that a writer was interrupted at, whose changes would
  /// have to be undone first, and one whose last changes are in a write-ahead log.
  ConfigDatabase(std::string path, Mode mode);
  ~ConfigDatabase();
  ConfigDatabase(ConfigDatabase&&) noexcept;
  ConfigDatabase& operator=(ConfigDatabase&&) noexcept;

  const std::string& path() const;
  bool writable() const;

  /// Reads the whole file. Bad rows are counted, not thrown. Throws CacheError when nothing can be
  /// read.
  ConfigSnapshot read() const;

  /// Stores a decision and its trials, replacing what its key had. Durable when it returns. Trials
  /// are kept under the row's key, whatever theirs; control characters in reasons become '?', and
  /// 1024 bytes of them are kept. Throws InvalidArgument, naming the column, for a value that may
  /// not be stored.
  void put(const ConfigRow& row, std::span<const TrialRow> trials = {});
  /// Removes a decision and its trials. False when there was none.
  bool erase(const RowKey& key);
  /// The trials of a decision that can be read, in their order. Why others cannot is appended to
  /// `damage`.
  std::vector<TrialRow> trials(const RowKey& key, std::vector<std::string>* damage = nullptr) const;

  void pin(const PinRow& pin);
  bool unpin(const RowKey& key);
  void quarantine(const QuarantineRow& row);

  /// Takes the right to tune `key` for `seconds`, for this process. False while another one that
  /// still lives has it.
  bool acquire_lease(const RowKey& key, std::int64_t seconds);
  void release_lease(const RowKey& key);

  /// A number that changes when another connection, of this process or another, has changed the
  /// file; what this one stores leaves it as it is.
  std::int64_t changes_by_others() const;

  /// Reads everything and checks structure, checksums and fields.
  Verification verify() const;

  /// All that read() gives, and the trials. Throws as read() does.
  DatabaseContent content() const;

  enum class BadRows {
    kKeep,
    kRemove,  // trials without a decision as well
  };
  /// Changes the content in one transaction: nothing that other processes store between what
  /// `change` is given and what it leaves is lost. Keys must stay unique; the order does not
  /// matter. Throws what `change` throws and InvalidArgument for a value that may not be stored;
  /// then nothing is changed.
  void edit(const std::function<void(DatabaseContent&)>& change, BadRows bad = BadRows::kKeep);

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace attune
