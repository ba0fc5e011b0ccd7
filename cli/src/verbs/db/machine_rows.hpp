// Which rows of a database are of use on this machine.
#pragma once

#include <cstdint>
#include <string>

#include "problems/command_context.hpp"
#include "verbs/db/row_check.hpp"

namespace attune::cli {

/// The device here whose class a row is for, or null.
const Device* device_of_class(const Registry& registry, const std::string& device_class);

/// Why a row is stale on a device that is here: RowChecker's reason, or another version of the
/// library or driver. "" when it is not, and for a row that cannot be used at all.
std::string why_stale_here(const Registry& registry, RowChecker& checker, const ConfigRow& row);

/// Each row is counted once, but for the stale ones, which are usable as well.
struct MachineRows {
  std::int64_t usable = 0;
  std::int64_t stale = 0;
  std::int64_t unusable = 0;   // for a device here, and of no kernel, or a config that does not fit
  std::int64_t elsewhere = 0;  // for devices that are not here

  void count(const Registry& registry, RowChecker& checker, const ConfigRow& row);
  /// "12 rows: 9 for this machine, 2 of them stale; 3 for other devices".
  std::string text() const;
};

}  // namespace attune::cli
