// What the parts of the module share about contents.
#pragma once

#include <string>
#include <tuple>

#include <attune/cache/database_content.hpp>

namespace attune {

/// What makes two rows of a content the same row.
inline const RowKey& content_key(const StoredDecision& decision) { return decision.row.key; }
inline const RowKey& content_key(const PinRow& pin) { return pin.key; }
inline auto content_key(const QuarantineRow& row) {
  return std::tie(row.op, row.device_class, row.kernel, row.kernel_version, row.config,
                  row.problem);
}

/// A database as the bytes of its file. Throws InvalidArgument for a value that may not be stored.
std::string image_of(const DatabaseContent& content);

}  // namespace attune
