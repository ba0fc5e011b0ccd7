// What `attune tune --stale` tunes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "problems/command_context.hpp"

namespace attune::cli {

/// The problems of stale rows in the databases in effect, for devices that are here, in the order
/// of their ops and problems; with OP SPEC... in `words`, those that it names. A problem that
/// another row is known for, measured with these versions, is among them: it needs no tuning.
std::vector<Target> stale_targets(const CommandContext& command,
                                  std::span<const std::string> words);

}  // namespace attune::cli
