// What the databases in effect hold, for listings.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

struct StoredRow {
  Layer layer = Layer::kUser;
  std::string path;
  ConfigRow row;
};

struct StoredRows {
  std::vector<StoredRow> rows;  // by op, problem and device class, the user's first
  std::int64_t bad_rows = 0;
};

/// The rows of `files`, or of all databases in effect when there are none. Throws CacheError for a
/// file that was named and cannot be read.
StoredRows stored_rows(const CommandContext& command, std::span<const std::string> files);

/// Twelve hexadecimal digits that stand for a row's key.
std::string key_id(const RowKey& key);

/// The row's problem as a short SPEC where its op is registered, else as it is stored.
std::string problem_text_of(const CommandContext& command, const RowKey& key);

/// The candidates behind stored rows. Each database is opened once.
class Evidence {
 public:
  /// Those of a row's tuning that can be read: timed ones first, fastest first.
  std::vector<TrialRow> trials_of(const StoredRow& row);
  /// Those of the row that the persistent tier has for the target, if it has one.
  std::vector<TrialRow> trials_of(const CommandContext& command, const Target& target);

  /// Says what of the trials that were asked for cannot be read.
  void note_damage(const Invocation& call) const;

 private:
  std::map<std::string, ConfigDatabase> files_;
  std::map<std::string, std::vector<std::string>> damage_;  // by file
};

}  // namespace attune::cli
