#include "output/table.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include <attune/core/params.hpp>

#include "output/text.hpp"
#include "program/exit_code.hpp"

namespace attune::cli {

Format parse_format(std::string_view name) {
  const std::vector<std::string> names{"table", "json", "jsonl", "csv", "md"};
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw UsageError(
        str("-o '", name, "': expected ", join(names, ", "), did_you_mean(name, names)));
  }
  return static_cast<Format>(found - names.begin());
}

bool Cell::is_number() const {
  return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<double>(value_);
}

Table& Table::add(std::vector<Cell> row) {
  if (row.size() != columns_.size()) {
    throw std::logic_error(
        str("a row of ", row.size(), " cells in a table of ", columns_.size(), " columns"));
  }
  rows_.push_back(std::move(row));
  return *this;
}

std::string cell_text(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell.value())) return printable(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&cell.value())) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&cell.value())) return number_text(*real);
  if (const auto* flag = std::get_if<bool>(&cell.value())) return *flag ? "yes" : "no";
  return "";
}

std::string toned(std::string_view text, Tone tone, bool color) {
  std::string_view code;
  if (tone == Tone::kGood) code = "\x1b[32m";
  if (tone == Tone::kBad) code = "\x1b[31m";
  if (tone == Tone::kFaint) code = "\x1b[2m";
  if (!color || code.empty()) return std::string(text);
  return str(code, text, "\x1b[0m");
}

namespace {

using Json = nlohmann::ordered_json;

bool has_sections(const Document& document) {
  return document.size() > 1 || (document.size() == 1 && !document[0].name.empty());
}

/// Whether the column is set right: it has a number and nothing but numbers.
bool is_numeric(const Table& table, std::size_t column) {
  bool any = false;
  for (const auto& row : table.rows()) {
    if (!row[column].empty() && !row[column].is_number()) return false;
    any = any || row[column].is_number();
  }
  return any;
}

std::string bold(std::string_view text, bool color) {
  return color ? str("\x1b[1m", text, "\x1b[0m") : std::string(text);
}

void trim_right(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

/// The columns a row takes when it is written with two spaces between cells.
std::size_t natural_width(const std::vector<std::size_t>& widths) {
  std::size_t width = 0;
  for (const std::size_t one : widths) width += one + 2;
  return width;
}

std::vector<std::size_t> column_widths(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns().size(); ++c) {
    std::size_t width = display_width(table.columns()[c]);
    for (const auto& row : table.rows()) width = std::max(width, display_width(cell_text(row[c])));
    widths.push_back(width);
  }
  return widths;
}

/// Whether all rows, of several, have the same text in the column.
bool is_shared(const Table& table, std::size_t column) {
  if (table.rows().size() < 2 || is_numeric(table, column)) return false;
  const std::string first = cell_text(table.rows().front()[column]);
  return std::all_of(table.rows().begin(), table.rows().end(),
                     [&](const auto& row) { return cell_text(row[column]) == first; });
}

std::string rows_text(const Table& table, const TextStyle& style) {
  const std::vector<std::size_t> widths = column_widths(table);
  const bool too_wide = style.width > 0 && natural_width(widths) > style.width;
  std::vector<bool> numeric;
  std::vector<std::size_t> shown;
  std::string out;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    numeric.push_back(is_numeric(table, c));
    if (!too_wide || !is_shared(table, c)) {
      shown.push_back(c);
    } else if (const std::string text = cell_text(table.rows().front()[c]); !text.empty()) {
      out += bold(table.columns()[c], style.color) + "  " + text + '\n';
    }
  }
  const auto add_line = [&](auto&& text_of, auto&& paint) {
    std::string line;
    for (const std::size_t c : shown) {
      if (c != shown.front()) line += "  ";
      const std::string text = text_of(c);
      line += paint(c, numeric[c] ? pad_left(text, widths[c]) : pad_right(text, widths[c]));
    }
    trim_right(line);
    out += line + '\n';
  };
  add_line([&](std::size_t c) { return table.columns()[c]; },
           [&](std::size_t, const std::string& text) { return bold(text, style.color); });
  for (const auto& row : table.rows()) {
    add_line([&](std::size_t c) { return cell_text(row[c]); },
             [&](std::size_t c, const std::string& text) {
               return toned(text, row[c].tone(), style.color);
             });
  }
  return out;
}

std::string record_text(const Table& table, const TextStyle& style) {
  std::size_t width = 0;
  for (const std::string& column : table.columns()) width = std::max(width, display_width(column));
  std::string out;
  for (const auto& row : table.rows()) {
    if (!out.empty()) out += '\n';
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c].empty()) continue;
      out += bold(pad_right(table.columns()[c], width), style.color) + "  " +
             toned(cell_text(row[c]), row[c].tone(), style.color) + '\n';
    }
  }
  return out;
}

