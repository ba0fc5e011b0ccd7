// `attune report`: what databases hold, as one HTML file that needs nothing else.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <attune/core/version.hpp>

#include "output/outputs.hpp"
#include "output/report_svg.hpp"
#include "output/text.hpp"
#include "problems/command_context.hpp"
#include "program/verb.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {
namespace {

/// Nothing where it is no text of parameters: another program may have written it.
Params readable_params(const std::string& text, char separator) {
  try {
    return parse_params(text, separator);
  } catch (const InvalidArgument&) {
    return {};
  }
}

/// A stored decision, with what its op knows of the problem where the op is registered.
struct Entry {
  StoredRow stored;
  std::string problem;
  double flops = 0;  // 0: not known
  double bytes = 0;
  bool unreadable = false;  // its op is registered, and cannot read the problem

  const ConfigRow& row() const { return stored.row; }
  const std::string& op() const { return row().key.op; }
  double speedup() const { return row().default_us / row().median_us; }
  std::string name() const { return op() + ' ' + problem; }
  /// The problem with D= for a K= and a V= that are the same.
  std::string label() const {
    Params params = readable_params(problem, ' ');
    const std::string* k = find_param(params, "K");
    const std::string* v = find_param(params, "V");
    if (k == nullptr || v == nullptr || *k != *v) return problem;
    std::erase_if(params, [](const Param& param) { return param.name == "V"; });
    for (Param& param : params) {
      if (param.name == "K") param.name = "D";
    }
    return to_text(params, ' ');
  }
  std::string hover() const {
    return str(name(), ": ", number_text(row().median_us), " us, default ",
               number_text(row().default_us), " us; ", row().kernel, ' ',
               config_or_default(row().config));
  }
};

std::vector<Entry> entries(const CommandContext& command, StoredRows stored) {
  std::vector<Entry> all;
  for (StoredRow& row : stored.rows) {
    Entry entry{.stored = std::move(row), .problem = ""};
    const RowKey& key = entry.row().key;
    entry.problem = problem_text_of(command, key);
    if (const OpInfo* op = command.registry().find_op(key.op)) {
      try {
        const AnyProblem problem = op->parse(parse_params(key.problem, ' '));
        entry.flops = op->flops(problem);
        entry.bytes = op->bytes(problem);
      } catch (const InvalidArgument&) {
        entry.unreadable = true;  // of another version of the op: it has no place in the roofline
      }
    }
    all.push_back(std::move(entry));
  }
  return all;
}

using Group = std::vector<const Entry*>;

std::map<std::string, Group> by_device(const std::vector<Entry>& all) {
  std::map<std::string, Group> groups;
  for (const Entry& entry : all) groups[entry.row().key.device_class].push_back(&entry);
  return groups;
}

std::string speedup_section(const Group& group) {
  constexpr std::size_t kMost = 40;
  Group fastest = group;
  std::stable_sort(fastest.begin(), fastest.end(),
                   [](const Entry* a, const Entry* b) { return a->speedup() > b->speedup(); });
  std::string note;
  if (fastest.size() > kMost) {
    note = str("<p class=\"note\">The first ", kMost, " of ", fastest.size(),
               "; the table has all.</p>\n");
    fastest.resize(kMost);
  }
  std::stable_sort(fastest.begin(), fastest.end(),
                   [](const Entry* a, const Entry* b) { return a->op() < b->op(); });
  std::vector<Bar> bars;
  for (const Entry* entry : fastest)
    bars.push_back({entry->op(), entry->label(), entry->speedup(), entry->hover()});
  return "<h3>Speed-up over the default config</h3>\n" + bar_chart(bars) + note;
}

std::string roofline_section(const Group& group, const Ceilings& given) {
  std::vector<RooflinePoint> points;
  Ceilings ceilings = given;
  constexpr double kPerGiga = 1e3;  // of a rate in 1/us
  for (const Entry* entry : group) {
    if (entry->flops <= 0 || entry->bytes <= 0) continue;
    const double gflops = entry->flops / entry->row().median_us / kPerGiga;
    points.push_back({entry->flops / entry->bytes, gflops, entry->op(), entry->hover()});
    if (given.measured) continue;
    ceilings.gflops = std::max(ceilings.gflops, gflops);
    ceilings.gigabytes =
        std::max(ceilings.gigabytes, entry->bytes / entry->row().median_us / kPerGiga);
  }
  if (points.empty()) return "";
  return "<h3>Roofline</h3>\n" + roofline_chart(points, ceilings);
}

/// How much the choice of each parameter's value matters: the greatest ratio between the best times
/// of two values.
struct Axis {
  std::string name;
  std::vector<std::string> values;  // numbers first, ascending
  double effect = 1;
};

struct Timed {
  Params params;
  double median_us = 0;
};

/// The candidates of the winning kernel that were timed.
std::vector<Timed> timed_of(const Entry& entry, Evidence& evidence) {
  std::vector<Timed> timed;
  for (const TrialRow& trial : evidence.trials_of(entry.stored)) {
    if (trial.kernel != entry.row().kernel || trial.median_us <= 0) continue;
    timed.push_back({readable_params(trial.config, ','), trial.median_us});
  }
  return timed;
}

bool comes_before(const std::string& a, const std::string& b) {
  std::int64_t x = 0;
  std::int64_t y = 0;
  const bool a_is_number = parse_integer(a, x);
  const bool b_is_number = parse_integer(b, y);
  return std::tie(b_is_number, x, a) < std::tie(a_is_number, y, b);
}

/// The least time with each value of each parameter.
std::map<std::string, std::map<std::string, double>> best_by_value(
    const std::vector<Timed>& timed) {
  std::map<std::string, std::map<std::string, double>> best;
  for (const Timed& trial : timed) {
    for (const Param& param : trial.params) {
      const auto [place, is_new] = best[param.name].try_emplace(param.value, trial.median_us);
      place->second = std::min(place->second, trial.median_us);
    }
  }
  return best;
}

std::vector<Axis> axes_by_effect(const std::vector<Timed>& timed) {
  constexpr std::size_t kMostValues = 32;  // that a map has room for
  std::vector<Axis> axes;
  for (const auto& [name, times] : best_by_value(timed)) {
    if (times.size() < 2 || times.size() > kMostValues) continue;
    Axis axis{name, {}, 1};
    double least = times.begin()->second;
    double most = least;
    for (const auto& [value, best] : times) {
      axis.values.push_back(value);
      least = std::min(least, best);
      most = std::max(most, best);
    }
    std::sort(axis.values.begin(), axis.values.end(), comes_before);
    axis.effect = most / least;
    axes.push_back(std::move(axis));
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.effect > b.effect; });
  return axes;
}

