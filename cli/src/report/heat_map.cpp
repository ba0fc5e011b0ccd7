#include "report/heat_map.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "output/text.hpp"
#include "report/html.hpp"
#include "report/report_rows.hpp"

namespace attune::cli {
namespace {

struct Timed {
  Params params;
  double median_us = 0;
};

std::vector<Timed> timed_of(std::span<const TrialRow> trials, const std::string& kernel) {
  std::vector<Timed> timed;
  for (const TrialRow& trial : trials) {
    if (trial.kernel != kernel || trial.median_us <= 0) continue;
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

/// How much the choice of a parameter's value matters: the greatest ratio between the best times
/// of two values.
struct Axis {
  std::string name;
  std::vector<std::string> values;  // numbers first, ascending
  double effect = 1;
};

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

/// Those of two values and more, what matters most first.
std::vector<Axis> axes_by_effect(const std::vector<Timed>& timed) {
  constexpr std::size_t kMostValues = 12;  // that a map has room for
  constexpr std::size_t kMostAxes = 16;
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
  if (axes.size() > kMostAxes) axes.resize(kMostAxes);
  return axes;
}

HeatMap map_of(const std::vector<Timed>& timed, const Axis& across, const Axis& down) {
  double best = timed.front().median_us;
  std::map<std::pair<std::string, std::string>, double> times;  // by the values of both
  for (const Timed& trial : timed) {
    best = std::min(best, trial.median_us);
    const std::string* x = find_param(trial.params, across.name);
    const std::string* y = find_param(trial.params, down.name);
    if (x == nullptr || y == nullptr) continue;
    const auto [place, is_new] = times.try_emplace({*x, *y}, trial.median_us);
    place->second = std::min(place->second, trial.median_us);
  }
  HeatMap map{across.name, down.name, across.values, down.values, {}};
  for (const std::string& y : map.y) {
    auto& line = map.ratios.emplace_back();
    for (const std::string& x : map.x) {
      const auto time = times.find({x, y});
      line.push_back(time != times.end() ? std::optional(time->second / best) : std::nullopt);
    }
  }
  return map;
}

bool is_well_tried(const HeatMap& map) {
  std::size_t tried = 0;
  for (const auto& line : map.ratios) {
    tried += static_cast<std::size_t>(
        std::ranges::count_if(line, [](const auto& ratio) { return ratio.has_value(); }));
  }
  return 4 * tried >= 3 * map.x.size() * map.y.size();
}

/// The best is opaque enough for its text to be read on it; four times as slow is bare.
std::string shade_of(double ratio) {
  const double strength = 0.65 * std::max(0.0, 1 - std::log(ratio) / std::log(4.0));
  return str("background:rgb(var(--heat)/", std::round(100 * strength), "%)");
}

}  // namespace

std::optional<HeatMap> heat_map(std::span<const TrialRow> trials, const std::string& kernel) {
  const std::vector<Timed> timed = timed_of(trials, kernel);
  const std::vector<Axis> axes = axes_by_effect(timed);
  std::optional<HeatMap> found;
  double most = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = i + 1; j < axes.size(); ++j) {
      const double effect = axes[i].effect * axes[j].effect;
      if (effect <= most) continue;
      HeatMap map = map_of(timed, axes[i], axes[j]);
      if (!is_well_tried(map)) continue;
      most = effect;
      found = std::move(map);
    }
  }
  return found;
}

std::string heat_map_table(const HeatMap& map) {
  std::string html = str("<table class=\"heat\"><thead><tr><th>", escaped(map.y_name), " \\ ",
                         escaped(map.x_name), "</th>");
  for (const std::string& x : map.x) html += str("<th>", escaped(x), "</th>");
  html += "</tr></thead><tbody>\n";
  for (std::size_t j = 0; j < map.y.size(); ++j) {
    html += str("<tr><th>", escaped(map.y[j]), "</th>");
    for (const std::optional<double>& ratio : map.ratios[j]) {
      if (ratio) {
        html += str("<td style=\"", shade_of(*ratio), "\">", ratio_text(*ratio), "</td>");
      } else {
        html += "<td></td>";
      }
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace attune::cli
