// Tests that are the same at any length: short in CI, long by hand.
#pragma once

#include <cstdlib>
#include <string_view>

namespace attune::test {

/// `brief`, or `lengthy` where the environment says CAMPAIGN=long. bench/notes/campaigns.md
/// keeps what the long ones showed.
inline int campaign_length(int brief, int lengthy) {
  const char* wanted = std::getenv("CAMPAIGN");
  return wanted != nullptr && std::string_view(wanted) == "long" ? lengthy : brief;
}

}  // namespace attune::test