/// The two parameters of the winning kernel that matter most, if there are two.
std::optional<HeatMap> heat_map(const Entry& entry, Evidence& evidence) {
  const std::vector<Timed> timed = timed_of(entry, evidence);
  if (timed.size() < 4) return std::nullopt;
  const std::vector<Axis> axes = axes_by_effect(timed);
  if (axes.size() < 2) return std::nullopt;
  double best = timed.front().median_us;
  std::map<std::pair<std::string, std::string>, double> times;  // by the values of both
  for (const Timed& trial : timed) {
    best = std::min(best, trial.median_us);
    const std::string* x = find_param(trial.params, axes[0].name);
    const std::string* y = find_param(trial.params, axes[1].name);
    if (x == nullptr || y == nullptr) continue;
    const auto [place, is_new] = times.try_emplace({*x, *y}, trial.median_us);
    place->second = std::min(place->second, trial.median_us);
  }
  HeatMap map{axes[0].name, axes[1].name, axes[0].values, axes[1].values, {}};
  for (const std::string& y : map.y) {
    auto& line = map.ratios.emplace_back();
    for (const std::string& x : map.x) {
      const auto time = times.find({x, y});
      line.push_back(time != times.end() ? std::optional(time->second / best) : std::nullopt);
    }
  }
  return map;
}

