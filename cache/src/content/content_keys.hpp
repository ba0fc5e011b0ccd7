// What makes two rows of a content the same row.
#pragma once

#include <tuple>

#include <attune/cache/database_content.hpp>

namespace attune {

inline const RowKey& content_key(const StoredDecision& decision) { return decision.row.key; }
inline const RowKey& content_key(const PinRow& pin) { return pin.key; }
inline auto content_key(const QuarantineRow& row) {
  return std::tie(row.op, row.device_class, row.kernel, row.kernel_version, row.config,
                  row.problem);
}

}  // namespace attune
