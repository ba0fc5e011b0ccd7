// What tuned problems reach of a device's ceilings, as SVG inside a report's page, coloured by the
// page's CSS variables, so that one drawing serves light and dark. No script: what a mark stands
// for is its <title>, which browsers show on hover, and where it leads is a link.
#pragma once

#include <string>
#include <vector>

namespace attune::cli {

struct RooflinePoint {
  double intensity = 0;  // FLOPs a byte
  double gflops = 0;     // reached, a second
  std::string group;     // points of one share a colour, which the legend names
  std::string hover;
  std::string link;  // to an anchor of the page
};

struct Ceilings {
  double gigabytes = 0;   // a second
  double gflops = 0;      // a second
  bool measured = false;  // false: the best that any point reaches, and labelled so
};

/// What was reached against arithmetic intensity, both logarithmic, under the two ceilings; above
/// it the legend.
std::string roofline_chart(const std::vector<RooflinePoint>& points, const Ceilings& ceilings);

}  // namespace attune::cli