std::string heat_map_section(const Group& group, Evidence& evidence) {
  constexpr int kMost = 6;
  std::string html;
  int shown = 0;
  for (const Entry* entry : group) {
    if (shown == kMost) break;
    const std::optional<HeatMap> map = heat_map(*entry, evidence);
    if (!map) continue;
    ++shown;
    html += str("<h4>", escaped(entry->name()), "</h4>\n<p class=\"note\">",
                escaped(entry->row().kernel),
                ", time over the best, whatever its other parameters</p>\n", heat_map_chart(*map));
  }
  return html.empty() ? "" : "<h3>The two parameters that matter most</h3>\n" + html;
}

/// Text that may be broken after commas.
std::string breakable(std::string_view text) {
  std::string html;
  for (const char c : escaped(text)) {
    html += c;
    if (c == ',') html += "<wbr/>";
  }
  return html;
}

/// A cell of two lines, the second less important.
std::string two_lines(std::string_view kind, std::string_view first, std::string_view second) {
  return str("<td class=\"", kind, "\">", escaped(first), "<br/><span class=\"note\">",
             breakable(second), "</span></td>");
}

std::string table_row(const Entry& entry) {
  const ConfigRow& row = entry.row();
  const auto number = [](const std::string& value) {
    return str("<td class=\"number\">", escaped(value), "</td>");
  };
  const std::string file = std::filesystem::path(entry.stored.path).filename().string();
  return str(
      "<tr>", two_lines("text", entry.label(), entry.op()),
      two_lines("text", str(row.kernel, " v", row.kernel_version), config_or_default(row.config)),
      number(number_text(row.median_us)), number(number_text(row.default_us)),
      number(ratio_text(entry.speedup())),
      two_lines("", str(to_string(row.noise), ", ", number_text(row.spread * 100), " %"),
                str(row.samples, " samples")),
      two_lines("", number_text(row.error),
                str(row.candidates_tried, " tried, ", row.candidates_refused, " refused")),
      two_lines("", date_text(row.created), str("attune ", row.library_version, ", ", file)),
      "</tr>\n");
}

std::string table_section(const Group& group) {
  std::set<std::string> toolkits;
  for (const Entry* entry : group) toolkits.insert(entry->row().toolkit);
  toolkits.erase("");
  std::string html = "<h3>Provenance</h3>\n";
  for (const std::string& toolkit : toolkits)
    html += str("<p class=\"note\">", escaped(toolkit), "</p>\n");
  html +=
      "<div class=\"wide\"><table>\n"
      "<tr><th>problem</th><th>kernel, config</th><th class=\"number\">median us</th><th "
      "class=\"number\">default us</th><th "
      "class=\"number\">speed-up</th><th>noise</th><th>error</th><th>tuned</th></tr>\n";
  for (const Entry* entry : group) html += table_row(*entry);
  return html + "</table></div>\n";
}

