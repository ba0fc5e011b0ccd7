#include "output/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <ctime>

#include <attune/core/error.hpp>

namespace attune::cli {
namespace {

bool continues_code_point(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

void append_escape(std::string& out, unsigned char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else {
    out += "\\x";
    out += kDigits[c >> 4U];
    out += kDigits[c & 15U];
  }
}

std::string fixed(double value, int decimals) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::fixed, decimals);
  return error == std::errc() ? std::string(buffer.data(), end) : "?";
}

std::string two_digits(std::int64_t value) { return str(value < 10 ? "0" : "", value); }

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 .. U+009F are control characters too; in UTF-8 they are c2 80 .. c2 9f.
    const bool c1 =
        c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || c1) {
      append_escape(out, c);
      if (c1) append_escape(out, static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string in_one_line(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string_view::npos) continue;
    if (!out.empty()) out += out.back() == ':' ? " " : "; ";
    out += line.substr(first);
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += continues_code_point(c) ? 0 : 1;
  return width;
}

std::string pad_right(std::string_view text, std::size_t width) {
  std::string out(text);
  const std::size_t used = display_width(text);
  if (used < width) out.append(width - used, ' ');
  return out;
}

std::string pad_left(std::string_view text, std::size_t width) {
  const std::size_t used = display_width(text);
  return std::string(used < width ? width - used : 0, ' ') + std::string(text);
}

std::string shorten(std::string_view text, std::size_t width) {
  constexpr std::size_t kDots = 3;
  if (display_width(text) <= width) return std::string(text);
  if (width <= kDots) return std::string(width, '.');
  std::size_t end = 0;
  for (std::size_t columns = 0; end < text.size(); ++end) {
    if (!continues_code_point(text[end]) && columns++ == width - kDots) break;
  }
  return std::string(text.substr(0, end)) + "...";
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-2 || size >= 1e9) {
    std::array<char, 64> buffer{};
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                            std::chars_format::scientific, 1);
    return error == std::errc() ? std::string(buffer.data(), end) : "?";
  }
  const int exponent = static_cast<int>(std::floor(std::log10(size)));
  return fixed(value, std::max(0, 3 - exponent));
}

std::string ratio_text(double value) {
  return (value < 100 ? fixed(value, 2) : fixed(value, 0)) + "x";
}

std::string elapsed_text(double seconds) {
  if (seconds < 1) return fixed(seconds * 1000, 0) + " ms";
  if (seconds < 10) return fixed(seconds, 1) + " s";
  if (seconds < 60) return fixed(seconds, 0) + " s";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return str(whole / 60, "m", two_digits(whole % 60), "s");
  return str(whole / 3600, "h", two_digits(whole / 60 % 60), "m");
}

std::string date_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (seconds == 0 || ::gmtime_r(&time, &parts) == nullptr) return "";
  return str(parts.tm_year + 1900, '-', two_digits(parts.tm_mon + 1), '-',
             two_digits(parts.tm_mday), ' ', two_digits(parts.tm_hour), ':',
             two_digits(parts.tm_min), " UTC");
}

std::string age_text(std::int64_t seconds_since_1970) {
  constexpr std::int64_t kHour = 3600;
  constexpr std::int64_t kDay = 24 * kHour;
  const std::int64_t age = std::max<std::int64_t>(0, std::time(nullptr) - seconds_since_1970);
  if (age < 60) return str(age, " s");
  if (age < kHour) return str(age / 60, " min");
  if (age < 2 * kDay) return str(age / kHour, " h");
  return str(age / kDay, " d");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

}  // namespace attune::cli
