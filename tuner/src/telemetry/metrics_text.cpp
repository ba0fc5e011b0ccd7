#include "telemetry/metrics_text.hpp"

#include <charconv>
#include <cmath>

#include <attune/core/error.hpp>

namespace attune::telemetry {
namespace {

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

/// The shortest decimal that is this number; a NaN, which nothing here is, would spoil the file.
std::string decimal(double value) {
  if (!std::isfinite(value)) return "0";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

std::string joined(MetricsText::Labels labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += str(out.empty() ? "" : ",", name, "=\"", escaped(value), '"');
  }
  return out;
}

}  // namespace

MetricsText::MetricsText(Labels of_all) : labels_of_all_(joined(of_all)) {}

void MetricsText::begin(std::string_view name, std::string_view type, std::string_view help) {
  text_ += str("# HELP ", name, ' ', help, "\n# TYPE ", name, ' ', type, '\n');
}

void MetricsText::counter(std::string_view name, std::string_view help) {
  begin(name, "counter", help);
  sample_name_ = str(name, "_total");
}

void MetricsText::gauge(std::string_view name, std::string_view help) {
  begin(name, "gauge", help);
  sample_name_ = name;
}

void MetricsText::sample(double value, Labels labels) {
  const std::string own = joined(labels);
  const bool both = !own.empty() && !labels_of_all_.empty();
  text_ += str(sample_name_, '{', labels_of_all_, both ? "," : "", own, "} ", decimal(value), '\n');
}

std::string MetricsText::take() {
  text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace attune::telemetry
