// Every candidate of a problem against the oracle, on the op's reduced problem.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

struct CandidateCheck {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;
  double worst_error = 0;            // relative RMS, over all candidates and outputs
  double tolerance = 0;              // the least that an output was held against
  std::vector<std::string> reasons;  // one for each wrong candidate
};

/// Stops early when `stop` says so. Throws Unsupported when no reference kernel takes the problem.
CandidateCheck check_candidates(const CommandContext& command, const Target& target,
                                const std::function<bool()>& stop);

/// The same for one choice; for the whole problem where it does not fit the reduced one.
CandidateCheck check_choice(const CommandContext& command, const Target& target,
                            const Choice& choice);

}  // namespace attune::cli
