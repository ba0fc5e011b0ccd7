// A report as one HTML page that needs no script, network or other file: a summary, then each class
// of devices with its speed-ups, its roofline, its rows, and for each row the candidates of its
// tuning and the commands that measure it again. A bar leads to its row, a row to its candidates.
#pragma once

#include <string>
#include <vector>

#include "report/report_rows.hpp"
#include "report/roofline.hpp"

namespace attune::cli {

struct ReportContent {
  std::vector<ReportDevice> devices;
  std::vector<std::string> here;  // this machine's devices, as text
  std::string rows_here;          // how many rows are for them
  std::int64_t bad_rows = 0;
  Ceilings ceilings;
};

/// What every report begins with, by which one is known.
inline constexpr std::string_view kReportTitle = "<title>attune report</title>";

/// The page is bounded: of thousands of rows it shows those that gained most, this machine's first.
std::string report_page(const ReportContent& content, Evidence& evidence);

}  // namespace attune::cli