constexpr std::string_view kStyle =
    ":root{--page:#fbfbfa;--ink:#1d1f23;--muted:#5d636d;--grid:#e1e3e6;--accent:#2563b8;--second:"
    "#c2571a;--third:#2c8a57;--fourth:#8b4fb3}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#16181c;--ink:#e6e8eb;--muted:#9aa1ac;--grid:"
    "#30343b;--accent:#6ea3ee;--second:#ec9457;--third:#63c18f;--fourth:#c39be3}}\n"
    "body{background:var(--page);color:var(--ink);font:15px/1.5 "
    "system-ui,sans-serif;max-width:1080px;margin:2.5rem auto;padding:0 1rem}\n"
    "h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:3rem;border-top:1px solid "
    "var(--grid);padding-top:1rem}h3{font-size:1rem;margin-top:2rem}h4{font-size:.9rem;margin-bot"
    "tom:0}\n"
    ".note{color:var(--muted);font-size:.85rem;margin:.2rem 0}\n"
    "svg{width:100%;height:auto;display:block}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .group{font-weight:600}\n"
    "svg .tick,svg .name{fill:var(--muted)}svg .value{font-variant-numeric:tabular-nums}\n"
    ".mark,.cell{fill:var(--accent)}.grid{stroke:var(--grid)}.axis{stroke:var(--muted)}\n"
    ".ceiling{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:6 4}\n"
    ".dot{stroke:var(--page);stroke-width:1.5}.colour0{fill:var(--accent)}.colour1{fill:var(--sec"
    "ond)}.colour2{fill:var(--third)}.colour3{fill:var(--fourth)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.75rem;line-height:1.35}\n"
    "td .note{font-size:inherit}\n"
    "td,th{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid "
    "var(--grid);white-space:nowrap;vertical-align:top}td.text{white-space:normal}th{color:var(--"
    "muted);font-weight:500}\n"
    ".number{text-align:right;font-variant-numeric:tabular-nums}\n";

constexpr std::string_view kTitle = "<title>attune report</title>";
constexpr OutputFile::Kind kReports{
    .name = "report of attune's",
    .is_ours = [](std::string_view head) { return head.find(kTitle) != std::string_view::npos; }};

std::string page(const std::vector<Entry>& all, std::int64_t bad_rows, const Ceilings& ceilings,
                 Evidence& evidence) {
  std::string html =
      str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width\"/>\n",
          kTitle, "\n<style>\n", kStyle,
          "</style>\n</head>\n<body>\n<h1>attune report</h1>\n<p class=\"note\">attune ", kVersion,
          ", ", all.size(), all.size() == 1 ? " tuned problem" : " tuned problems");
  if (bad_rows > 0) html += str(", ", count_text(bad_rows, "damaged row"), " left out");
  html += "</p>\n";
  for (const auto& [device_class, group] : by_device(all)) {
    html += str("<h2>", escaped(group.front()->row().device_name), "</h2>\n<p class=\"note\">",
                escaped(device_class), "</p>\n", speedup_section(group),
                roofline_section(group, ceilings), heat_map_section(group, evidence),
                table_section(group));
  }
  return html + "</body>\n</html>\n";
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
  const std::int64_t bad_rows = stored.bad_rows;
  const std::vector<Entry> all = entries(command, std::move(stored));
  if (all.empty()) {
    call.note("nothing is tuned yet: see 'attune tune --help'");
    return ExitCode::kNo;
  }
  Evidence evidence;
  const std::string html = page(all, bad_rows, ceilings, evidence);
  if (output) {
    output->write(html);
    output->commit();
    call.note(str("wrote ", *path));
  } else {
    call.out.write(html);
  }
  evidence.note_damage(call);
  const auto unreadable =
      std::count_if(all.begin(), all.end(), [](const Entry& entry) { return entry.unreadable; });
  if (unreadable > 0) {
    call.note(str(count_text(unreadable, "row has", "rows have"),
                  " a problem that the op cannot read, which stands as text; 'attune db verify' "
                  "says why"));
  }
  return ExitCode::kOk;
}

}  // namespace

Verb report_verb() {
  return {.name = "report",
          .summary = "what is tuned, as one HTML page: speed-up, roofline, heat-maps, provenance",
          .usage = {"report [--output FILE] [DATABASE...]"},
          .examples = {"report --output report.html",
                       "report --peak 70000 --bandwidth 4250 h200.db > h200.html"},
          .details =
              "The page needs no script, network or other file. Without DATABASE it is of all "
              "databases in effect. --peak and --bandwidth are the ceilings of the roofline; "
              "without them they are the most that any tuned problem reached, and labelled so.",
          .options = {{"output", '\0', "FILE", "where to write; default standard output", false},
                      {"peak", '\0', "GFLOP/S", "the roof of the roofline", false},
                      {"bandwidth", '\0', "GB/S", "the slope of the roofline", false}},
          .run = run};
}

}  // namespace attune::cli
