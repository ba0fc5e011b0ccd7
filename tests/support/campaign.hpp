// Tests that are the same at any length and from any seed: short and from 0 in CI, others by hand.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace attune::test {

/// Whether the environment says CAMPAIGN=long. bench/notes/campaigns.md keeps what long ones showed.
inline bool is_long_campaign() {
  const char* wanted = std::getenv("CAMPAIGN");
  return wanted != nullptr && std::string_view(wanted) == "long";
}
inline int campaign_length(int brief, int lengthy) { return is_long_campaign() ? lengthy : brief; }

/// The first seed of problems that are drawn: what the environment says in CAMPAIGN_SEED, or 0.
inline std::uint64_t campaign_seed() {
  const char* wanted = std::getenv("CAMPAIGN_SEED");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 0;
}

}  // namespace attune::test
