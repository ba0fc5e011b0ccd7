// The problems that every kernel of an op is held against the oracle on. A new op adds its own
// here; tests/backends/conformance_test.cpp does the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attune::test {

/// A field of a random problem: any number from `least` to `most`, whatever its factor says.
struct Range {
  std::string field;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

struct OpShapes {
  std::string_view op;
  /// Each factor is a list of texts, "T=64" or "H=4 Hkv=2". Problems take one text of each factor;
  /// any two texts of two factors meet in some problem, and all combinations must be legal.
  std::vector<std::vector<std::string>> factors;
  std::vector<Range> ranges;
  std::vector<std::string> problems;  // besides
};

/// One for each op, aliases left out.
const std::vector<OpShapes>& all_shapes();

/// All problems of an op, as texts that OpInfo::parse takes.
std::vector<std::string> problems_of(const OpShapes& shapes);

/// A random problem of an op; the same for the same seed.
std::string random_problem_of(const OpShapes& shapes, std::uint64_t seed);

}  // namespace attune::test
