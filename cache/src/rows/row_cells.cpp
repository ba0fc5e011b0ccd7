#include "rows/row_cells.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <attune/core/error.hpp>

namespace attune {
namespace {

constexpr double kMaxFinite = 1e300;  // as the schema says

/// The bytes of the UTF-8 character at the start of `text`, or 0 when there is none: a stray or
/// missing byte, a surrogate, a longer form than needed, or beyond U+10FFFF.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  if (first < 0xc2U || first > 0xf4U) return 0;
  const std::size_t size = first < 0xe0U ? 2 : first < 0xf0U ? 3 : 4;
  if (text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  const bool legal = !(first == 0xe0U && second < 0xa0U) && !(first == 0xedU && second > 0x9fU) &&
                     !(first == 0xf0U && second < 0x90U) && !(first == 0xf4U && second > 0x8fU);
  return legal ? size : 0;
}

/// Of the whole character at the start of `text`: C0, DEL or C1 (U+0080 to U+009F).
bool is_control(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return true;
  return first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
}

std::string text_violation(std::string_view text, const Column& column) {
  const auto size = static_cast<std::int64_t>(text.size());
  if (size < column.least) return str(column.name, ": empty");
  if (size > column.most) {
    return str(column.name, ": ", size, " bytes, expected at most ", column.most);
  }
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return str(column.name, ": not UTF-8");
    if (is_control(text)) return str(column.name, ": a control character");
    text.remove_prefix(bytes);
  }
  return {};
}

std::string integer_violation(std::int64_t value, const Column& column) {
  if (value >= column.least && value <= column.most) return {};
  return str(column.name, ": ", value, ", expected ", column.least, " to ", column.most);
}

std::string real_violation(double value, const Column& column) {
  if (value >= 0 && (column.most != 0 || value <= kMaxFinite)) return {};
  return str(column.name, ": ", value, ", expected a number of at least 0",
             column.most == 0 ? ", finite" : "");
}

// Little-endian on disk and in checksums; attune runs on nothing else.
static_assert(std::endian::native == std::endian::little);

/// What is summed: each value as its type, its length and its bytes, one after the other.
class Summed {
 public:
  void add(char type, const void* bytes, std::uint64_t size) {
    text_ += type;
    text_.append(reinterpret_cast<const char*>(&size), sizeof size);  // any object is bytes
    text_.append(static_cast<const char*>(bytes), size);
  }
  std::int64_t sum() const {
    return std::bit_cast<std::int64_t>(XXH3_64bits(text_.data(), text_.size()));
  }

 private:
  std::string text_;
};

}  // namespace

std::string violation(const Column& column, const Cell& cell) {
  switch (column.kind) {
    case ColumnKind::kText:
      return text_violation(std::get<std::string>(cell), column);
    case ColumnKind::kInteger:
      return integer_violation(std::get<std::int64_t>(cell), column);
    case ColumnKind::kReal:
      return real_violation(std::get<double>(cell), column);
  }
  return {};
}

Cell read_cell(const sqlite::Statement& row, int index, const Column& column,
               std::string& problem) {
  const int type = row.type(index);
  if (column.kind == ColumnKind::kText && type == SQLITE_TEXT) return row.text(index);
  if (column.kind == ColumnKind::kInteger && type == SQLITE_INTEGER) return row.integer(index);
  if (column.kind == ColumnKind::kReal && type == SQLITE_FLOAT) return row.real(index);
  if (problem.empty()) problem = str(column.name, ": of another type");
  return {};
}

void bind_cell(sqlite::Statement& statement, int index, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) {
    statement.bind(index, std::string_view(*text));
  } else if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    statement.bind(index, *integer);
  } else {
    statement.bind(index, std::get<double>(cell));
  }
}

std::int64_t checksum(std::string_view table, std::string_view key_hash,
                      std::span<const Cell> cells) {
  Summed row;
  row.add('T', table.data(), table.size());
  row.add('B', key_hash.data(), key_hash.size());
  for (const Cell& cell : cells) {
    if (const auto* text = std::get_if<std::string>(&cell)) {
      row.add('T', text->data(), text->size());
    } else if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
      row.add('I', integer, sizeof *integer);
    } else {
      const double real = std::get<double>(cell) + 0.0;  // -0 and 0 are one value
      row.add('R', &real, sizeof real);
    }
  }
  return row.sum();
}

std::string key_hash(std::string_view canonical_text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(canonical_text.data(), canonical_text.size()));
  std::string bytes(sizeof canonical.digest, '\0');
  std::memcpy(bytes.data(), canonical.digest, bytes.size());
  return bytes;
}

std::string to_hex(std::string_view key_hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : key_hash.substr(0, 12)) {
    const auto byte = static_cast<unsigned char>(c);
    hex += {kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return hex;
}

std::string storable(std::string_view text, std::size_t most) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const bool good = bytes != 0 && !is_control(text);
    const std::string_view next = good ? text.substr(0, bytes) : std::string_view("?");
    if (result.size() + next.size() > most) break;
    result += next;
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return result;
}

}  // namespace attune
