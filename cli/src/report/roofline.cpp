#include "report/roofline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <attune/core/error.hpp>

#include "report/html.hpp"

namespace attune::cli {
namespace {

constexpr double kWidth = 860;

/// A coordinate or length: a tenth of a pixel is enough.
std::string px(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.1f", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string label(double x, double y, std::string_view anchor, std::string_view text) {
  return str("<text x=\"", px(x), "\" y=\"", px(y), "\" text-anchor=\"", anchor, "\">",
             escaped(text), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, std::string_view kind) {
  return str("<line x1=\"", px(x1), "\" y1=\"", px(y1), "\" x2=\"", px(x2), "\" y2=\"", px(y2),
             "\" class=\"", kind, "\"/>\n");
}

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
    return str("colour", (found - groups_.begin()) % kInThePage);
  }
  const std::vector<std::string>& groups() const { return groups_; }

 private:
  std::vector<std::string> groups_;
};

std::string circle(double x, double y, std::string_view kind, const RooflinePoint& point) {
  return str("<a href=\"#", escaped(point.link), "\"><circle cx=\"", px(x), "\" cy=\"", px(y),
             "\" r=\"5\" class=\"", kind, "\"><title>", escaped(point.hover),
             "</title></circle></a>\n");
}

std::string legend_of(Colours& colours) {
  std::string html = "<p class=\"legend\">";
  for (const std::string& group : std::vector(colours.groups())) {
    html += str("<span><i class=\"", colours.of(group), "\"></i>", escaped(group), "</span> ");
  }
  return html + "</p>\n";
}

}  // namespace

std::string roofline_chart(const std::vector<RooflinePoint>& points, const Ceilings& ceilings) {
  constexpr double kHeight = 410;
  constexpr double kLeft = 92;
  constexpr double kRight = 36;
  constexpr double kTop = 40;
  constexpr double kBottom = 80;
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
  std::string svg = str("<svg viewBox=\"0 0 ", px(kWidth), ' ', px(kHeight),
                        "\" role=\"img\" aria-label=\"roofline\">\n");
  for (int e = across.first; e <= across.last; ++e) {
    const double x = x_of(std::pow(10.0, e));
    svg += line(x, kTop, x, kHeight - kBottom, "grid");
    svg += label(x, kHeight - kBottom + 32, "middle", power_of_ten(e));
  }
  for (int e = up.first; e <= up.last; ++e) {
    const double y = y_of(std::pow(10.0, e));
    svg += line(kLeft, y, kWidth - kRight, y, "grid");
    svg += label(kLeft - 8, y + 5, "end", with_prefix(std::pow(10.0, e) * kGiga));
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
  svg += label(kWidth - kRight, y_of(ceilings.gflops) - 8, "end",
               str(which, with_prefix(ceilings.gflops * kGiga), "FLOP/s, ",
                   with_prefix(ceilings.gigabytes * kGiga), "B/s"));
  Colours colours;
  for (const RooflinePoint& point : points) {
    svg +=
        circle(x_of(point.intensity), y_of(point.gflops), "dot " + colours.of(point.group), point);
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle",
               "arithmetic intensity, FLOPs a byte");
  svg += label(kLeft, 22, "start", "FLOP/s");
  return legend_of(colours) + svg + "</svg>\n";
}

}  // namespace attune::cli
