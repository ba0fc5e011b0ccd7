// Leases: which process tunes a key, so that others need not.
#pragma once

#include <cstdint>
#include <string>

#include "database/sqlite.hpp"

namespace attune {

/// Leases are short: what claims to last longer than this was not written by attune.
inline constexpr std::int64_t kLongestLeaseSeconds = 86400;

/// Takes or renews the lease for this process. False while another process has it that may still
/// live.
bool take_lease(sqlite::Db& db, const std::string& key_hash, std::int64_t seconds);

/// Gives it back, if this process has it.
void give_lease_back(sqlite::Db& db, const std::string& key_hash);

}  // namespace attune
