#include "report/candidates.hpp"

#include <filesystem>
#include <set>
#include <utility>

#include "output/text.hpp"
#include "report/heat_map.hpp"
#include "report/html.hpp"

namespace attune::cli {
namespace {

constexpr std::size_t kMostCandidates = 6;

std::string provenance(const ReportRow& entry) {
  const ConfigRow& row = entry.row();
  const std::string file = std::filesystem::path(entry.stored.path).filename().string();
  std::string html = str(
      escaped(row.kernel), " v", row.kernel_version, ' ', breakable(config_or_default(row.config)),
      "<br/>", number_text(row.median_us), " us; default ", number_text(row.default_us), " us (",
      breakable(row.default_config), "); ", count_text(row.samples, "sample"), ", error ",
      number_text(row.error), "; ", row.candidates_tried, " tried, ", row.candidates_refused,
      " refused<br/>attune ", escaped(row.library_version));
  if (!row.toolkit.empty()) html += ", " + escaped(row.toolkit);
  html += str(", ", date_text(row.created), ", ", to_string(entry.stored.layer), " row of ",
              escaped(file));
  if (!entry.reason.empty())
    html += str("<br/>", to_string(entry.state), ": ", escaped(entry.reason));
  return note(html);
}

/// Where a candidate differs from the stored config.
std::string difference(const TrialRow& trial, const ConfigRow& row) {
  if (trial.kernel != row.kernel)
    return two_lines(escaped(trial.kernel), breakable(config_or_default(trial.config)));
  if (trial.config == row.config) return "as stored";
  const Params stored = readable_params(row.config, ',');
  Params params = readable_params(trial.config, ',');
  std::erase_if(params, [&](const Param& param) {
    const std::string* value = find_param(stored, param.name);
    return value != nullptr && *value == param.value;
  });
  return breakable(params.empty() ? config_or_default(trial.config) : to_text(params, ','));
}

/// The fastest; of those that were not timed, one for each reason.
std::string candidates_table(const std::vector<TrialRow>& trials, const ConfigRow& row) {
  std::string html =
      "<table><thead><tr><th class=\"number\">us</th><th>candidate</th></tr></thead><tbody>\n";
  std::set<std::pair<std::string, std::string>> refusals;  // a kernel and what it said
  std::size_t shown = 0;
  for (const TrialRow& trial : trials) {
    if (shown == kMostCandidates) break;
    const bool is_timed = trial.median_us > 0;
    if (!is_timed && !refusals.emplace(trial.kernel, trial.reason).second) continue;
    ++shown;
    html += str("<tr><td class=\"number\">",
                is_timed ? number_text(trial.median_us) : escaped(trial.outcome), "</td><td>",
                difference(trial, row));
    if (!trial.reason.empty())
      html += str("<span class=\"note\">", escaped(trial.reason), "</span>");
    html += "</td></tr>\n";
  }
  html += "</tbody></table>\n";
  if (trials.size() > shown)
    html +=
        note(str("and ", trials.size() - shown, " more, which <code>attune explain</code> has"));
  return html;
}

std::string commands(const ReportRow& row) {
  std::string html;
  for (const std::string& command : row.commands) html += "<pre>" + escaped(command) + "</pre>\n";
  return html;
}

}  // namespace

bool is_doubtful(const ReportRow& row) {
  return row.state == RowState::kStale || row.state == RowState::kInvalid;
}

std::string marks(const ReportRow& row) {
  std::string html;
  if (is_doubtful(row)) {
    html += str("<span class=\"mark bad\" title=\"", escaped(row.reason), "\">",
                to_string(row.state), "</span>");
  }
  if (row.row().noise == NoiseGrade::kC)
    html += "<span class=\"mark\" title=\"measured in noise\">noisy</span>";
  return html;
}

std::string problem_section(const ReportRow& row, Evidence& evidence) {
  const std::vector<TrialRow> trials = evidence.trials_of(row.stored);
  std::string html =
      str("<section class=\"problem\" id=\"problem-", row.id, "\">\n<h4>",
          link("row-" + row.id, escaped(row.name())), marks(row), "</h4>\n", provenance(row));
  if (!trials.empty()) {
    html += "<div class=\"beside\"><div>" + candidates_table(trials, row.row()) + "</div>\n";
    if (const std::optional<HeatMap> map = heat_map(trials, row.row().kernel)) {
      html += "<div class=\"wide\">" + heat_map_table(*map) +
              note("time over the best, whatever the other parameters") + "</div>\n";
    }
    html += "</div>\n";
  }
  return html + commands(row) + "</section>\n";
}

}  // namespace attune::cli
