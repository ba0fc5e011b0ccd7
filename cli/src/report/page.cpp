#include "report/page.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <attune/core/version.hpp>

#include "output/text.hpp"
#include "report/candidates.hpp"
#include "report/html.hpp"

namespace attune::cli {
namespace {

constexpr std::size_t kMostRows = 500;    // of all devices
constexpr std::size_t kMostBars = 30;     // of a device
constexpr std::size_t kMostDevices = 50;  // in the summary

using Rows = std::vector<const ReportRow*>;

// ---- tables that are lists of records on a narrow screen, and can be sorted ----

struct Column {
  std::string_view name;
  bool is_number = false;
};

std::string open_table(std::string_view kind, const std::vector<Column>& columns) {
  std::string html = str("<table class=\"", kind, "\"><thead><tr>");
  for (const Column& column : columns) {
    html += str("<th", column.is_number ? " class=\"number\"" : "", ">", column.name, "</th>");
  }
  return html + "</tr></thead><tbody>\n";
}

constexpr std::string_view kEndOfTable = "</tbody></table>\n";

/// A cell that sorts by `key`.
std::string cell(std::string_view of, std::string_view kind, const std::string& key,
                 const std::string& html) {
  return str("<td class=\"", kind, "\" data-of=\"", of, "\" data-key=\"", escaped(key), "\">", html,
             "</td>");
}

std::string number_cell(std::string_view of, double value, const std::string& text) {
  return cell(of, "number", str(value), text);
}

// ---- the summary ----

std::string device_anchor(std::size_t number) { return str("device", number + 1); }

std::string summary_table(const std::vector<ReportDevice>& devices) {
  std::string html = open_table("records", {{"device"},
                                            {"problems", true},
                                            {"5 % faster", true},
                                            {"mean", true},
                                            {"most", true},
                                            {"stale", true},
                                            {"invalid", true}});
  for (std::size_t i = 0; i < std::min(devices.size(), kMostDevices); ++i) {
    const ReportDevice& device = devices[i];
    const auto count = [](std::string_view of, std::int64_t value) {
      return number_cell(of, static_cast<double>(value), str(value));
    };
    html += str(
        "<tr>",
        cell("device", "", device.name,
             two_lines(link(device_anchor(i), escaped(device.name)) +
                           (device.is_here ? "<span class=\"mark here\">this machine</span>" : ""),
                       escaped(device.device_class))),
        count("problems", static_cast<std::int64_t>(device.rows.size())),
        count("5 % faster", device.faster()),
        number_cell("mean", device.mean_speedup(), ratio_text(device.mean_speedup())),
        number_cell("most", device.most_speedup(), ratio_text(device.most_speedup())),
        count("stale", device.count(RowState::kStale)),
        count("invalid", device.count(RowState::kInvalid)), "</tr>\n");
  }
  html += kEndOfTable;
  if (devices.size() > kMostDevices)
    html += note(str("and ", devices.size() - kMostDevices, " more classes of devices"));
  return html;
}

std::string summary(const ReportContent& content) {
  std::size_t rows = 0;
  for (const ReportDevice& device : content.devices) rows += device.rows.size();
  std::string html = "<header id=\"top\">\n<h1>attune report</h1>\n";
  std::string first = str("attune ", kVersion, "; ", count_text(rows, "tuned problem"));
  if (content.bad_rows > 0)
    first += str(", ", count_text(content.bad_rows, "damaged row"), " left out");
  html += note(first);
  for (const std::string& device : content.here)
    html += note("This machine: " + escaped(device) + ".");
  html += note(escaped(content.rows_here) + ".");
  return html + summary_table(content.devices) + "</header>\n";
}

// ---- the charts ----

/// Those that gained most, at most `most`, by op.
Rows gained_most(const Rows& rows, std::size_t most) {
  Rows fastest = rows;
  std::ranges::stable_sort(fastest, std::greater(), &ReportRow::speedup);
  fastest.resize(std::min(fastest.size(), most));
  std::ranges::stable_sort(fastest, std::less(), &ReportRow::op);
  return fastest;
}

std::string bar(const ReportRow& row, double share) {
  return str("<a class=\"bar", is_doubtful(row) ? " doubtful" : "", "\" href=\"#row-", row.id,
             "\" title=\"", escaped(row.hover()), "\"><span class=\"name\">", escaped(row.label()),
             marks(row), "</span><span class=\"track\"><span class=\"fill\" style=\"width:",
             std::round(1000 * share) / 10, "%\"></span></span><span class=\"value\">",
             ratio_text(row.speedup()), "</span></a>\n");
}

/// The speed-up of an op's longest bar.
double longest_bar(const Rows& rows, std::string_view op) {
  double most = 1.1;
  for (const ReportRow* row : rows) {
    if (row->op() == op) most = std::max(most, row->speedup());
  }
  return most;
}

std::string speedup_section(const ReportDevice& device, const Rows& rows) {
  const Rows shown = gained_most(rows, kMostBars);
  double most = 0;
  std::string html = "<h3>Speed-up over the default config</h3>\n<div class=\"bars\">\n";
  std::string_view op;
  for (const ReportRow* row : shown) {
    if (row->op() != op) {
      html += str("<h4>", escaped(row->op()), "</h4>\n");
      most = longest_bar(shown, row->op());
    }
    op = row->op();
    html += bar(*row, std::max(0.0, row->speedup() - 1) / (most - 1));
  }
  html += "</div>\n";
  if (device.rows.size() > shown.size())
    html += note(str("The ", shown.size(), " of ", device.rows.size(), " that gained most."));
  return html;
}

std::string roofline_section(const Rows& rows, const Ceilings& given) {
  std::vector<RooflinePoint> points;
  Ceilings ceilings = given;
  constexpr double kPerGiga = 1e3;  // of a rate in 1/us
  for (const ReportRow* row : rows) {
    if (row->flops <= 0 || row->bytes <= 0) continue;
    const double gflops = row->flops / row->row().median_us / kPerGiga;
    points.push_back({row->flops / row->bytes, gflops, row->op(), row->hover(), "row-" + row->id});
    if (given.measured) continue;
    ceilings.gflops = std::max(ceilings.gflops, gflops);
    ceilings.gigabytes = std::max(ceilings.gigabytes, row->bytes / row->row().median_us / kPerGiga);
  }
  if (points.empty()) return "";
  return "<div class=\"chart\">\n<h3>Roofline</h3>\n" + roofline_chart(points, ceilings) +
         "</div>\n";
}

// ---- the rows ----

std::string row_line(const ReportRow& entry) {
  const ConfigRow& row = entry.row();
  return str("<tr id=\"row-", entry.id, "\">",
             cell("problem", "", entry.name(),
                  two_lines(link("problem-" + entry.id, escaped(entry.label())) + marks(entry),
                            escaped(entry.op()))),
             cell("kernel", "", row.kernel, escaped(row.kernel)),
             number_cell("median us", row.median_us, number_text(row.median_us)),
             number_cell("default us", row.default_us, number_text(row.default_us)),
             number_cell("speed-up", entry.speedup(), ratio_text(entry.speedup())),
             cell("noise", "short", str(row.spread),
                  str(to_string(row.noise), ", ", number_text(row.spread * 100), " %")),
             cell("tuned", "short", str(row.created), date_text(row.created)), "</tr>\n");
}

std::string rows_section(const ReportDevice& device, const Rows& rows) {
  std::string html = "<h3>Tuned problems</h3>\n";
  if (rows.size() < device.rows.size()) {
    html += note(str("The ", rows.size(), " of ", device.rows.size(),
                     " that gained most; <code>attune db ls</code> lists all."));
  }
  html += open_table("records sortable", {{"problem"},
                                          {"kernel"},
                                          {"median us", true},
                                          {"default us", true},
                                          {"speed-up", true},
                                          {"noise"},
                                          {"tuned"}});
  for (const ReportRow* row : rows) html += row_line(*row);
  return html + std::string(kEndOfTable);
}

std::string device_section(const ReportDevice& device, std::size_t number, std::size_t most_rows,
                           const Ceilings& ceilings, Evidence& evidence) {
  Rows rows;
  for (const ReportRow& row : device.rows) rows.push_back(&row);
  rows = gained_most(rows, most_rows);
  std::string html = str("<section>\n<h2 id=\"", device_anchor(number), "\">", escaped(device.name),
                         device.is_here ? "<span class=\"mark here\">this machine</span>" : "",
                         "</h2>\n", note(escaped(device.device_class)));
  if (rows.empty()) return html + note("left out: <code>attune db ls</code>") + "</section>\n";
  if (const std::int64_t unknown = device.count(RowState::kUnknown); unknown > 0) {
    html +=
        note(str("This program lacks the kernels or the backend of ", count_text(unknown, "row"),
                 ", and has not checked ", unknown == 1 ? "it" : "them", "."));
  }
  html += speedup_section(device, rows) + roofline_section(rows, ceilings) +
          rows_section(device, rows) + "<h3>Candidates</h3>\n";
  for (const ReportRow* row : rows) html += problem_section(*row, evidence);
  return html + "<p class=\"back\">" + link("top", "to the summary") + "</p>\n</section>\n";
}

}  // namespace

std::string report_page(const ReportContent& content, Evidence& evidence) {
  std::string html =
      str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n",
          kReportTitle, "\n<style>", page_style(), "</style>\n</head>\n<body>\n", summary(content));
  std::size_t left = kMostRows;
  for (std::size_t i = 0; i < std::min(content.devices.size(), kMostDevices); ++i) {
    const ReportDevice& device = content.devices[i];
    html += device_section(device, i, left, content.ceilings, evidence);
    left -= std::min(left, device.rows.size());
  }
  return str(html, "<script>", page_script(), "</script>\n</body>\n</html>\n");
}

}  // namespace attune::cli
