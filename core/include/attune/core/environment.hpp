// The ATTUNE_* environment variables: their names, what they do, and reading them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

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

/// Warns once about each ATTUNE_* variable that is set and that attune does not know (a typo, most
/// likely).
void warn_about_unknown_environment();

}  // namespace attune
