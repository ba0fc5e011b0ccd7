// The ATTUNE_* environment variables: their names, what they do, and reading them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;
};

/// Every variable that attune reads.
std::span<const EnvironmentVariable> environment_variables();

/// The value of a variable listed above; nothing when it is unset or empty, or the process runs
/// setuid.
std::optional<std::string> read_environment(std::string_view name);

/// A variable that is set and called ATTUNE_..., but is not one of attune's: a typo, most likely.
struct UnknownVariable {
  std::string name;
  std::string value;
  std::string suggestion;  // "; did you mean 'ATTUNE_DB'?" or ""
};
std::vector<UnknownVariable> unknown_environment_variables();

/// Warns once about each of those, and about a value that is none of ATTUNE_LOG's.
void warn_about_unknown_environment();

}  // namespace attune
