// Far fewer tests than a product of values, and yet any two values of two factors meet in one:
// most faults need no more than two.
#pragma once

#include <cstddef>
#include <vector>

namespace attune::test {

/// Rows of one value index a factor, covering all pairs. `counts` says how many values each factor
/// has, at least 1. The same rows for the same counts.
std::vector<std::vector<std::size_t>> pairwise(const std::vector<std::size_t>& counts);

}  // namespace attune::test
