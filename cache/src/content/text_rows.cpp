#include "content/text_rows.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>

#include <attune/core/error.hpp>

#include "rows/row_tables.hpp"

namespace attune {
namespace {

/// The columns of a table in a text: those of the database, and for a trial its decision's key.
template <class Row>
void visit_text(Row& row, auto&& column) {
  if constexpr (std::is_same_v<std::remove_const_t<Row>, StoredTrial>) {
    visit_key(row.row.key, column);
  }
  RowTable<std::remove_const_t<Row>>::visit(row, column);
}

template <class Row>
TextRow text_row(const Row& row) {
  TextRow text{RowTable<Row>::kName, {}};
  visit_text(row, [&](const Column& column, const auto& value) {
    text.cells.emplace_back(column.name, to_cell(column, value));
  });
  return text;
}

template <class Row>
Row read_text_row(CellSource& source) {
  Row row;
  visit_text(row, [&](const Column& column, auto& value) {
    Cell cell = source.take(column);
    const std::string problem = violation(column, cell);
    if (!problem.empty()) throw InvalidArgument(problem);
    from_cell(column, cell, value);
  });
  source.finish();
  return row;
}

template <class Row>
void add_columns(std::vector<std::string_view>& columns) {
  const Row row;
  visit_text(row, [&](const Column& column, const auto&) {
    if (std::find(columns.begin(), columns.end(), column.name) == columns.end()) {
      columns.push_back(column.name);
    }
  });
}

std::string describe_key(const QuarantineRow& row) { return str(row.kernel, ' ', row.config); }
std::string describe_key(const auto& row) {
  return str(row.key.op, ' ', row.key.problem, " on ", row.key.device_class);
}

}  // namespace

std::vector<TextRow> rows_of(const DatabaseContent& content) {
  std::vector<TextRow> rows;
  for (const StoredDecision& decision : content.decisions) {
    rows.push_back(text_row(decision.row));
    std::int64_t position = 0;
    for (const TrialRow& trial : decision.trials) {
      StoredTrial stored{position++, trial};
      stored.row.key = decision.row.key;  // whatever its own, as in a database
      rows.push_back(text_row(stored));
    }
  }
  for (const PinRow& pin : content.pins) rows.push_back(text_row(pin));
  for (const QuarantineRow& row : content.quarantine) rows.push_back(text_row(row));
  return rows;
}

const std::vector<std::string_view>& text_columns() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> columns;
    add_columns<ConfigRow>(columns);
    add_columns<StoredTrial>(columns);
    add_columns<PinRow>(columns);
    add_columns<QuarantineRow>(columns);
    return columns;
  }();
  return all;
}

/// Throws InvalidArgument when a row of the same table has its key.
template <class Row>
Row ContentBuilder::read_once(CellSource& source) {
  auto row = read_text_row<Row>(source);
  constexpr std::string_view kTable = RowTable<Row>::kName;
  if (!keys_.insert(str(kTable, ' ', key_hash(RowTable<Row>::key(row)))).second) {
    throw InvalidArgument(str("two rows of ", kTable, " have the same key: ", describe_key(row)));
  }
  return row;
}

void ContentBuilder::add_trial(CellSource& row, std::size_t line) {
  auto stored = read_text_row<StoredTrial>(row);
  trials_.push_back({stored.position, std::move(stored.row), line});
}

void ContentBuilder::add(CellSource& row, std::size_t line) {
  const std::string table = row.table();
  if (table == RowTable<ConfigRow>::kName) {
    content_.decisions.push_back({read_once<ConfigRow>(row), {}});
  } else if (table == RowTable<StoredTrial>::kName) {
    add_trial(row, line);
  } else if (table == RowTable<PinRow>::kName) {
    content_.pins.push_back(read_once<PinRow>(row));
  } else if (table == RowTable<QuarantineRow>::kName) {
    content_.quarantine.push_back(read_once<QuarantineRow>(row));
  } else {
    throw InvalidArgument(
        str("table: '", storable(table, 64), "', expected decision, trial, pin or quarantine"));
  }
}

DatabaseContent ContentBuilder::finish(std::size_t& line) {
  content_.sort();
  std::stable_sort(trials_.begin(), trials_.end(), [](const Trial& a, const Trial& b) {
    return std::tie(a.row.key, a.position) < std::tie(b.row.key, b.position);
  });
  const Trial* previous = nullptr;
  for (Trial& trial : trials_) {
    const auto decision = std::lower_bound(
        content_.decisions.begin(), content_.decisions.end(), trial.row.key,
        [](const StoredDecision& d, const RowKey& key) { return d.row.key < key; });
    line = trial.line;
    if (decision == content_.decisions.end() || decision->row.key != trial.row.key) {
      throw InvalidArgument("a trial without its decision");
    }
    if (previous != nullptr && previous->row.key == trial.row.key &&
        previous->position == trial.position) {
      throw InvalidArgument(str("position: ", trial.position, " is given twice"));
    }
    decision->trials.push_back(trial.row);
    previous = &trial;
  }
  line = 0;
  return std::move(content_);
}

}  // namespace attune
