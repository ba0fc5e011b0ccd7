// Counters and gauges as text for scraping: OpenMetrics 1.0, of which only what Prometheus's older
// text format reads as well, since node_exporter's textfile collector takes that: no types but
// counter and gauge, no timestamps, no exemplars.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace attune::telemetry {

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  /// Every sample has these labels.
  explicit MetricsText(Labels of_all);

  /// Begins a family. Samples of a counter are called `name`_total.
  void counter(std::string_view name, std::string_view help);
  void gauge(std::string_view name, std::string_view help);
  /// A sample of the family that was begun last.
  void sample(double value, Labels labels = {});

  /// All of it, ended.
  std::string take();

 private:
  void begin(std::string_view name, std::string_view type, std::string_view help);

  std::string labels_of_all_;
  std::string sample_name_;
  std::string text_;
};

}  // namespace attune::telemetry
