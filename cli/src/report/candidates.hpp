// What a report says of one row: its provenance, the candidates of its tuning, and the commands
// that measure it again.
#pragma once

#include <string>

#include "report/report_rows.hpp"

namespace attune::cli {

/// Whether a row is stale or can never be used.
bool is_doubtful(const ReportRow& row);

/// Why a row is not to be relied on, for whoever only looks at it; "" when there is nothing.
std::string marks(const ReportRow& row);

/// Under the anchor "problem-ID", with a link to the row's line, "row-ID".
std::string problem_section(const ReportRow& row, Evidence& evidence);

}  // namespace attune::cli
