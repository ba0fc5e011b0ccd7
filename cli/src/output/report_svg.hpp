// The charts of a report: SVG to stand inside an HTML page, coloured by the page's CSS variables
// (--ink, --muted, --grid, --accent), so that one drawing serves light and dark. No script: what a
// mark stands for is its <title>, which browsers show on hover.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace attune::cli {

/// `text` safe inside HTML and SVG, in an element or a quoted attribute.
std::string escaped(std::string_view text);

struct Bar {
  std::string group;  // bars of one stand together, under its name
  std::string label;
  double value = 1;  // a ratio; the bar begins at 1
  std::string hover;
};

/// Horizontal bars of ratios, in the order given. Equal groups are neighbours.
std::string bar_chart(const std::vector<Bar>& bars);

struct RooflinePoint {
  double intensity = 0;  // FLOPs a byte
  double gflops = 0;     // reached, a second
  std::string group;     // points of one share a colour, which the legend names
  std::string hover;
};

struct Ceilings {
  double gigabytes = 0;   // a second
  double gflops = 0;      // a second
  bool measured = false;  // false: the best that any point reaches, and labelled so
};

/// What was reached against arithmetic intensity, both logarithmic, under the two ceilings.
std::string roofline_chart(const std::vector<RooflinePoint>& points, const Ceilings& ceilings);

struct HeatMap {
  std::string x_name, y_name;
  std::vector<std::string> x, y;
  std::vector<std::vector<std::optional<double>>> ratios;  // [y][x], 1 for the best; or not tried
};

/// One cell a pair of values, the darker the nearer to the best.
std::string heat_map_chart(const HeatMap& map);

}  // namespace attune::cli
