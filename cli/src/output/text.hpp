// Text for people: what may be sent to a terminal, and how wide it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/count_text.hpp>

namespace attune::cli {

/// `text` with control characters written out ("\n", "\x1b"), so that a name in a file cannot steer
/// a terminal.
std::string printable(std::string_view text);

/// Columns that UTF-8 text takes, one a code point.
std::size_t display_width(std::string_view text);

/// `text` followed by, or for numbers after, as many spaces as fill `width` columns.
std::string pad_right(std::string_view text, std::size_t width);
std::string pad_left(std::string_view text, std::size_t width);

/// `text` cut to `width` columns, "..." at its end when something was cut off.
std::string shorten(std::string_view text, std::size_t width);

/// Lines of at most `width` columns, broken at spaces; a longer word stays whole.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// Four significant digits where that reads well, else scientific: "0.4123", "118.3", "52310",
/// "3.1e-06".
std::string number_text(double value);

/// "1.42x".
std::string ratio_text(double value);

/// "850 ms", "12 s", "3m10s", "2h05m".
std::string elapsed_text(double seconds);

/// Seconds since 1970 as "2026-11-20 14:03 UTC"; "" for 0.
std::string date_text(std::int64_t seconds);

/// How long ago: "12 s", "5 min", "3 h", "12 d".
std::string age_text(std::int64_t seconds_since_1970);

/// Lines as one: behind a colon the next goes on, others are parted by semicolons.
std::string in_one_line(std::string_view text);

/// The parts with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace attune::cli
