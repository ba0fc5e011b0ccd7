// The tables of rows: each column is named once, beside the member it holds. Reading, writing,
// checks and checksums follow. The names and bounds repeat what the schema says in SQL, which is
// fixed by its version.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attune/cache/config_row.hpp>
#include <attune/core/error.hpp>

#include "rows/row_cells.hpp"

namespace attune {

inline constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kMaxPicoseconds = 1'000'000'000'000'000;  // 1000 s
inline constexpr std::size_t kMaxReasonBytes = 1024;

constexpr Column text(std::string_view name, std::int64_t least, std::int64_t most) {
  return {name, ColumnKind::kText, least, most};
}
constexpr Column count(std::string_view name, std::int64_t most = kMaxInteger) {
  return {name, ColumnKind::kInteger, 0, most};
}
constexpr Column finite(std::string_view name) { return {name, ColumnKind::kReal, 0, 0}; }
constexpr Column maybe_infinite(std::string_view name) { return {name, ColumnKind::kReal, 0, 1}; }

/// A time in picoseconds; the member is a double of microseconds.
constexpr Column picoseconds(std::string_view name, std::int64_t least) {
  return {name, ColumnKind::kInteger, least, kMaxPicoseconds};
}

inline Cell to_cell(const Column&, const std::string& value) { return value; }
inline Cell to_cell(const Column&, std::int64_t value) { return value; }
inline Cell to_cell(const Column&, NoiseGrade value) { return static_cast<std::int64_t>(value); }
inline Cell to_cell(const Column& column, double value) {
  if (column.kind == ColumnKind::kReal) return value;
  const double ps = value * 1e6;
  const bool fits = ps >= 0 && ps <= static_cast<double>(kMaxPicoseconds);
  return static_cast<std::int64_t>(fits ? std::llround(ps) : -1);
}

inline void from_cell(const Column&, Cell& cell, std::string& value) {
  value = std::move(std::get<std::string>(cell));
}
inline void from_cell(const Column&, const Cell& cell, std::int64_t& value) {
  value = std::get<std::int64_t>(cell);
}
inline void from_cell(const Column&, const Cell& cell, NoiseGrade& value) {
  value = static_cast<NoiseGrade>(std::get<std::int64_t>(cell));
}
inline void from_cell(const Column& column, const Cell& cell, double& value) {
  value = column.kind == ColumnKind::kReal
              ? std::get<double>(cell)
              : static_cast<double>(std::get<std::int64_t>(cell)) / 1e6;
}

/// A key as one text. Its parts hold no control characters, so none can pass for another.
inline std::string canonical_text(const RowKey& key) {
  return key.op + '\n' + key.device_class + '\n' + key.platform + '\n' + key.problem;
}

void visit_key(auto& key, auto&& column) {
  column(text("op", 1, 128), key.op);
  column(text("device_class", 1, 512), key.device_class);
  column(text("platform", 1, 64), key.platform);
  column(text("problem", 0, 2048), key.problem);
}

/// kName, visit(row, column) for each column between the key's hash and the checksum, and the
/// canonical text of the row's key where the row has one.
template <class Row>
struct RowTable;

template <>
struct RowTable<ConfigRow> {
  static constexpr std::string_view kName = "decision";
  static std::string key(const ConfigRow& row) { return canonical_text(row.key); }
  static void visit(auto& row, auto&& column) {
    visit_key(row.key, column);
    column(text("bucket", 0, 2048), row.bucket);
    column(text("kernel", 1, 256), row.kernel);
    column(count("kernel_version"), row.kernel_version);
    column(text("config", 0, 4096), row.config);
    column(picoseconds("median_ps", 1), row.median_us);
    column(picoseconds("default_ps", 1), row.default_us);
    column(text("default_config", 0, 4096), row.default_config);
    column(finite("spread"), row.spread);
    column(count("samples"), row.samples);
    column(finite("error"), row.error);
    column(count("candidates_tried"), row.candidates_tried);
    column(count("candidates_refused"), row.candidates_refused);
    column(count("noise", 2), row.noise);
    column(text("library_version", 0, 64), row.library_version);
    column(text("toolkit", 0, 256), row.toolkit);
    column(text("device_name", 0, 256), row.device_name);
    column(count("created"), row.created);
  }
};

/// A trial as it is stored: under its decision's hash and its position there. The key's text is not
/// repeated.
struct StoredTrial {
  std::int64_t position = 0;
  TrialRow row;
};

template <>
struct RowTable<StoredTrial> {
  static constexpr std::string_view kName = "trial";
  static void visit(auto& stored, auto&& column) {
    auto& row = stored.row;
    column(count("position"), stored.position);
    column(text("kernel", 1, 256), row.kernel);
    column(text("config", 0, 4096), row.config);
    column(text("outcome", 1, 32), row.outcome);
    column(text("reason", 0, kMaxReasonBytes), row.reason);
    column(picoseconds("median_ps", 0), row.median_us);
    column(count("samples"), row.samples);
    column(maybe_infinite("error"), row.error);
    column(count("created"), row.created);
  }
};

template <>
struct RowTable<PinRow> {
  static constexpr std::string_view kName = "pin";
  static std::string key(const PinRow& row) { return canonical_text(row.key); }
  static void visit(auto& row, auto&& column) {
    visit_key(row.key, column);
    column(text("kernel", 1, 256), row.kernel);
    column(text("config", 0, 4096), row.config);
    column(text("reason", 0, kMaxReasonBytes), row.reason);
    column(count("created"), row.created);
    column(count("expires"), row.expires);
  }
};

template <>
struct RowTable<QuarantineRow> {
  static constexpr std::string_view kName = "quarantine";
  static std::string key(const QuarantineRow& row) {
    return str(row.op, '\n', row.device_class, '\n', row.kernel, '\n', row.kernel_version, '\n',
               row.config, '\n', row.problem);
  }
  static void visit(auto& row, auto&& column) {
    column(text("op", 1, 128), row.op);
    column(text("device_class", 1, 512), row.device_class);
    column(text("kernel", 1, 256), row.kernel);
    column(count("kernel_version"), row.kernel_version);
    column(text("config", 0, 4096), row.config);
    column(text("problem", 0, 2048), row.problem);
    column(text("reason", 0, kMaxReasonBytes), row.reason);
    column(count("created"), row.created);
  }
};

template <class Row>
std::vector<Column> columns_of() {
  std::vector<Column> columns;
  const Row row;
  RowTable<Row>::visit(row, [&](const Column& column, const auto&) { columns.push_back(column); });
  return columns;
}

/// The row's cells. Throws InvalidArgument, naming the column, for a value that may not be stored.
template <class Row>
std::vector<Cell> to_cells(const Row& row) {
  std::vector<Cell> cells;
  RowTable<Row>::visit(row, [&](const Column& column, const auto& value) {
    cells.push_back(to_cell(column, value));
    const std::string problem = violation(column, cells.back());
    if (!problem.empty()) {
      throw InvalidArgument(str("row of ", RowTable<Row>::kName, ": ", problem));
    }
  });
  return cells;
}

/// The reverse, or why not in `problem`.
template <class Row>
std::optional<Row> from_cells(std::vector<Cell> cells, std::string& problem) {
  Row row;
  std::size_t index = 0;
  RowTable<Row>::visit(row, [&](const Column& column, auto& value) {
    Cell& cell = cells[index++];
    if (problem.empty()) problem = violation(column, cell);
    if (problem.empty()) from_cell(column, cell, value);
  });
  return problem.empty() ? std::optional<Row>(std::move(row)) : std::nullopt;
}

}  // namespace attune
