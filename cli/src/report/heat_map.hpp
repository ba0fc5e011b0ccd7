// How much two parameters of a kernel matter for a problem, by the candidates that were timed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <attune/cache/config_row.hpp>

namespace attune::cli {

struct HeatMap {
  std::string x_name, y_name;
  std::vector<std::string> x, y;
  std::vector<std::vector<std::optional<double>>> ratios;  // [y][x], 1 for the best; or not tried
};

/// Of the pairs of parameters of `kernel` that were tried with each other, the one that matters
/// most: at least three in four of their values' pairs were timed. Nothing where there is none, as
/// after a search that moved one parameter at a time.
std::optional<HeatMap> heat_map(std::span<const TrialRow> trials, const std::string& kernel);

/// As a table, the darker a cell the nearer to the best.
std::string heat_map_table(const HeatMap& map);

}  // namespace attune::cli
