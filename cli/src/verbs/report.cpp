// `attune report`: what databases hold, as one HTML file that needs nothing else.
#include <algorithm>

#include <attune/cache/row_request.hpp>

#include "output/outputs.hpp"
#include "output/text.hpp"
#include "program/verb.hpp"
#include "report/page.hpp"

namespace attune::cli {
namespace {

constexpr OutputFile::Kind kReports{.name = "report of attune's",
                                    .is_ours = [](std::string_view head) {
                                      return head.find(kReportTitle) != std::string_view::npos;
                                    }};

ReportContent content_of(const Invocation& call, const CommandContext& command, StoredRows stored,
                         const Ceilings& ceilings) {
  ReportContent content;
  content.bad_rows = stored.bad_rows;
  content.ceilings = ceilings;
  MachineRows count;
  RowChecker checker(command.registry());
  for (const StoredRow& each : stored.rows) count.count(command.registry(), checker, each.row);
  content.rows_here = count.text();
  for (const Device* device : command.registry().devices())
    content.here.push_back(device_text(*device));
  content.devices = report_devices(call, command, std::move(stored));
  return content;
}

Ceilings ceilings_of(const Options& options) {
  const auto peak = options.real("peak");
  const auto bandwidth = options.real("bandwidth");
  if (peak.has_value() != bandwidth.has_value())
    throw UsageError("--peak and --bandwidth go together");
  if (!peak) return {};
  if (*peak <= 0 || *bandwidth <= 0)
    throw UsageError("--peak and --bandwidth: expected numbers above 0");
  return {*bandwidth, *peak, true};
}

ExitCode run(const Invocation& call) {
  const Ceilings ceilings = ceilings_of(call.options);
  const auto path = call.options.text("output");
  if (path) check_not_an_input("--output", *path, call.words);
  const auto output = path ? open_output("--output", *path, kReports) : nullptr;
  const CommandContext command(call, {});
  StoredRows stored = stored_rows(command, call.words);
  // Of times: what another objective gave is not held against them.
  const std::size_t others = std::erase_if(stored.rows, [](const StoredRow& each) {
    return !objective_of(each.row.key.platform).empty();
  });
  if (others > 0) {
    call.note(str(count_text(others, "row of another objective than time is",
                             "rows of other objectives than time are"),
                  " left out; 'attune db ls' lists them"));
  }
  if (stored.rows.empty()) {
    call.note("nothing is tuned yet: see 'attune tune --help'");
    return ExitCode::kNo;
  }
  const ReportContent content = content_of(call, command, std::move(stored), ceilings);
  Evidence evidence;
  const std::string html = report_page(content, evidence);
  if (output) {
    output->write(html);
    output->commit();
    call.note(str("wrote ", *path));
  } else {
    call.out.write(html);
  }
  evidence.note_damage(call);
  std::int64_t unreadable = 0;
  for (const ReportDevice& device : content.devices)
    unreadable += std::ranges::count_if(device.rows, &ReportRow::unreadable);
  if (unreadable > 0) {
    call.note(str(count_text(unreadable, "row has", "rows have"),
                  " a problem that the op cannot read, which stands as text; 'attune db verify' "
                  "says why"));
  }
  return ExitCode::kOk;
}

}  // namespace

Verb report_verb() {
  return {
      .name = "report",
      .summary = "what is tuned, as one HTML page: speed-up, roofline, candidates, provenance",
      .usage = {"report [--output FILE] [DATABASE...]"},
      .examples = {"report --output report.html",
                   "report --peak 70000 --bandwidth 4250 h200.db > h200.html"},
      .details =
          "The page needs no network or other file, and a script only to sort. Without DATABASE "
          "it is of all databases in effect. This machine comes first; a bar leads to its row, "
          "a row to its candidates and to the commands that measure it again. Of thousands of "
          "rows it shows the 500 that gained most. --peak and --bandwidth are the ceilings of the roofline; "
          "without them they are the most that any tuned problem reached, and labelled so.",
      .options = {{"output", '\0', "FILE", "where to write; default standard output", false},
                  {"peak", '\0', "GFLOP/S", "the roof of the roofline", false},
                  {"bandwidth", '\0', "GB/S", "the slope of the roofline", false}},
      .run = run};
}

}  // namespace attune::cli
