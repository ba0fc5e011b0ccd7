// What agreement and tuning together say of a rank.
#pragma once

#include <string>
#include <vector>

#include <attune/cache/database_content.hpp>
#include <attune/distributed/agreement.hpp>

namespace attune::distributed {

/// All but rows that choices for the device follow from, a line each.
std::string identity_text(Context& context, const Device& device);

/// The rows, pins and quarantined candidates for a class of devices.
DatabaseContent rows_for(DatabaseContent content, const std::string& device_class);

/// As JSONL.
std::string text_of(const DatabaseContent& content);

/// The ranks' digests, by rank; there is at least one.
Agreement compare(std::vector<std::string> digests);

}  // namespace attune::distributed
