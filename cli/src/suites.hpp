// Suites: problems with the times they are held against, as data. `attune bench --suite NAME` runs
// one.
#pragma once

#include <string_view>
#include <vector>

namespace attune::cli {

/// One line of the result: a problem that every one of `ops` has. Their times add up.
struct SuiteRow {
  std::vector<std::string_view> ops;
  std::string_view spec;
  double must_us = 0;  // 0: there is no such bound
  double goal_us = 0;
};

struct Suite {
  std::string_view name;
  std::string_view backend;      // of the device that its times are for
  double copy_bytes_per_us = 0;  // read and written by a copy there: what makes the floors
  std::vector<SuiteRow> rows;
};

const std::vector<Suite>& suites();

/// Throws UsageError, listing what there is.
const Suite& find_suite(std::string_view name);

}  // namespace attune::cli
