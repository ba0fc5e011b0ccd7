// Suites: problems with what they are held against, as data. `attune bench --suite NAME` runs one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <attune/core/device.hpp>

#include "program/verb.hpp"

namespace attune::cli {

/// What a row must reach, and what would be near the limit. 0: there is no such bound.
struct Bound {
  double must = 0;
  double goal = 0;
  friend bool operator==(const Bound&, const Bound&) = default;
};

/// One line of the result: a problem that every one of `ops` has. Their times add up.
struct SuiteRow {
  std::vector<std::string_view> ops;
  std::string_view spec;
  Bound us = {};                // at most
  std::string_view about = {};  // what the row is there to show, where a suite shows several things
  Bound speedup = {};           // over the naive loop, at least
  Bound share = {};             // of the ceiling that binds, at least
  Bound times_forward = {};     // time of a backward pass, in forward passes, at most
  Bound scaling = {};           // time on one thread over that on two, at least
};

/// What a copy reads and writes on an H200.
inline constexpr double kH200CopyBytesPerUs = 4.25e6;
/// The same of a GPU whose copies were measured; of any other what an H200's do.
double gpu_copy_bytes_per_us(const DeviceInfo& gpu);

struct Suite;
using RunSuite = ExitCode (*)(const Invocation& call, const Suite& suite, bool may_tune);

struct Suite {
  std::string_view name;
  std::string_view backend;  // of the device that its bounds are for
  /// Read and written by a copy there: what makes the floors. 0: the suite is for any machine, and
  /// measures its ceilings itself.
  double copy_bytes_per_us = 0;
  std::vector<SuiteRow> rows;
  RunSuite run = nullptr;  // of a suite whose problems stand in no rows
};

// Each stands in a file of its own.
Suite h200_suite();
Suite cpu_suite();
Suite models_suite();
Suite serve_suite();
Suite cliffs_suite();
Suite untuned_suite();

const std::vector<Suite>& suites();

/// Throws UsageError, listing what there is.
const Suite& find_suite(std::string_view name);

/// The rows that have every one of `words` as an op or a field. Throws UsageError when none has.
std::vector<SuiteRow> rows_with(const Suite& suite, const std::vector<std::string>& words);

/// "recurrent_attention + recurrent_attention.backward".
std::string ops_text(const SuiteRow& row);

/// What CommandContext::targets() takes for one op of a row.
std::vector<std::string> words_of(const SuiteRow& row, std::string_view op);

}  // namespace attune::cli
