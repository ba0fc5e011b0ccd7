// Times as they are written on the command line: "500ms", "30s", "1.5m", "2h".
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace attune::cli {

/// Nothing when `text` is not a number with a unit, or not in (0, 30 days].
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// A finite number with nothing before or after it, whatever the locale. Nothing otherwise: "nan"
/// and "inf" are numbers to the standard library, and to no option of attune.
std::optional<double> parse_real(std::string_view text);

}  // namespace attune::cli
