#include <attune/cache/config_row.hpp>

namespace attune {

std::string_view to_string(NoiseGrade grade) {
  switch (grade) {
    case NoiseGrade::kA:
      return "A";
    case NoiseGrade::kB:
      return "B";
    case NoiseGrade::kC:
      return "C";
  }
  return "?";
}

std::string_view to_string(Layer layer) {
  switch (layer) {
    case Layer::kUser:
      return "user";
    case Layer::kSite:
      return "site";
    case Layer::kShipped:
      return "shipped";
  }
  return "?";
}

}  // namespace attune
