// What a kernel's heuristic gives a call whose scratch memory is bounded, by its workspace_limit or
// a constraint.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "chain/call.hpp"

namespace attune::chain {

struct WithinLimit {
  std::optional<Candidate> candidate;
  std::string reason;  // why its heuristic's config is passed over; "" when it is not
  std::size_t least_bytes = kNoLimit;
  std::string least;  // the candidate that needs the least
};

/// The heuristic's config, or where that needs too much, of the kernel's candidates that do not the
/// one that differs from it in the fewest parameters, and of several the one that needs the most.
/// Of a kernel with a large space, the heuristic's or nothing.
WithinLimit heuristic_within_limit(Call& call, const ErasedKernel& kernel);

/// The error of a call that nothing fits; `least` needs the least of all kernels.
std::string why_none_within_limit(const Call& call, const WithinLimit& least);

}  // namespace attune::chain
