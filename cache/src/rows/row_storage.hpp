// Writing and reading rows of any table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "database/sqlite.hpp"
#include "rows/row_tables.hpp"

namespace attune {

/// What could not be used, while reading.
struct Damage {
  static constexpr std::size_t kMaxReasons = 100;

  void add(std::string reason) {
    ++rows;
    if (reasons.size() < kMaxReasons) reasons.push_back(std::move(reason));
  }

  std::int64_t rows = 0;
  std::vector<std::string> reasons;
};

/// Throws InvalidArgument when a part of the key may not be stored.
std::string hash_of(const RowKey& key);

template <class Row>
std::string column_list() {
  std::string list = "key_hash";
  for (const Column& column : columns_of<Row>()) list += str(", ", column.name);
  return list + ", checksum";
}

/// Stores one row in place of what its key had.
template <class Row>
void store(sqlite::Db& db, const std::string& hash, const std::vector<Cell>& cells) {
  std::string places = "?";
  for (std::size_t i = 0; i < cells.size() + 1; ++i) places += ", ?";
  sqlite::Statement insert(db, str("INSERT OR REPLACE INTO ", RowTable<Row>::kName, "(",
                                   column_list<Row>(), ") VALUES(", places, ")"));
  int index = 0;
  insert.bind(++index, std::as_bytes(std::span(hash)));
  for (const Cell& cell : cells) bind_cell(insert, ++index, cell);
  insert.bind(++index, checksum(RowTable<Row>::kName, hash, cells));
  insert.run();
}

/// Removes a key's rows; how many there were.
int remove_row(sqlite::Db& db, std::string_view table, const std::string& hash);

/// A row as it will be stored: checked and hashed before the database is locked. Free text is made
/// storable; the constructor throws InvalidArgument, naming the column, for any other value that is
/// not legal.
template <class Row>
class StorableRow {
 public:
  explicit StorableRow(Row row) {
    row.reason = storable(row.reason, kMaxReasonBytes);
    cells_ = to_cells(row);
    hash_ = key_hash(RowTable<Row>::key(row));
  }
  void store(sqlite::Db& db) const { attune::store<Row>(db, hash_, cells_); }

 private:
  std::vector<Cell> cells_;
  std::string hash_;
};

/// A decision with its trials.
class StorableDecision {
 public:
  StorableDecision(const ConfigRow& row, std::span<const TrialRow> trials);
  /// In place of what the key had, trials included.
  void store(sqlite::Db& db) const;

 private:
  std::vector<Cell> cells_;
  std::vector<std::vector<Cell>> trials_;
  std::string hash_;
};

/// The row that `statement` stands on, selected by column_list(); or nothing, and why not in
/// `problem`.
template <class Row>
std::optional<Row> read_row(const sqlite::Statement& statement, const std::vector<Column>& columns,
                            std::string& problem) {
  const std::string hash = statement.type(0) == SQLITE_BLOB ? statement.blob(0) : std::string();
  std::vector<Cell> cells;
  cells.reserve(columns.size());
  int index = 0;
  for (const Column& column : columns) {
    cells.push_back(read_cell(statement, ++index, column, problem));
  }
  if (!problem.empty()) return std::nullopt;
  if (statement.integer(++index) != checksum(RowTable<Row>::kName, hash, cells)) {
    problem = "its checksum does not match";
    return std::nullopt;
  }
  std::optional<Row> row = from_cells<Row>(std::move(cells), problem);
  if constexpr (requires { RowTable<Row>::key(*row); }) {
    if (row && key_hash(RowTable<Row>::key(*row)) != hash) {
      problem = "its key's hash does not match";
      return std::nullopt;
    }
  }
  return row;
}

/// Whether a failed read tells of the file's content, so that other parts of it may still be good.
bool is_damage(const sqlite::Failure& failure);

/// Calls scan(forward) from the table's front and, where the table cannot be read on, from its end.
/// False when that happened.
template <class Scan>
bool read_from_both_ends(std::string_view table, Damage& damage, Scan&& scan) {
  for (const bool forward : {true, false}) {
    try {
      scan(forward);
      return forward;
    } catch (const sqlite::Failure& failure) {
      if (!is_damage(failure)) throw;
      if (forward) damage.add(str(table, ": cannot be read on: ", failure.what()));
    }
  }
  return false;
}

/// Reads a whole table in the order of its keys' hashes, calling take(row) or take(hash, row) for
/// each good row. Where the table cannot be read on, it is read from its other end too. False when
/// that happened.
template <class Row, class Take>
bool read_table(sqlite::Db& db, Damage& damage, Take&& take) {
  const std::vector<Column> columns = columns_of<Row>();
  const std::string table(RowTable<Row>::kName);
  std::string last;
  return read_from_both_ends(table, damage, [&](bool forward) {
    sqlite::Statement select(db, str("SELECT ", column_list<Row>(), " FROM ", table,
                                     " ORDER BY key_hash", forward ? "" : " DESC"));
    while (select.step()) {
      const std::string hash = select.blob(0);
      if (!forward && hash <= last) break;
      if (forward) last = hash;
      std::string problem;
      if (std::optional<Row> row = read_row<Row>(select, columns, problem)) {
        if constexpr (std::is_invocable_v<Take, const std::string&, Row>) {
          take(hash, *std::move(row));
        } else {
          take(*std::move(row));
        }
      } else {
        damage.add(str(table, " ", to_hex(hash), ": ", problem));
      }
    }
  });
}

/// The same for the trials of one decision; one may be taken twice where the table is damaged.
template <class Take>
void read_trials(sqlite::Db& db, const std::string& hash, Damage& damage, Take&& take) {
  const std::vector<Column> columns = columns_of<StoredTrial>();
  const std::string table(RowTable<StoredTrial>::kName);
  read_from_both_ends(table, damage, [&](bool forward) {
    sqlite::Statement select(db,
                             str("SELECT ", column_list<StoredTrial>(), " FROM ", table,
                                 " WHERE key_hash = ? ORDER BY position", forward ? "" : " DESC"));
    select.bind(1, std::as_bytes(std::span(hash)));
    while (select.step()) {
      std::string problem;
      std::optional<StoredTrial> trial = read_row<StoredTrial>(select, columns, problem);
      if (trial) {
        take(*std::move(trial));
      } else if (forward) {
        damage.add(str(table, " ", to_hex(hash), ": ", problem));
      }
    }
  });
}

}  // namespace attune
