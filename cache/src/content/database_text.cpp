#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <set>

#include <attune_json/strict_json.hpp>

#include <attune/cache/database_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/core/text_lines.hpp>

#include "content/text_rows.hpp"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxLineBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;

Json json_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return *integer;
  const double real = std::get<double>(cell);
  return std::isfinite(real) ? Json(real) : Json("inf");
}

std::string csv_of(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  if (text == nullptr) {
    const Json value = json_of(cell);
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (text->find_first_of(",\"\r\n") == std::string::npos) return *text;
  std::string quoted = "\"";
  for (const char c : *text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

/// A row of JSONL: an object of texts and numbers.
class JsonCells final : public CellSource {
 public:
  explicit JsonCells(const std::string& line) {
    try {
      object_ = parse_strict_json<Json>(line, 1);
    } catch (const JsonRefused& refused) {
      switch (refused.why) {
        case JsonRefused::Why::kNotJson:
          throw InvalidArgument(str("not JSON: ", refused.what()));
        case JsonRefused::Why::kNameTwice:
          throw InvalidArgument(str(refused.name, ": is given twice"));
        case JsonRefused::Why::kTooDeep:
          throw InvalidArgument("expected texts and numbers only");
      }
    }
    if (!object_.is_object()) throw InvalidArgument("expected a JSON object");
  }

  std::string table() override {
    const Json value = take("table");
    if (!value.is_string()) throw InvalidArgument("table: expected a string");
    return value.get<std::string>();
  }

  Cell take(const Column& column) override {
    const Json value = take(column.name);
    switch (column.kind) {
      case ColumnKind::kText:
        if (value.is_string()) return value.get<std::string>();
        break;
      case ColumnKind::kInteger:
        if (value.is_number_integer() &&
            (!value.is_number_unsigned() ||
             value.get<std::uint64_t>() <=
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))) {
          return value.get<std::int64_t>();
        }
        break;
      case ColumnKind::kReal:
        if (value.is_number()) return value.get<double>();
        if (value == "inf") return std::numeric_limits<double>::infinity();
        break;
    }
    throw InvalidArgument(str(column.name, ": of another type"));
  }

  void finish() override {
    if (!object_.empty()) throw InvalidArgument(str(object_.begin().key(), ": no such column"));
  }

 private:
  Json take(std::string_view name) {
    const auto found = object_.find(name);
    if (found == object_.end()) throw InvalidArgument(str(name, ": is missing"));
    Json value = *found;
    object_.erase(found);
    return value;
  }
  Json object_;
};

/// The fields of one line of CSV.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields;
  for (;;) {
    std::string field;
    if (line.starts_with('"')) {
      line.remove_prefix(1);
      for (;;) {
        const std::size_t quote = line.find('"');
        if (quote == std::string_view::npos) throw InvalidArgument("a quote is not closed");
        field += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (!line.starts_with('"')) break;
        field += '"';
        line.remove_prefix(1);
      }
      if (!line.empty() && line[0] != ',') throw InvalidArgument("text after a closing quote");
    } else {
      field = line.substr(0, line.find(','));
      if (field.find('"') != std::string::npos) throw InvalidArgument("a quote within a field");
      line.remove_prefix(field.size());
    }
    fields.push_back(std::move(field));
    if (line.empty()) return fields;
    line.remove_prefix(1);
  }
}

/// A row of CSV: what stands below each name of the header.
class CsvCells final : public CellSource {
 public:
  CsvCells(const std::vector<std::string>& header, std::vector<std::string> fields) {
    if (fields.size() != header.size()) {
      throw InvalidArgument(str(fields.size(), " fields, expected ", header.size()));
    }
    for (std::size_t i = 0; i < header.size(); ++i) cells_[header[i]] = std::move(fields[i]);
  }

  std::string table() override { return take("table"); }

  Cell take(const Column& column) override {
    std::string text = take(column.name);
    if (column.kind == ColumnKind::kText) return text;
    if (column.kind == ColumnKind::kInteger) {
      std::int64_t value = 0;
      if (parse_integer(text, value)) return value;
      throw InvalidArgument(str(column.name, ": expected a whole number"));
    }
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    throw InvalidArgument(str(column.name, ": expected a number"));
  }

  void finish() override {
    for (const auto& [name, text] : cells_) {
      if (!text.empty()) throw InvalidArgument(str(name, ": the row's table has no such column"));
    }
  }

 private:
  std::string take(std::string_view name) {
    const auto found = cells_.find(name);
    if (found == cells_.end()) throw InvalidArgument(str(name, ": the header has no such column"));
    std::string text = std::move(found->second);
    cells_.erase(found);
    return text;
  }
  std::map<std::string, std::string, std::less<>> cells_;
};

std::vector<std::string> csv_header(const std::string& line) {
  std::vector<std::string> header = csv_fields(line);
  std::set<std::string_view> names;
  for (const std::string& name : header) {
    const auto& known = text_columns();
    if (name != "table" && std::find(known.begin(), known.end(), name) == known.end()) {
      throw InvalidArgument(str("header: no column '", name, "'"));
    }
    if (!names.insert(name).second) throw InvalidArgument(str("header: '", name, "' stands twice"));
  }
  return header;
}

/// Reads rows until the end; `line` is that of the row which is wrong, or 0 when it is the whole.
DatabaseContent read_rows(std::istream& in, DatabaseFormat format, std::size_t& line) {
  TextLines lines(in, kMaxLineBytes, kMaxTextBytes);
  ContentBuilder builder;
  std::optional<std::vector<std::string>> header;
  std::string text;
  for (line = 1; lines.next(text); line = lines.number() + 1) {
    if (text.empty()) continue;
    if (format == DatabaseFormat::kJsonl) {
      if (text.starts_with('#')) continue;
      JsonCells cells(text);
      builder.add(cells, line);
    } else if (!header) {
      header = csv_header(text);
    } else {
      CsvCells cells(*header, csv_fields(text));
      builder.add(cells, line);
    }
  }
  return builder.finish(line);
}

}  // namespace

void write_database_text(const DatabaseContent& content, DatabaseFormat format, std::ostream& out) {
  const std::vector<TextRow> rows = rows_of(content);
  if (format == DatabaseFormat::kJsonl) {
    for (const TextRow& row : rows) {
      Json object = {{"table", row.table}};
      for (const auto& [name, cell] : row.cells) object[std::string(name)] = json_of(cell);
      out << object.dump() << '\n';
    }
    return;
  }
  out << "table";
  for (const std::string_view name : text_columns()) out << ',' << name;
  out << "\r\n";
  for (const TextRow& row : rows) {
    std::map<std::string_view, const Cell*> cells;
    for (const auto& [name, cell] : row.cells) cells[name] = &cell;
    out << row.table;
    for (const std::string_view name : text_columns()) {
      const auto found = cells.find(name);
      out << ',' << (found == cells.end() ? "" : csv_of(*found->second));
    }
    out << "\r\n";
  }
}

DatabaseContent read_database_text(std::istream& in, DatabaseFormat format,
                                   const std::string& source) {
  std::size_t line = 0;
  try {
    return read_rows(in, format, line);
  } catch (const InvalidArgument& error) {
    throw CacheError(str(source, line > 0 ? str(':', line) : "", ": ", error.what()));
  }
}

}  // namespace attune
