// Named values as text: how configs and problems are written for people, files and the command
// line.
//
// One grammar: `name=value` pairs, joined by commas in configs ("tile_v=64,threads=2") and by
// spaces in problems ("B=1 T=512 H=16"). Names and values contain neither separators nor control
// characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

struct Param {
  std::string name;
  std::string value;
  friend bool operator==(const Param&, const Param&) = default;
};
using Params = std::vector<Param>;

/// "tile_v=64,threads=2"; `separator` is ',' or ' '.
std::string to_text(const Params& params, char separator = ',');

/// The reverse of to_text. Empty text gives no params. Throws InvalidArgument on a pair without
/// '=', an empty name or value, a control character, or a name that stands twice.
Params parse_params(std::string_view text, char separator = ',');

/// The value of `name`, or nullptr.
const std::string* find_param(const Params& params, std::string_view name);

/// A decimal integer, nothing before or after it. False when `text` is not one or does not fit.
bool parse_integer(std::string_view text, std::int64_t& value);

/// The entry of `known` nearest to `given` by edit distance, or "" when none is near enough to
/// suggest.
std::string nearest_name(std::string_view given, const std::vector<std::string>& known);

/// "; did you mean 'x'?" or "", to end a message with.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace attune
