// Cells, the values of columns: checks, checksums and hashes of rows, the same for every table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "database/sqlite.hpp"

namespace attune {

enum class ColumnKind { kText, kInteger, kReal };

/// One column: its name, and what a value may be. `least` and `most` bound a text's bytes or an
/// integer; a real is at least 0 and a number, and finite when `most` is 0.
struct Column {
  std::string_view name;
  ColumnKind kind = ColumnKind::kInteger;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// A value as it is stored. The alternatives stand in the order of ColumnKind.
using Cell = std::variant<std::string, std::int64_t, double>;

/// Why `cell` is not a legal value of `column`, or "".
std::string violation(const Column& column, const Cell& cell);

/// Column `index` of the current row, or a violation's text in `problem` when it is of another
/// type.
Cell read_cell(const sqlite::Statement& row, int index, const Column& column, std::string& problem);

void bind_cell(sqlite::Statement& statement, int index, const Cell& cell);

/// The checksum of a row: XXH3, 64 bits, over the table's name, the key's hash and all cells, each
/// with its type and length.
std::int64_t checksum(std::string_view table, std::string_view key_hash,
                      std::span<const Cell> cells);

/// The 16 bytes that stand for a canonical key text: XXH3, 128 bits, big-endian.
std::string key_hash(std::string_view canonical_text);

/// The first 12 bytes in hexadecimal, for messages; what a bad row holds is not to be printed.
std::string to_hex(std::string_view key_hash);

/// Free text made storable: control characters and bytes that are not UTF-8 become '?', and it ends
/// after `most` bytes at the latest.
std::string storable(std::string_view text, std::size_t most);

}  // namespace attune
