// Results as rows of named columns, and the one place that turns them into text: a table for
// people, json, jsonl, csv (RFC 4180) or markdown. Column names are the keys in every format and
// carry their units ("median_us").
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attune::cli {

enum class Format { kTable, kJson, kJsonl, kCsv, kMd };

/// Throws UsageError for a name that is none of the formats.
Format parse_format(std::string_view name);

/// How a cell stands out on a terminal.
enum class Tone { kPlain, kGood, kBad, kFaint };

/// One value: nothing (empty, or null in JSON), text, a whole number, a number, or yes/no.
class Cell {
 public:
  using Value = std::variant<std::monostate, std::string, std::int64_t, double, bool>;

  Cell() = default;
  // A cell stands for its value, so that a row is written as its values.
  // NOLINTBEGIN(google-explicit-constructor)
  Cell(std::string text, Tone tone = Tone::kPlain) : value_(std::move(text)), tone_(tone) {}
  Cell(std::string_view text, Tone tone = Tone::kPlain) : Cell(std::string(text), tone) {}
  Cell(const char* text, Tone tone = Tone::kPlain) : Cell(std::string(text), tone) {}
  Cell(double value) : value_(value) {}
  Cell(bool value) : value_(value) {}
  template <std::integral T>
  Cell(T value) : value_(static_cast<std::int64_t>(value)) {}
  // NOLINTEND(google-explicit-constructor)
  /// A time or a size that 0 means "none" for.
  static Cell unless_zero(double value) { return value == 0 ? Cell() : Cell(value); }

  const Value& value() const { return value_; }
  Tone tone() const { return tone_; }
  bool empty() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_number() const;

 private:
  Value value_;
  Tone tone_ = Tone::kPlain;
};

class Table {
 public:
  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  /// Throws std::logic_error when there is not one cell a column.
  Table& add(std::vector<Cell> row);

  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<std::vector<Cell>>& rows() const { return rows_; }
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// A table with its place in a document.
struct Section {
  std::string name;  // "" when the document has one section; else the rows' first column, "section"
  Table table;
  bool record = false;  // for people: one line a column instead of one a row
};
using Document = std::vector<Section>;

struct TextStyle {
  bool color = false;     // ANSI colours
  bool terminal = false;  // control characters are escaped in every format
  std::size_t width = 0;  // of the terminal: text that all rows share moves above a wider table
};

/// The whole document, ending in a newline unless it is empty.
std::string render(const Document& document, Format format, const TextStyle& style = {});

/// One cell as a table for people has it, without its tone.
std::string cell_text(const Cell& cell);

/// `text` in the colours of a tone, when `color`.
std::string toned(std::string_view text, Tone tone, bool color);

}  // namespace attune::cli
