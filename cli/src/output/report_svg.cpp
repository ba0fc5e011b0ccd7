#include "output/report_svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <attune/core/error.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

constexpr double kWidth = 860;

/// A coordinate or length: a tenth of a pixel is enough.
std::string px(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.1f", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string open_svg(double height, std::string_view role) {
  return str("<svg viewBox=\"0 0 ", px(kWidth), " ", px(height), "\" role=\"img\" aria-label=\"",
             escaped(role), "\">\n");
}

std::string label(double x, double y, std::string_view anchor, std::string_view kind,
                  std::string_view text) {
  return str("<text x=\"", px(x), "\" y=\"", px(y), "\" text-anchor=\"", anchor, "\" class=\"",
             kind, "\">", escaped(text), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return str("<line x1=\"", px(x1), "\" y1=\"", px(y1), "\" x2=\"", px(x2), "\" y2=\"", px(y2),
             "\" class=\"", kind, "\"/>\n");
}

std::string title(std::string_view text) { return str("<title>", escaped(text), "</title>"); }

/// The powers of ten that enclose values, for a logarithmic axis.
struct Decades {
  int first = 0;
  int last = 1;

  static Decades around(double least, double most) {
    Decades decades{static_cast<int>(std::floor(std::log10(least))),
                    static_cast<int>(std::ceil(std::log10(most)))};
    decades.last = std::max(decades.last, decades.first + 1);
    return decades;
  }
  /// 0 at the first, 1 at the last.
  double place(double value) const {
    return (std::log10(value) - first) / static_cast<double>(last - first);
  }
};

std::string power_of_ten(int exponent) {
  if (exponent >= 0) return "1" + std::string(static_cast<std::size_t>(exponent), '0');
  return "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + "1";
}

/// 0.5e9 as "500 M", 2.8e14 as "280 T".
std::string with_prefix(double value) {
  constexpr std::array<const char*, 6> kPrefixes{"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < kPrefixes.size(); ++prefix) value /= 1000;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g%s", value, kPrefixes.at(prefix));
  return text.data();
}

constexpr double kGiga = 1e9;

/// A class of the page's CSS for each group, in the order in which they come.
class Colours {
 public:
  std::string of(const std::string& group) {
    auto found = std::find(groups_.begin(), groups_.end(), group);
    if (found == groups_.end()) found = groups_.insert(groups_.end(), group);
    constexpr std::ptrdiff_t kInThePage = 4;
    return str("dot colour", (found - groups_.begin()) % kInThePage);
  }
  const std::vector<std::string>& groups() const { return groups_; }

 private:
  std::vector<std::string> groups_;
};

std::string circle(double x, double y, std::string_view kind, std::string_view hover) {
  return str("<circle cx=\"", px(x), "\" cy=\"", px(y), "\" r=\"5\" class=\"", kind, "\">",
             title(hover), "</circle>\n");
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bar_chart(const std::vector<Bar>& bars) {
  constexpr double kRow = 22;
  constexpr double kBar = 12;
  constexpr double kLabels = 430;
  constexpr double kValues = 60;
  double most = 1.1;
  double height = 8;
  std::string_view group;
  for (const Bar& bar : bars) {
    most = std::max(most, bar.value);
    height += bar.group == group ? kRow : 2 * kRow;
    group = bar.group;
  }
  const double unit = (kWidth - kLabels - kValues) / (most - 1);
  std::string svg = open_svg(height, "speed-up over the default");
  double y = 4;
  group = "";
  for (const Bar& bar : bars) {
    if (bar.group != group) {
      svg += label(kLabels - 8, y + kRow / 2 + 4, "end", "group", bar.group);
      group = bar.group;
      y += kRow;
    }
    const double length = std::max(1.0, (bar.value - 1) * unit);
    constexpr std::size_t kLongest = 62;
    svg += "<g>" + title(bar.hover) + '\n';
    svg += label(kLabels - 8, y + kRow / 2 + 4, "end", "name", shorten(bar.label, kLongest));
    svg += str("<rect x=\"", px(kLabels), "\" y=\"", px(y + (kRow - kBar) / 2), "\" width=\"",
               px(length), "\" height=\"", px(kBar), "\" rx=\"2\" class=\"mark\"/>\n");
    svg += label(kLabels + length + 6, y + kRow / 2 + 4, "start", "value", ratio_text(bar.value));
    svg += "</g>\n";
    y += kRow;
  }
  return svg + line(kLabels, 0, kLabels, height, "axis") + "</svg>\n";
}

std::string roofline_chart(const std::vector<RooflinePoint>& points, const Ceilings& ceilings) {
  constexpr double kHeight = 380;
  constexpr double kLeft = 70;
  constexpr double kRight = 20;
  constexpr double kTop = 28;
  constexpr double kBottom = 50;
  double least_x = ceilings.gflops / ceilings.gigabytes;
  double most_x = least_x;
  double least_y = ceilings.gflops;
  for (const RooflinePoint& point : points) {
    least_x = std::min(least_x, point.intensity);
    most_x = std::max(most_x, point.intensity);
    least_y = std::min(least_y, point.gflops);
  }
  const Decades across = Decades::around(least_x / 1.5, most_x * 1.5);
  const Decades up = Decades::around(least_y / 1.5, ceilings.gflops * 1.2);
  const auto x_of = [&](double v) { return kLeft + across.place(v) * (kWidth - kLeft - kRight); };
  const auto y_of = [&](double v) {
    return kHeight - kBottom - up.place(v) * (kHeight - kTop - kBottom);
  };
  std::string svg = open_svg(kHeight, "roofline");
  for (int e = across.first; e <= across.last; ++e) {
    const double x = x_of(std::pow(10.0, e));
    svg += line(x, kTop, x, kHeight - kBottom, "grid");
    svg += label(x, kHeight - kBottom + 18, "middle", "tick", power_of_ten(e));
  }
  for (int e = up.first; e <= up.last; ++e) {
    const double y = y_of(std::pow(10.0, e));
    svg += line(kLeft, y, kWidth - kRight, y, "grid");
    svg += label(kLeft - 8, y + 4, "end", "tick", with_prefix(std::pow(10.0, e) * kGiga));
  }
  // The slope meets the roof at the ridge; it begins where it enters the picture.
  const double ridge = ceilings.gflops / ceilings.gigabytes;
  const double begin =
      std::max(std::pow(10.0, across.first), std::pow(10.0, up.first) / ceilings.gigabytes);
  svg += line(x_of(begin), y_of(begin * ceilings.gigabytes), x_of(ridge), y_of(ceilings.gflops),
              "ceiling");
  svg +=
      line(x_of(ridge), y_of(ceilings.gflops), kWidth - kRight, y_of(ceilings.gflops), "ceiling");
  const std::string_view which = ceilings.measured ? "" : "the most reached here: ";
  svg += label(kWidth - kRight, y_of(ceilings.gflops) - 8, "end", "tick",
               str(which, with_prefix(ceilings.gflops * kGiga), "FLOP/s, ",
                   with_prefix(ceilings.gigabytes * kGiga), "B/s"));
  Colours colours;
  for (const RooflinePoint& point : points) {
    svg += circle(x_of(point.intensity), y_of(point.gflops), colours.of(point.group), point.hover);
  }
  double legend = kLeft;
  for (const std::string& group : colours.groups()) {
    constexpr double kOfACharacter = 6.8;
    svg += str("<rect x=\"", px(legend), "\" y=\"5\" width=\"10\" height=\"10\" rx=\"5\" class=\"",
               colours.of(group), "\"/>\n");
    svg += label(legend + 16, 14, "start", "name", group);
    legend += 36 + kOfACharacter * static_cast<double>(group.size());
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "name",
               "arithmetic intensity, FLOPs a byte");
  return svg + label(kLeft - 8, 14, "end", "name", "FLOP/s") + "</svg>\n";
}

std::string heat_map_chart(const HeatMap& map) {
  constexpr double kRow = 28;
  constexpr double kLeft = 150;
  constexpr double kTop = 44;
  const double column = std::min(96.0, (kWidth - kLeft) / static_cast<double>(map.x.size()));
  const double height = kTop + kRow * static_cast<double>(map.y.size()) + 4;
  std::string svg = open_svg(height, str(map.y_name, " against ", map.x_name));
  svg += label(kLeft, 14, "start", "name", map.x_name);
  svg += label(kLeft - 10, kTop - 10, "end", "name", map.y_name);
  for (std::size_t i = 0; i < map.x.size(); ++i) {
    svg += label(kLeft + (static_cast<double>(i) + 0.5) * column, kTop - 10, "middle", "tick",
                 map.x[i]);
  }
  for (std::size_t j = 0; j < map.y.size(); ++j) {
    const double y = kTop + kRow * static_cast<double>(j);
    svg += label(kLeft - 10, y + kRow / 2 + 4, "end", "tick", map.y[j]);
    for (std::size_t i = 0; i < map.x.size(); ++i) {
      const std::optional<double> ratio = map.ratios[j][i];
      const double x = kLeft + static_cast<double>(i) * column;
      // The best is opaque enough for its text to be read on it; four times as slow is bare.
      const double strength =
          ratio ? 0.65 * std::max(0.0, 1 - std::log(*ratio) / std::log(4.0)) : 0;
      svg += str("<g>", title(str(map.x_name, "=", map.x[i], ", ", map.y_name, "=", map.y[j])),
                 "<rect x=\"", px(x + 1), "\" y=\"", px(y + 1), "\" width=\"", px(column - 2),
                 "\" height=\"", px(kRow - 2), "\" rx=\"2\" class=\"cell\" fill-opacity=\"",
                 number_text(strength), "\"/>\n");
      if (ratio)
        svg += label(x + column / 2, y + kRow / 2 + 4, "middle", "value", ratio_text(*ratio));
      svg += "</g>\n";
    }
  }
  return svg + "</svg>\n";
}

}  // namespace attune::cli
