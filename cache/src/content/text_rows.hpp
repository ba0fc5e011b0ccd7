// One row of a text database: named cells, whatever the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <attune/cache/database_content.hpp>

#include "rows/row_cells.hpp"

namespace attune {

/// A row to be written.
struct TextRow {
  std::string_view table;
  std::vector<std::pair<std::string_view, Cell>> cells;  // in the order of columns
};

/// All rows of a content in the order of a text.
std::vector<TextRow> rows_of(const DatabaseContent& content);

/// The columns of all tables, each once.
const std::vector<std::string_view>& text_columns();

/// A row that was read, from which the cells are taken column by column.
class CellSource {
 public:
  virtual ~CellSource() = default;
  /// The name of the table.
  virtual std::string table() = 0;
  /// The column's value, of the column's type. Throws InvalidArgument when there is none.
  virtual Cell take(const Column& column) = 0;
  /// Throws InvalidArgument when the row has more cells than were taken.
  virtual void finish() = 0;
};

/// Puts rows together, in any order of tables. add() throws InvalidArgument for a row that may not
/// be stored or repeats a key.
class ContentBuilder {
 public:
  void add(CellSource& row, std::size_t line);
  /// Throws InvalidArgument with the line of a trial that has no decision, and sets `line` to it.
  DatabaseContent finish(std::size_t& line);

 private:
  struct Trial {
    std::int64_t position;
    TrialRow row;
    std::size_t line;
  };
  template <class Row>
  Row read_once(CellSource& row);
  void add_trial(CellSource& row, std::size_t line);

  DatabaseContent content_;
  std::set<std::string> keys_;  // of the rows so far, with their table's name
  std::vector<Trial> trials_;
};

}  // namespace attune
