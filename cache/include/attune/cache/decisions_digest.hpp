// What databases decide, as 128 bits: equal digests mean equal choices for the same problems.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <attune/cache/config_row.hpp>

namespace attune {

/// XXH3, 128 bits, of a text as 32 hexadecimal digits: against accidents, not against people.
std::string text_digest(std::string_view text);

/// text_digest() over the decisions: each row's key, kernel, kernel version and config. The
/// order of the rows does not matter, nor does the evidence: times, dates, noise. At most one row a
/// key.
std::string decisions_digest(std::span<const ConfigRow> rows);

}  // namespace attune
