// Whether what is stored still means something: its op and kernel are there, and its config is one
// of the kernel's and fits the problem on that class of devices, be one here or not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <attune/cache/config_row.hpp>
#include <attune/core/registry.hpp>

#include "output/table.hpp"

namespace attune::cli {

enum class RowState {
  kGood,
  kStale,    // of another version of its kernel; used while it fits, and to be tuned again
  kUnknown,  // of an op, a kernel or a device class that is not loaded: a plugin's, or a newer
             // build's
  kInvalid,  // can never be used
};
std::string_view to_string(RowState state);  // "ok", "stale", "unknown", "invalid"
Tone tone_of(RowState state);

struct RowVerdict {
  RowState state = RowState::kGood;
  std::string reason;  // "" when good
};

class RowChecker {
 public:
  explicit RowChecker(const Registry& registry) : registry_(registry) {}

  RowVerdict check(const ConfigRow& row);
  RowVerdict check(const PinRow& pin);

 private:
  RowVerdict check_config(const RowKey& key, const std::string& kernel, const std::string& config);
  const DeviceInfo* device_of(const std::string& device_class);

  const Registry& registry_;
  std::map<std::string, std::optional<DeviceInfo>> devices_;
};

}  // namespace attune::cli
