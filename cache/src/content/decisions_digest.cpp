#include <algorithm>
#include <vector>

#include <attune/cache/decisions_digest.hpp>
#include <attune/core/error.hpp>

#include "rows/row_cells.hpp"

namespace attune {
namespace {

/// No value holds a line feed: a database refuses control characters.
std::string line_of(const ConfigRow& row) {
  std::string line;
  for (const std::string* value : {&row.key.op, &row.key.device_class, &row.key.platform,
                                   &row.key.problem, &row.kernel, &row.config}) {
    line += *value;
    line += '\n';
  }
  return line + str(row.kernel_version) + '\n';
}

}  // namespace

std::string text_digest(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char byte : key_hash(text)) {
    digits += kDigits[static_cast<unsigned char>(byte) >> 4U];
    digits += kDigits[static_cast<unsigned char>(byte) & 15U];
  }
  return digits;
}

std::string decisions_digest(std::span<const ConfigRow> rows) {
  std::vector<std::string> lines;
  lines.reserve(rows.size());
  for (const ConfigRow& row : rows) lines.push_back(line_of(row));
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text_digest(text);
}

}  // namespace attune
