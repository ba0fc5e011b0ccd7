// What a report is of: stored decisions with what their ops know of the problems, whether they
// still hold, and the commands that measure them again.
#pragma once

#include <string>
#include <vector>

#include "problems/command_context.hpp"
#include "verbs/db/machine_rows.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {

struct ReportRow {
  StoredRow stored;
  std::string id;       // of its anchors; two rows of one key have two
  std::string problem;  // as a SPEC, where its op can read it
  double flops = 0;     // 0: not known
  double bytes = 0;
  bool unreadable = false;  // its op is registered, and cannot read the problem
  RowState state = RowState::kGood;
  std::string reason;                 // of a state that is not good
  std::vector<std::string> commands;  // that time its config anew, and search anew

  const ConfigRow& row() const { return stored.row; }
  const std::string& op() const { return row().key.op; }
  double speedup() const { return row().default_us / row().median_us; }
  std::string name() const { return op() + ' ' + problem; }
  /// The problem with D= for a K= and a V= that are the same.
  std::string label() const;
  /// The row in one line.
  std::string hover() const;
};

/// The rows of one class of devices.
struct ReportDevice {
  std::string device_class;
  std::string name;
  bool is_here = false;
  std::vector<ReportRow> rows;  // as listed: by op and problem, the user's first

  std::int64_t count(RowState state) const;
  /// Rows that tuning made 5 % faster.
  std::int64_t faster() const;
  /// The geometric mean of their speed-ups, and the greatest.
  double mean_speedup() const;
  double most_speedup() const;
};

/// By device, this machine's first, then those with most rows.
std::vector<ReportDevice> report_devices(const Invocation& call, const CommandContext& command,
                                         StoredRows stored);

/// Nothing where it is no text of parameters: another program may have written it.
Params readable_params(const std::string& text, char separator);

}  // namespace attune::cli
