#include "store/neighbour_index.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

namespace attune {

std::optional<ScaledProblem> scaled_problem(std::string_view problem,
                                            const std::vector<std::string>& scalable) {
  ScaledProblem scaled;
  try {
    for (const Param& param : parse_params(problem, ' ')) {
      std::int64_t size = 0;
      const bool scales = std::find(scalable.begin(), scalable.end(), param.name) != scalable.end();
      if (scales && parse_integer(param.value, size) && size > 0) {
        scaled.rest += param.name + ' ';
        scaled.sizes.push_back(std::log2(static_cast<double>(size)));
      } else {
        scaled.rest += str(param.name, '=', param.value, ' ');
      }
    }
  } catch (const InvalidArgument&) {
    return std::nullopt;  // of a row that another program wrote
  }
  return scaled;
}

double octaves_between(const ScaledProblem& a, const ScaledProblem& b) {
  double octaves = 0;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) octaves += std::abs(a.sizes[i] - b.sizes[i]);
  return octaves;
}

double problem_distance(std::string_view a, std::string_view b) {
  Params left;
  Params right;
  try {
    left = parse_params(a, ' ');
    right = parse_params(b, ' ');
  } catch (const InvalidArgument&) {
    // Of a row that another program wrote: last of all, but still a row.
    return std::numeric_limits<double>::infinity();
  }
  const auto log2_of = [](std::int64_t value) {
    return std::log2(static_cast<double>(std::max<std::int64_t>(value, 1)));
  };
  double distance = 0;
  for (const Param& param : left) {
    const std::string* other = find_param(right, param.name);
    std::int64_t x = 0;
    std::int64_t y = 0;
    if (other != nullptr && parse_integer(param.value, x) && parse_integer(*other, y)) {
      distance += std::abs(log2_of(x) - log2_of(y));
    }
  }
  return distance;
}

std::string NeighbourIndex::place_of(const RowKey& key, const std::string& rest) {
  return str(key.device_class, '\n', key.platform, '\n', rest);
}

void NeighbourIndex::add(const ConfigRow& row, Layer layer, const std::string& path) {
  std::optional<ScaledProblem> problem = scaled_problem(row.key.problem, scalable_);
  if (!problem) return;
  std::string place = place_of(row.key, problem->rest);
  entries_.emplace(std::move(place), Entry{&row, layer, &path, *std::move(problem)});
}

std::vector<NeighbourIndex::Found> NeighbourIndex::find(const RowKey& key, double octaves) const {
  std::vector<Found> found;
  const std::optional<ScaledProblem> problem = scaled_problem(key.problem, scalable_);
  if (!problem) return found;
  const auto [first, last] = entries_.equal_range(place_of(key, problem->rest));
  for (auto entry = first; entry != last; ++entry) {
    const double distance = octaves_between(*problem, entry->second.problem);
    if (distance <= octaves && entry->second.row->key != key) {
      found.push_back({&entry->second, distance});
    }
  }
  return found;
}

}  // namespace attune