std::string table_text(const Document& document, const TextStyle& style) {
  std::string out;
  for (const Section& section : document) {
    if (!out.empty()) out += '\n';
    if (!section.name.empty()) out += bold(section.name, style.color) + '\n';
    out += section.record ? record_text(section.table, style) : rows_text(section.table, style);
  }
  return out;
}

Json json_value(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
          return nullptr;
        } else {
          return value;
        }
      },
      cell.value());
}

/// The rows of all sections as objects, one line each.
std::vector<std::string> json_lines(const Document& document) {
  std::vector<std::string> lines;
  for (const Section& section : document) {
    for (const auto& row : section.table.rows()) {
      Json object = Json::object();
      if (has_sections(document)) object["section"] = section.name;
      for (std::size_t c = 0; c < row.size(); ++c)
        object[section.table.columns()[c]] = json_value(row[c]);
      // Replaced rather than thrown: a name in a file need not be UTF-8.
      lines.push_back(object.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  return lines;
}

std::string json_text(const Document& document) {
  std::string out = "[";
  for (const std::string& line : json_lines(document))
    out += str(out.size() == 1 ? "\n  " : ",\n  ", line);
  return out + (out.size() == 1 ? "]\n" : "\n]\n");
}

std::string jsonl_text(const Document& document) {
  std::string out;
  for (const std::string& line : json_lines(document)) out += line + '\n';
  return out;
}

std::string csv_field(std::string text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_cell(const Cell& cell, bool terminal) {
  if (const auto* text = std::get_if<std::string>(&cell.value())) {
    return csv_field(terminal ? printable(*text) : *text);
  }
  const auto* real = std::get_if<double>(&cell.value());
  return real != nullptr && std::isfinite(*real) ? Json(*real).dump() : cell_text(cell);
}

/// One header for all sections: the union of their columns.
std::string csv_text(const Document& document, bool terminal) {
  std::vector<std::string> columns;
  for (const Section& section : document) {
    for (const std::string& column : section.table.columns()) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end())
        columns.push_back(column);
    }
  }
  const bool sections = has_sections(document);
  std::string out = sections ? "section" : "";
  for (std::size_t c = 0; c < columns.size(); ++c) {
    out += str(c != 0 || sections ? "," : "", csv_field(columns[c]));
  }
  out += "\r\n";
  for (const Section& section : document) {
    const auto& own = section.table.columns();
    for (const auto& row : section.table.rows()) {
      std::string line = sections ? csv_field(section.name) : "";
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const auto found = std::find(own.begin(), own.end(), columns[c]);
        if (c != 0 || sections) line += ',';
        if (found != own.end())
          line += csv_cell(row[static_cast<std::size_t>(found - own.begin())], terminal);
      }
      out += line + "\r\n";
    }
  }
  return out;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Text as Markdown that shows that very text: nothing of it is markup, or HTML. Underscores within
/// a name are none, and stay.
std::string md_field(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool within_a_name =
        c == '_' && i > 0 && i + 1 < text.size() && is_word(text[i - 1]) && is_word(text[i + 1]);
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      constexpr std::string_view kMarkup = "\\|`*_[]~";
      if (kMarkup.find(c) != std::string_view::npos && !within_a_name) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string md_text(const Document& document) {
  std::string out;
  for (const Section& section : document) {
    const Table& table = section.table;
    if (!out.empty()) out += '\n';
    if (!section.name.empty()) out += "### " + md_field(section.name) + "\n\n";
    out += '|';
    for (const std::string& column : table.columns()) out += ' ' + md_field(column) + " |";
    out += "\n|";
    for (std::size_t c = 0; c < table.columns().size(); ++c)
      out += is_numeric(table, c) ? "---:|" : "---|";
    for (const auto& row : table.rows()) {
      out += "\n|";
      for (const Cell& cell : row) out += ' ' + md_field(cell_text(cell)) + " |";
    }
    out += '\n';
  }
  return out;
}

}  // namespace

std::string render(const Document& document, Format format, const TextStyle& style) {
  switch (format) {
    case Format::kTable:
      return table_text(document, style);
    case Format::kJson:
      return json_text(document);
    case Format::kJsonl:
      return jsonl_text(document);
    case Format::kCsv:
      return csv_text(document, style.terminal);
    case Format::kMd:
      return md_text(document);
  }
  return "";
}

}  // namespace attune::cli
